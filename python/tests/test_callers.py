"""Awaited searches, and an index in a forked child."""

import asyncio
import os
import traceback

import numpy as np
import pytest

import bathyal


def test_awaited_searches_give_the_same_answers(index, queries):
    expected = index.search(queries, k=5)

    async def ask():
        alone = await asyncio.gather(*(index.search_async(query, k=5) for query in queries))
        return alone, await index.search_async(queries, k=5)

    # Several event loops, one after the other.
    for _ in range(2):
        alone, together = asyncio.run(ask())
        assert np.array_equal(together.ids, expected.ids)
        assert np.array_equal(np.array([found.ids for found in alone]), expected.ids)
        assert np.array_equal(np.array([found.distances for found in alone]), expected.distances)
        assert [found.stats.reads[0] for found in alone] == expected.stats.reads.tolist()


def test_awaited_searches_raise_the_same_errors(index, queries):
    async def ask(**arguments):
        return await index.search_async(queries, **arguments)

    with pytest.raises(ValueError, match="k is 0"):
        asyncio.run(ask(k=0))
    with pytest.raises(ValueError, match="mode"):
        asyncio.run(ask(mode="sideways"))
    with pytest.raises(TimeoutError):
        asyncio.run(ask(timeout=0))
    with pytest.warns(bathyal.SearchWarning, match="asked for 5000"):
        asyncio.run(ask(k=5000))


def test_a_cancelled_search_stops(index, queries):
    many = np.repeat(queries, 5000, axis=0)

    async def ask():
        search = asyncio.ensure_future(index.search_async(many, search_list=1500))
        await asyncio.sleep(0)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        return await index.search_async(queries[0], k=1)

    assert asyncio.run(ask()).ids.shape == (1,)


def child(index, path, queries):
    """Runs the checks in a forked child; returns 0 if all hold."""
    for ask in (
        lambda: index.search(queries),
        lambda: index.search(queries[0]),
        lambda: asyncio.run(index.search_async(queries)),
    ):
        try:
            ask()
            return 1
        except bathyal.Error as error:
            if "open the index again" not in str(error):
                return 2
    index.close()
    with bathyal.open(path) as again:
        return 0 if again.search(queries).ids.shape == (len(queries), 10) else 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("tier", ["file", "dram"])
def test_a_forked_child_must_open_the_index_again(index_path, queries, tier):
    with bathyal.open(index_path, tier=tier) as index:
        index.search(queries)
        index.search(queries[0])
        number = os.fork()
        if number == 0:
            outcome = 4
            try:
                outcome = child(index, index_path, queries)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(outcome)
        _, status = os.waitpid(number, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert index.search(queries).ids.shape == (len(queries), 10)
