"""The compiled half of the package: private, nothing may be left out; the package checks what it passes."""

from collections.abc import Callable
from os import PathLike
from typing import Any, TypedDict, final

import numpy as np
from numpy.typing import NDArray

__version__: str

class Error(Exception): ...
class DamagedIndexError(Error): ...

_Path = str | PathLike[str]
_Data = _Path | NDArray[Any]
_Progress = Callable[[str, int, int], object] | None

class _BuildArguments(TypedDict):
    metric: str
    family: str | None
    options: str
    threads: int
    seed: int | None
    memory: int | None
    overwrite: bool
    store_as: str | None
    calibration: _Data | None
    stripe: list[_Path]
    stripe_unit: int | None

class _SearchArguments(TypedDict):
    k: int
    recall: float
    search_list: int | None
    probes: int | None
    prune: float | None
    beam_width: int | None
    threads: int
    mode: str | None
    timeout: float | None
    in_flight: int | None

_Ids = NDArray[np.uint32]
_Distances = NDArray[np.float32]
_Counts = NDArray[np.uint64]

@final
class Costs:
    """Its arrays are made when they are first asked for, and the same from then on."""

    @property
    def seconds(self) -> float: ...
    @property
    def threads(self) -> int: ...
    @property
    def latencies_ns(self) -> _Counts: ...
    @property
    def hops(self) -> _Counts: ...
    @property
    def reads(self) -> _Counts: ...
    @property
    def bytes(self) -> _Counts: ...
    @property
    def code_distances(self) -> _Counts: ...
    @property
    def full_distances(self) -> _Counts: ...
    @property
    def own(self) -> dict[str, _Counts]: ...

# ids, distances, notes, costs, search_list, dram_bytes
_Answers = tuple[_Ids, _Distances, list[str], Costs, int, int]
# offsets, ids, distances, notes, costs
_Ranges = tuple[NDArray[np.int64], _Ids, _Distances, list[str], Costs]
# indexes, ids, distances, notes, costs
_ManyAnswers = tuple[_Ids, _Ids, _Distances, list[str], Costs]

@final
class IndexHandle:
    @staticmethod
    def open(
        place: tuple[_Path, list[_Path]],
        tier: tuple[str, str | None],
        memory: int | None,
        progress: _Progress,
        delay: str | None,
        profile: _Path | None,
    ) -> IndexHandle: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def len(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def element(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def dram_bytes(self) -> int: ...
    def manifest(self) -> str: ...
    def search(self, queries: NDArray[Any], arguments: _SearchArguments) -> _Answers: ...

@final
class Awaited:
    def __init__(self) -> None: ...
    def fileno(self) -> int: ...
    def begin(self, handle: IndexHandle, queries: NDArray[Any], arguments: _SearchArguments) -> int: ...
    def take(self) -> list[tuple[int, _Answers | None, Exception | None]]: ...
    def give_up(self, number: int) -> None: ...

def build(data: _Data, path: _Path, arguments: _BuildArguments, progress: _Progress) -> str: ...
def list_families() -> str: ...
def range_search(
    handle: IndexHandle, queries: NDArray[Any], radius: float, limit: int | None, arguments: _SearchArguments
) -> _Ranges: ...
def search_many(
    handles: list[IndexHandle], queries: NDArray[Any], arguments: _SearchArguments
) -> _ManyAnswers: ...
def search_file(
    handle: IndexHandle, queries: _Path, output: _Path, block: int, arguments: _SearchArguments
) -> str: ...
def warm(handle: IndexHandle, arguments: _SearchArguments) -> str: ...
def explain(handle: IndexHandle, queries: NDArray[Any], row: int, arguments: _SearchArguments) -> str: ...
def stats(handle: IndexHandle) -> tuple[str, str]: ...
def verify(path: _Path, stripe: list[_Path], progress: _Progress) -> str: ...
def inspect(path: _Path, stripe: list[_Path], progress: _Progress) -> str: ...
def convert_layout(index: _Path, output: _Path, layout: str, threads: int, progress: _Progress) -> str: ...
def convert_stripes(
    index: tuple[_Path, list[_Path]],
    output: _Path,
    disks: tuple[list[_Path], int | None],
    overwrite: bool,
    progress: _Progress,
) -> str: ...
def describe_vectors(path: _Path) -> tuple[str, int, int]: ...
def write_vectors(path: _Path, array: NDArray[Any]) -> None: ...
def read_ids(path: _Path) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]: ...
def write_ids(path: _Path, ids: NDArray[np.uint32], distances: NDArray[np.float32] | None) -> None: ...
def convert(
    input: _Path, output: _Path, element: str | None, rows: tuple[int, int] | None, progress: _Progress
) -> tuple[int, int, str | None]: ...
def groundtruth(
    base: _Data, queries: _Data, metric: str, k: int, threads: int, progress: _Progress
) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]: ...
def overall_ratio(
    ids: NDArray[np.uint32],
    distances: NDArray[np.float32],
    truth: NDArray[np.uint32],
    true_distances: NDArray[np.float32],
    metric: str,
) -> tuple[float | None, float | None, int] | None: ...
def run_command(arguments: list[str]) -> int: ...
