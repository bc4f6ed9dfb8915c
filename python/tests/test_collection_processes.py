"""Collections of several threads and processes: snapshots, readers, a writer that is killed."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import bathyal
from bathyal import Collection
from conftest import needed

ROWS = np.random.default_rng(5).standard_normal((500, 12), dtype=np.float32)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "docs.collection"


@pytest.fixture
def docs(path: pathlib.Path):
    with Collection.create(path, dim=12, id="u64", columns={"year": "int64"}) as docs:
        docs.add(range(200), ROWS[:200], {"year": range(200)})
        yield docs


def test_snapshots_stay_as_they_were(docs: Collection) -> None:
    docs.flush()
    with docs.snapshot() as before:
        docs.delete(range(100))
        docs.upsert([100], ROWS[400:401])
        docs.compact(full=True, progress=False)
        with docs.snapshot() as after:
            assert after.sequence > before.sequence
        assert len(before) == 200 and len(docs) == 100 and 5 in before and 5 not in docs
        assert before.search(ROWS[5], k=1).ids.tolist() == [5]
        assert before.count("year < 50") == 50 and docs.count("year < 50") == 0
        assert np.array_equal(before.get([100], vectors=True).vectors, ROWS[100:101])
        assert sum(len(batch) for batch in before.batches(rows=33)) == 200
        assert before.schema == docs.schema
        walk = docs.batches(rows=10)
        docs.add([1000], ROWS[:1])
        assert [id for batch in walk for id in batch.ids.tolist()] == list(range(100, 200))
    with pytest.raises(ValueError, match="snapshot is closed"):
        len(before)


def test_a_closed_collection_raises_an_error(docs: Collection, path: pathlib.Path) -> None:
    snapshot = docs.snapshot()
    docs.close()
    docs.close()
    assert docs.closed and repr(docs).endswith(", closed>")
    for call in (
        lambda: docs.search(ROWS[0]),
        lambda: docs.add([1000], ROWS[:1]),
        lambda: docs.add([], ROWS[:0]),
        lambda: len(docs),
        lambda: docs.get([1]),
        docs.flush,
        docs.inspect,
        docs.snapshot,
    ):
        with pytest.raises(ValueError, match="the collection is closed; open it again"):
            call()
    assert len(snapshot) == 200
    with Collection.open(path) as again:
        assert len(again) == 200 and again.path == str(path)
        assert again.schema == docs.schema


def test_places_without_a_collection_are_refused(
    tmp_path: pathlib.Path, docs: Collection, path: pathlib.Path
) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        Collection.open(tmp_path / "nothing")
    assert missing.value.filename == str(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(bathyal.Error, match=r"bathyal\.Collection\.create\(\)"):
        Collection.open(tmp_path / "empty")
    with pytest.raises(FileExistsError) as there:
        Collection.create(path, dim=3)
    assert there.value.filename == str(path)
    with pytest.raises(ValueError, match="there is no version 99; the versions are"):
        Collection.open(path, version=99)
    with pytest.raises(bathyal.Error, match=r"is a collection, not an index; .*Collection\.open\(\)"):
        bathyal.open(path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError):
        Collection.create(tmp_path / "mine", dim=3)
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(FileNotFoundError):
        Collection.open("memory://nothing")


def test_kept_versions_can_be_opened(path: pathlib.Path) -> None:
    with Collection.create(path, dim=12, id="u64", keep_versions=5) as docs:
        docs.add(range(10), ROWS[:10])
        docs.flush()
        kept = docs.versions()[-1]
        docs.delete(range(5))
        docs.add([20], ROWS[20])
        docs.flush()
        assert docs.versions()[-1] > kept
    with Collection.open(path, version=kept) as old:
        assert list(old) == list(range(10)) and old.inspect()["version"] == kept
        with pytest.raises(ValueError, match="open it without a version to write"):
            old.add([30], ROWS[:1])


def test_one_writes_and_others_read(docs: Collection, path: pathlib.Path) -> None:
    with Collection.open(path) as reader:
        assert len(reader) == 200
        docs.add([300], ROWS[300])
        docs.delete([0])
        assert 300 not in reader and reader.refresh() and not reader.refresh()
        assert 300 in reader and 0 not in reader
        with pytest.raises(BlockingIOError, match="only one may at a time") as busy:
            reader.add([301], ROWS[:1])
        assert busy.value.filename == str(path)
        docs.compact(full=True, progress=False)
        assert reader.search(ROWS[300], k=1).ids.tolist() == [300]
        docs.close()
        assert reader.add([301], ROWS[:1]).added == 1


def test_awaited_calls_do_the_same(docs: Collection) -> None:
    async def work():
        added = await asyncio.gather(
            *(docs.add_async([300 + row], ROWS[300 + row], {"year": row}) for row in range(50))
        )
        found = await asyncio.gather(*(docs.search_async(ROWS[300 + row], k=1) for row in range(50)))
        assert [one.ids[0].item() for one in found] == list(range(300, 350))
        assert (await docs.get_async([310], vectors=True)).metadata["year"].tolist() == [10]
        assert (await docs.upsert_async([310], ROWS[:1])).replaced == 1
        assert (await docs.update_async([310], {"year": 7})).replaced == 1
        assert (await docs.delete_async(filter="year = 7")).deleted == 3
        assert (await docs.delete_async([300, 999])) == bathyal.Written(deleted=1, missing=1)
        with pytest.raises(bathyal.DuplicateIdError):
            await docs.add_async([310 + 1], ROWS[:1])
        with pytest.raises(ValueError, match="k is 0"):
            await docs.search_async(ROWS[0], k=0)
        with pytest.raises(TimeoutError):
            await docs.search_async(np.repeat(ROWS, 100, axis=0), timeout=0)
        return added

    for written in asyncio.run(work()):
        assert written == bathyal.Written(added=1)
    assert len(docs) == 200 + 50 - 4


def test_a_cancelled_search_stops(docs: Collection) -> None:
    async def work():
        task = asyncio.ensure_future(docs.search_async(np.repeat(ROWS, 2000, axis=0), k=100))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await docs.search_async(ROWS[0], k=1)

    assert asyncio.run(work()).ids.tolist() == [0]


def test_searches_continue_during_changes(path: pathlib.Path) -> None:
    failed: list[str] = []
    stop = threading.Event()
    with Collection.create(path, dim=12, id="u64", columns={"year": "int64"}) as docs:
        docs.add(range(100), ROWS[:100], {"year": 1})

        def search() -> None:
            while not stop.is_set():
                found = docs.search(ROWS[:5], k=100, filter="year = 1")
                # Each batch deletes one row and adds it again.
                if found.ids.shape != (5, 100) or len({*found.ids[0].tolist()}) != 100:
                    failed.append(str(found.ids.shape))

        searchers = [threading.Thread(target=search) for _ in range(2)]
        for searcher in searchers:
            searcher.start()
        for row in range(100, 400):
            docs.update([(row * 7) % 100], {"year": 1})
            docs.upsert([row % 100], ROWS[row], {"year": 1})
            if row % 60 == 0:
                docs.flush()
        stop.set()
        for searcher in searchers:
            searcher.join()
    assert not failed


def test_many_threads_write(path: pathlib.Path) -> None:
    with Collection.create(path, dim=12, id="u64", write_memory="1MiB") as docs:

        def write(thread: int) -> None:
            for row in range(40):
                docs.add([thread * 100 + row], ROWS[row])
            docs.delete(range(thread * 100, thread * 100 + 10))

        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for one in threads:
            one.join()
        expected = [thread * 100 + row for thread in range(8) for row in range(10, 40)]
        assert list(docs) == expected
    with Collection.open(path) as again:
        assert list(again) == expected


def test_a_call_may_pass_more_rows_than_the_memory_for_writes_holds(path: pathlib.Path) -> None:
    rows = np.random.default_rng(1).standard_normal((3000, 256), dtype=np.float32)
    with Collection.create(path, dim=256, id="u64", columns={"n": "int64"}, write_memory="1MiB") as docs:
        docs.add([5], rows[:1], {"n": [1]})
        with pytest.raises(bathyal.DuplicateIdError):
            docs.add(range(3000), rows)
        assert list(docs) == [5]
        assert docs.upsert(range(3000), rows, {"n": list(range(3000))}).replaced == 1
        assert docs.update(range(3000), {"n": [7] * 3000}).replaced == 3000
        assert docs.count("n = 7") == 3000
        result = docs.inspect()
        assert result["rows_in_memory"] == 0 and result["written"]["segments"] > 2 * rows.nbytes
        with Collection.open(path) as reader:
            assert reader.search(rows[::100], k=1, recall=1.0).ids.ravel().tolist() == list(
                range(0, 3000, 100)
            )
        assert docs.delete(range(2999)).deleted == 2999 and list(docs) == [2999]


def test_batches_keep_to_the_memory_for_writes(path: pathlib.Path) -> None:
    arrow = needed("pyarrow")
    rows = np.random.default_rng(1).standard_normal((3000, 256), dtype=np.float32)
    with Collection.create(path, dim=256, id="u64", write_memory="1MiB", compact=False) as docs:
        vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), 256)
        table = arrow.table({"id": arrow.array(range(3000), arrow.uint64()), "vector": vectors})
        assert docs.add_batches(table, progress=False).added == 3000
        result = docs.inspect()
        assert result["memory_bytes"] <= 1 << 20 and len(result["segments"]) > 1
        assert docs.search(rows[::100], k=1, recall=1.0).ids.ravel().tolist() == list(range(0, 3000, 100))
        steps: list[str] = []
        report = docs.compact(full=True, progress=lambda stage, done, total: steps.append(stage))
        assert report["segments_after"] == 1 and steps

        def stop(stage: str, done: int, total: int) -> None:
            raise KeyError(stage)

        docs.delete([5])
        with pytest.raises(KeyError):
            docs.compact(full=True, progress=stop)
        with pytest.raises(KeyError):
            docs.verify(progress=stop)
        assert len(docs) == 2999 and docs.verify(progress=False)["sound"]


def test_damage_is_found(docs: Collection, path: pathlib.Path) -> None:
    docs.flush()
    docs.close()
    for file in path.rglob("vectors.bin"):
        file.write_bytes(bytes(len(file.read_bytes())))
    with Collection.open(path) as again:
        with pytest.raises(bathyal.DamagedIndexError):
            again.search(ROWS[0])
        report = again.verify(progress=False)
        assert not report["sound"] and report["fault_count"] == len(report["faults"]) > 0


def test_a_process_that_ends_without_closing(path: pathlib.Path) -> None:
    program = (
        "import sys, numpy, bathyal\n"
        "docs = bathyal.Collection.create(sys.argv[1], dim=12, id='u64', write_memory='1MiB')\n"
        "for at in range(0, 30000, 500): docs.add(range(at, at + 500), numpy.ones((500, 12)))\n"
        "snapshot = docs.snapshot()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    with Collection.open(path) as docs:
        assert len(docs) == 30_000


WRITER = """
import sys, numpy, bathyal
docs = bathyal.Collection.open(sys.argv[1], write_memory="1MiB", flat_below=50)
rows = numpy.random.default_rng(5).standard_normal((500, 12), dtype=numpy.float32)
print("ready", flush=True)
batch = int(sys.stdin.readline())
while True:
    ids = range(batch * 20, batch * 20 + 20)
    docs.upsert(ids, rows[numpy.arange(batch, batch + 20) % 500], {"year": batch})
    # The last row of the batch before is deleted: batches are whole or not at all.
    docs.delete([batch * 20 - 1] if batch else [])
    print(batch, flush=True)
    batch += 1
