"""Work under asyncio: threads for blocking calls, and a socket per event loop for the searches that have
ended."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

from bathyal import _bathyal

_Answer = TypeVar("_Answer")


async def in_thread(work: Callable[[], _Answer], cancel: _bathyal.Cancel | None = None) -> _Answer:
    """Runs ``work`` in a thread of the running event loop and returns its result. If the task is cancelled,
    ``cancel`` is set."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except asyncio.CancelledError:
        if cancel is not None:
            cancel.set()
        raise


class _Searches:
    """The searches that one event loop awaits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._awaited = _bathyal.Awaited()
        self._futures: dict[int, asyncio.Future[_bathyal._Answers]] = {}
        loop.add_reader(self._awaited.fileno(), self._take)

    def _take(self) -> None:
        for number, answers, error in self._awaited.take():
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if error is not None:
                future.set_exception(error)
            elif answers is not None:
                future.set_result(answers)

    async def search(
        self, handle: _bathyal.IndexHandle, rows: NDArray[Any], arguments: _bathyal._SearchArguments
    ) -> _bathyal._Answers:
        future: asyncio.Future[_bathyal._Answers] = asyncio.get_running_loop().create_future()
        number = self._awaited.begin(handle, rows, arguments)
        self._futures[number] = future
        try:
            return await future
        finally:
            if self._futures.pop(number, None) is not None:
                self._awaited.give_up(number)


_LOOPS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Searches] = weakref.WeakKeyDictionary()


async def search(
    handle: _bathyal.IndexHandle, rows: NDArray[Any], arguments: _bathyal._SearchArguments
) -> _bathyal._Answers:
    """Returns the answers of a search, awaited on the running event loop."""
    loop = asyncio.get_running_loop()
    searches = _LOOPS.get(loop)
    if searches is None:
        searches = _LOOPS[loop] = _Searches(loop)
    return await searches.search(handle, rows, arguments)
