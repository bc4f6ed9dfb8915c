"""Building an index, and copying it to another layout or other disks."""

from __future__ import annotations

import json
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bathyal import _bathyal
from bathyal.arguments import (
    Data,
    Metric,
    Path,
    family_options,
    folders,
    memory_bytes,
    place,
    store_pairs,
    whole,
)
from bathyal.arguments import stripe_unit as unit_of_stripe
from bathyal.batches import BuildTarget, path_or_array
from bathyal.files import describe, read_vectors, source
from bathyal.index import Index
from bathyal.inputs import ArgumentLabel, is_path, rows
from bathyal.keywords import family_option_names, parameter_names, refuse_unknown
from bathyal.progress import Receiver, progress_receiver
from bathyal.report import Report

DATA = ArgumentLabel("data", "vector")
CALIBRATION = ArgumentLabel("calibration", "query", "the data")

StoreAs = Literal["f16", "i8"]
Family = str


def build(
    data: Any,
    path: Path,
    metric: Metric = "l2",
    family: Family | None = None,
    *,
    key: str | None = None,
    threads: int = 0,
    seed: int | None = None,
    memory: float | str | None = None,
    overwrite: bool = False,
    store_as: StoreAs | None = None,
    calibration: Any = None,
    stripe: Sequence[Path] | None = None,
    stripe_unit: float | str | None = None,
    store_options: Mapping[str, str] | None = None,
    device: str = "cpu",
    advice: Path | Mapping[str, Any] | None = None,
    progress: bool | Receiver = True,
    **options: int | float | str | None,
) -> Index:
    """Builds an index over ``data`` in the new folder ``path``, or at an address, and opens it.

    The index appears at ``path`` only when it is complete; an error or Ctrl-C leaves nothing there.

    Args:
        data: the path of a file of vectors (see :func:`read_vectors`), or vectors in memory, ``vectors x
            dim``: an array, a list, a tensor, a frame or column, or anything else that numpy makes an array
            of. A C-contiguous array of float32, float16, uint8 or int8 is not copied and must not be changed
            meanwhile. Other numbers are converted to float32, with a warning the first time if digits are
            lost. An iterator of such batches, a loader of PyTorch or a dataset of an open HDF5 file may be
            larger than memory: its vectors are first written to a file beside ``path``, or, for an address,
            in the folder ``scratch`` of ``store_options`` or the folder of temporary files.
        metric: ``"l2"``, ``"ip"`` (inner product), ``"cosine"``, or ``"hamming"`` for packed bits or
            booleans.
        family: None builds a ``"cluster"`` index; from 1,000,000 vectors on, without ``memory``, small indexes
            of a sample are compared within seconds, and another family is built if it is clearly faster on the
            device of ``path`` (``chosen`` in :attr:`Index.build_report` has the reason).
            ``"cluster"`` (few reads, quick to build), ``"graph"`` (Vamana, as in DiskANN),
            ``"spann"`` (posting lists: little memory with few queries in flight), ``"flat"`` (exact, for
            small sets), ``"lsh"`` (E2LSH: a known probability). :func:`families` describes all.
        key: the part of the HDF5 or Parquet file ``data`` to read, as for :func:`read_vectors`.
        threads: 0 means all cores. With the same seed, a cluster index is the same bit for bit; a graph only
            with 1 thread.
        seed: seed of all random choices; None is a fixed seed.
        memory: budget of the build in bytes, or text such as ``"2GB"``; None means no limit. It counts the
            memory of the library, with 24 MB for its code, but neither Python nor an array passed as
            ``data``.
        overwrite: replace an index that is already there.
        store_as: ``"f16"`` or ``"i8"`` stores float32 vectors in half or a quarter of the bytes. Queries and
            distances stay float32. :attr:`Index.stored` has the loss.
        calibration: queries like those to come, to calibrate recall; None holds out some of ``data``.
        stripe: existing folders, each on its own disk, over which the file that searches read is striped unit
            by unit. None keeps all files in ``path``.
        stripe_unit: bytes of a unit, or text such as ``"64KiB"``: a multiple of 4 KiB. None takes 256 KiB.
        store_options: options of the store of an address, as for :func:`open`.
        device: as for :func:`open`. With the help of a graphics card, the index is the same, except that a
            graph differs and is as good.
        advice: the plan of an :func:`advise` (family, options, seed), which the index keeps: a file of
            :meth:`Advice.save`, or the plan that :meth:`Advice.build_options` returns.
        progress: True draws a bar on a terminal, False shows nothing, a callable gets ``(stage, done, total)``.
        options: options of the family, by name, which :func:`families` lists; None leaves an option out.

    Raises:
        FileNotFoundError, PermissionError, OSError: ``data`` cannot be read or ``path`` cannot be written.
        FileExistsError: ``path`` exists and ``overwrite`` is False.
        MemoryError: ``memory`` is too small; the message says how much is needed.
        TypeError: an option that no family has; the message lists the options.
        ValueError: bad parameters, NaN or infinity, zero vectors under cosine (the message names rows); an
            invalid address; ``advice`` for other vectors, or beside a family or its options.

    >>> import numpy as np, bathyal
    >>> vectors = np.random.default_rng(1).standard_normal((300, 10), dtype=np.float32)
    >>> index = bathyal.build(vectors, "cosine.index", metric="cosine", family="graph", max_degree=16)
    >>> index.build_report["vectors"], index.build_report["element"]
    (300, 'f32')
    >>> bathyal.build(vectors, "cosine.index")
    Traceback (most recent call last):
    FileExistsError: ...
    """
    budget, to, store = memory_bytes(memory), place(path), store_pairs(store_options)
    _check(options, family, calibration is not None and store_as is None)
    arguments: _bathyal._BuildArguments = {
        "metric": metric,
        "family": family,
        "options": json.dumps(family_options(options)),
        "threads": whole("threads", threads, most=4096),
        "seed": None if seed is None else whole("seed", seed),
        "memory": budget,
        "overwrite": bool(overwrite),
        "store_as": store_as,
        "calibration": None,
        "stripe": folders(stripe),
        "stripe_unit": unit_of_stripe(stripe_unit, stripe),
        "store": store,
        "device": device,
        "advice": _plan_text(advice, family, options),
    }
    report = _write_index((data, key, calibration), to, arguments, progress)
    return _open_built((to, store, store_options), budget, report)