"""


def checked(docs: Collection, acknowledged: int) -> int:
    """Checks that all batches up to ``acknowledged`` are in the collection, and later batches whole or not at
    all; returns the number of batches."""
    counts: dict[int, list[int]] = {}
    for batch in docs.batches(vectors=True):
        for id, year, vector in zip(
            batch.ids.tolist(), batch.metadata["year"].tolist(), batch.vectors, strict=True
        ):
            assert id // 20 == year and np.array_equal(vector, ROWS[(year + id % 20) % 500])
            counts.setdefault(year, []).append(id % 20)
    batches = len(counts)
    assert sorted(counts) == list(range(batches)) and acknowledged < batches <= acknowledged + 2
    for year, rows in counts.items():
        # Of the last batch but one, the row may not be deleted yet.
        whole = year == batches - 1 or (year == batches - 2 and len(rows) == 20)
        assert rows == list(range(20 if whole else 19)), year
    return batches


def test_a_writer_that_is_killed_loses_nothing(path: pathlib.Path) -> None:
    Collection.create(path, dim=12, id="u64", columns={"year": "int64"}).close()
    batches = 0
    reader = Collection.open(path)
    for life in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write(f"{batches}\n")
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(10 + 7 * life)]
        reader.refresh()
        assert len(reader) >= 19 * (int(lines[-1]) + 1)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        acknowledged = [int(line) for line in lines if line.endswith("\n")]
        with Collection.open(path) as docs:
            batches = checked(docs, acknowledged[-1])
            if batches >= 2:
                docs.delete([(batches - 1) * 20 - 1])
            assert docs.verify(progress=False)["sound"]
        reader.refresh()
        checked(reader, acknowledged[-1])
    reader.close()


SEARCHER = """
import signal, sys, numpy, bathyal
signal.signal(signal.SIGINT, signal.default_int_handler)
docs = bathyal.Collection.open(sys.argv[1])
print("began", flush=True)
try:
    docs.search(numpy.ones((2_000_000, 12), numpy.float32), k=100)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


def test_ctrl_c_ends_a_search_at_once(docs: Collection, path: pathlib.Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SEARCHER), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"began\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    out, err = process.communicate(timeout=60)
    # The promise is 100 ms; a machine that is busy with other tests may be late.
    assert time.monotonic() - asked < 10
    assert b"interrupted" in out and b"KeyboardInterrupt" in err, err