def plan(
    data: Any,
    metric: Metric = "l2",
    family: Family | None = None,
    *,
    key: str | None = None,
    threads: int = 0,
    seed: int | None = None,
    memory: float | str | None = None,
    store_as: StoreAs | None = None,
    **options: int | float | str | None,
) -> Report:
    """Returns the plan of a :func:`build` with these arguments, of which a notebook shows the files as a table;
    nothing is built.

    Returns ``parameters``, ``memory`` (with ``planned_bytes`` at the peak, whether that ``fits``, and the
    ``needed_bytes`` if not), ``files`` (each with its ``least_bytes`` and ``most_bytes``), ``least_index_bytes``,
    ``most_index_bytes``, ``data_bytes`` and ``stages``.

    >>> import numpy as np, bathyal
    >>> plan = bathyal.plan(np.zeros((1000, 16), np.float32), family="graph")
    >>> plan["family"], plan["data_bytes"], plan["memory"]["fits"]
    ('graph', 64000, True)
    """
    refuse_unknown("plan()", options, [*family_option_names(), *parameter_names(plan)])
    arguments: _bathyal._BuildArguments = {
        "metric": metric,
        "family": family,
        "options": json.dumps(family_options(options)),
        "threads": whole("threads", threads, most=4096),
        "seed": None if seed is None else whole("seed", seed),
        "memory": memory_bytes(memory),
        "overwrite": False,
        "store_as": store_as,
        "calibration": None,
        "stripe": [],
        "stripe_unit": None,
        "store": [],
        "device": "cpu",
        "advice": None,
    }
    base = source(data, DATA._replace(bits=metric == "hamming"), key)
    return Report(json.loads(_bathyal.plan(base, arguments)), "files")


def _write_index(
    inputs: tuple[Any, str | None, Any],
    to: Path,
    arguments: _bathyal._BuildArguments,
    progress: bool | Receiver,
) -> str:
    """Builds the index over ``inputs``: the data, the part of the data's file, and the calibration queries.

    Returns the report.
    """
    data, key, calibration = inputs
    target = BuildTarget(str(to), arguments["overwrite"], dict(arguments["store"]).get("scratch"))
    label = DATA._replace(bits=arguments["metric"] == "hamming")
    with path_or_array(data, target, label) as whole_data, progress_receiver(progress) as receiver:
        base = source(whole_data, label, key)
        if calibration is not None:
            arguments["calibration"] = _calibration(calibration, base, label.bits)
        return _bathyal.build(base, to, arguments, receiver)


def _check(options: Mapping[str, object], family: Family | None, calibrated: bool) -> None:
    """Refuses options that no family has, and calibration queries for a flat index without codes."""
    refuse_unknown("build()", options, [*family_option_names(), *parameter_names(build)])
    if calibrated and family == "flat" and all(value is None for value in options.values()):
        raise ValueError(
            "calibration: a flat index without codes compares all vectors, so there is nothing to calibrate; leave "
            "it out"
        )


def _plan_text(
    advice: Path | Mapping[str, Any] | None, family: Family | None, options: Mapping[str, object]
) -> str | None:
    """Returns the text of the plan of an advice, and refuses a family or its options beside one."""
    if advice is None:
        return None
    given = [name for name, value in {"family": family, **options}.items() if value is not None]
    if given:
        raise ValueError(f"advice has the family and its options; leave {', '.join(given)} out")
    if isinstance(advice, Mapping):
        return json.dumps(advice)
    return pathlib.Path(os.fspath(advice)).read_text(encoding="utf-8")


def _open_built(at: tuple[Path, list[tuple[str, str]], Any], budget: int | None, report: str) -> Index:
    """Opens the built index, and warns of the notes about its build."""
    to, store, store_options = at
    for note in json.loads(report).get("notes", []):
        warnings.warn(note, UserWarning, stacklevel=3)
    handle = _bathyal.IndexHandle.open(
        (to, [], store), ("file", None, False, ("cpu", None)), budget, None, (None, None), None
    )
    return Index(handle, to, {"memory": budget, "store_options": store_options}, json.loads(report))


def _calibration(queries: Any, base: Data, bits: bool) -> Data:
    """Returns the calibration queries in the element of ``base``."""
    element, _, dim = describe(base)
    if is_path(queries):
        given = source(queries, CALIBRATION)
        if describe(given)[0] == element:
            return given
        queries = read_vectors(queries)
    converted, _ = rows(queries, element, CALIBRATION._replace(bits=bits), dim)
    if not converted.size:
        raise ValueError("calibration holds no queries; leave it out to calibrate with vectors of the data")
    return np.atleast_2d(converted)


def compact(
    index: Path,
    *,
    memory: float | str | None = None,
    threads: int = 0,
    store_options: Mapping[str, str] | None = None,
    progress: bool | Receiver = True,
) -> dict[str, Any]:
    """Merges inserted and deleted vectors into an index and frees their space, by building it again in its
    place.

    Ids do not change. Searches of an open index continue meanwhile, in the old index. Inserts and deletes
    wait, and a process that has changed the index must close it first. If the call is killed or stopped, the
    index is unchanged.

    Args:
        memory: bytes that the compaction may take, or text such as ``"2GB"``; None means no limit.
        threads: 0 means all cores.
        store_options: options of the store of an address, as for :func:`open`.
        progress: as :func:`build` takes it.

    Returns a dictionary: ``changed`` (as :attr:`Index.changed`), and of the build ``vectors``,
    ``index_bytes`` and more; only ``changed`` if there were no changes.

    Raises:
        BlockingIOError: another process, or an open index of this process, changes it.
        FileNotFoundError: nothing is at ``index``.
        OSError: the disk is full; a store refused or did not answer.
        ValueError: the family of the index does not change after the build, or all vectors were deleted.

    See :meth:`Index.insert` for an example.
    """
    with progress_receiver(progress) as receiver:
        at = (place(index), store_pairs(store_options))
        text = _bathyal.compact(at, memory_bytes(memory), whole("threads", threads), receiver)
    report: dict[str, Any] = json.loads(text)
    return {"changed": report["changed"], **report.get("build", {})}


def families() -> dict[str, dict[str, Any]]:
    """Returns the index families: a description (``about``), the ``options`` of a build with their help, and
    the ``counters`` that only its searches have.

    >>> import bathyal
    >>> list(bathyal.families()["cluster"]["options"])
    ['group_vectors', 'code_bytes', 'code_kind']
    >>> list(bathyal.families()["spann"]["counters"])
    ['lists', 'small_reads']
    """
    listed: list[dict[str, Any]] = json.loads(_bathyal.list_families())
    return {
        family["name"]: {
            "about": family["about"],
            "options": {option["name"]: option["help"] for option in family["options"]},
            "counters": {counter["name"]: counter["help"] for counter in family["counters"]},
        }
        for family in listed
    }


def convert_layout(
    index: Path,
    output: Path,
    layout: Literal["padded", "csr"],
    threads: int = 0,
    progress: bool | Receiver = True,
    *,
    store_options: Mapping[str, str] | None = None,
    from_store_options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Copies a graph index to another layout: the same links, codes and calibration, not a rebuild.

    ``"csr"`` is the smallest, for memory; ``"padded"`` suits disks. ``page_local`` keeps no links of single
    vectors, so it cannot be converted. Returns a dictionary: ``from``, ``to``, ``vectors``, ``links``,
    ``index_bytes``, ``index_bytes_before``, ``amplification``.

    ``store_options`` are the options of the store of ``output``, ``from_store_options`` those of ``index``,
    as for :func:`open`.

    Raises:
        FileExistsError: ``output`` exists.
        FileNotFoundError: nothing is at ``index``.
        OSError: the disk is full; a store refused or did not answer.
        ValueError: the index is not a graph, or has that layout already.

    >>> import numpy as np, bathyal
    >>> rows = np.random.default_rng(1).standard_normal((300, 10), dtype=np.float32)
    >>> bathyal.build(rows, "disk.index", family="graph", max_degree=16).close()
    >>> report = bathyal.convert_layout("disk.index", "memory.index", layout="csr")
    >>> report["to"], report["index_bytes"] < report["index_bytes_before"]
    ('csr', True)
    """
    with progress_receiver(progress) as receiver:
        read = (place(index), store_pairs(from_store_options, "from_store_options"))
        written = (place(output), store_pairs(store_options))
        text = _bathyal.convert_layout(read, written, layout, whole("threads", threads), receiver)
    report: dict[str, Any] = json.loads(text)
    return report


def convert_stripes(
    index: Path,
    output: Path,
    stripe: Sequence[Path] | None = None,
    *,
    stripe_unit: float | str | None = None,
    from_stripe: Sequence[Path] | None = None,
    overwrite: bool = False,
    progress: bool | Receiver = True,
) -> dict[str, Any]:
    """Copies an index onto other disks: from one to several, from several to one, or to another number.

    Every file is copied byte for byte, so answers stay the same. With ``overwrite``, ``output`` may be
    ``index``.

    Args:
        stripe: folders, each on its own disk, over which the copy is striped; None keeps all its files in
            ``output``.
        stripe_unit: bytes of a unit, as :func:`build` takes it.
        from_stripe: folders to which the parts of ``index`` were moved, in any order.
        overwrite: replace an index that is already at ``output``.
        progress: as :func:`build` takes it.

    Returns a dictionary: ``vectors``, ``index_bytes``, ``parts_before``, ``parts``.

    Raises:
        FileExistsError: ``output`` exists and ``overwrite`` is False.
        FileNotFoundError: a part of ``index`` is neither in its original folder nor in ``from_stripe``.
        ValueError: invalid stripe folders.

    >>> import os, numpy as np, bathyal
    >>> rows = np.random.default_rng(1).standard_normal((300, 10), dtype=np.float32)
    >>> bathyal.build(rows, "one.index").close()
    >>> os.mkdir("first-disk"), os.mkdir("second-disk")
    (None, None)
    >>> bathyal.convert_stripes("one.index", "two.index", ["first-disk", "second-disk"])["parts"]
    2
    """
    with progress_receiver(progress) as receiver:
        disks = (folders(stripe), unit_of_stripe(stripe_unit, stripe))
        read = (place(index), folders(from_stripe))
        text = _bathyal.convert_stripes(read, place(output), disks, bool(overwrite), receiver)
    report: dict[str, Any] = json.loads(text)
    return report
