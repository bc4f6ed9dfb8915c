"""Checks of arguments, and conversions to the form that the compiled module takes."""

from __future__ import annotations

import contextlib
import operator
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Path = str | os.PathLike[str]
Data = Path | NDArray[Any]
Metric = Literal["l2", "ip", "cosine", "hamming"]
OnMiss = Literal["note", "raise_effort"]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
}
"""The dtype of each element that numpy has. Bits are packed in bytes: see :func:`columns`."""

# numpy has no bfloat16 of its own; without ml_dtypes there can be no arrays of it.
with contextlib.suppress(ImportError):
    import ml_dtypes

    DTYPES["bf16"] = np.dtype(ml_dtypes.bfloat16)

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15}
"""Bytes of each unit, as for the command. A single letter is binary: ``M`` is ``MiB``."""
UNITS |= {
    f"{letter}{rest}": 2 ** (10 * power) for power, letter in enumerate("kmgt", 1) for rest in ("", "ib")
}

_LOST_SLASH = re.compile(r"((?:s3a?|gs|az|abfss?|azure|adl|memory|file):)/(?!/)")
"""Matches an address that has lost a slash in a :class:`pathlib.Path`."""


def columns(element: str, dim: int) -> tuple[np.dtype[Any], int]:
    """Returns the dtype and the number of columns of an array of vectors with ``dim`` components.

    >>> columns("f32", 24), columns("b1", 24)
    ((dtype('float32'), 24), (dtype('uint8'), 3))
    """
    if element == "b1":
        return DTYPES["u8"], dim // 8
    if element not in DTYPES:
        raise ValueError(f"numpy has no {element} of its own; install ml_dtypes, which provides it")
    return DTYPES[element], dim


def memory_bytes(memory: float | str | None) -> int | None:
    """Returns a budget in bytes, from a whole number or text with a unit ("2GB", "512 MiB").

    >>> memory_bytes("2GB"), memory_bytes("1.5 MiB"), memory_bytes(4096), memory_bytes(1e9), memory_bytes(None)
    (2000000000, 1572864, 4096, 1000000000, None)
    >>> memory_bytes("4.35MB"), memory_bytes("64k")
    (4350000, 65536)
    """
    if memory is None:
        return None
    if not isinstance(memory, str):
        return whole("memory", _whole_float(memory))
    parts = re.fullmatch(r"\s*([0-9]*\.?[0-9]*)\s*([a-z]*)\s*", memory.lower())
    if parts is None or parts[2] not in UNITS or not parts[1].strip("."):
        raise ValueError(f"memory is {memory!r}; expected bytes with a unit, such as '2GB' or '512MiB'")
    # In floats, 4.35 MB are 4,349,999 bytes.
    return int(Fraction(parts[1]) * UNITS[parts[2]])


def _whole_float(value: Any) -> Any:
    """Returns a float that is a whole number, such as 1e9, as an ``int``; anything else unchanged."""
    return int(value) if isinstance(value, float | np.floating) and float(value).is_integer() else value


def folders(stripe: Sequence[Path] | None) -> list[Path]:
    """Returns the folders of the parts of a striped index as a list; empty for None.

    >>> folders(["/mnt/a", "/mnt/b"]), folders(None)
    (['/mnt/a', '/mnt/b'], [])
    >>> folders("/mnt/a,/mnt/b")
    Traceback (most recent call last):
    ValueError: stripe is '/mnt/a,/mnt/b'; expected a list of folders
    """
    if isinstance(stripe, (str, bytes, os.PathLike)):
        raise ValueError(f"stripe is {stripe!r}; expected a list of folders")
    return [] if stripe is None else [os.fspath(folder) for folder in stripe]


def place(index: Path) -> Path:
    """Returns the place of an index: a folder, or an address, which must be text.

    >>> import pathlib
    >>> place("s3://bucket/my.index"), place(pathlib.Path("my.index"))
    ('s3://bucket/my.index', 'my.index')
    >>> place(pathlib.Path("s3://bucket/my.index"))
    Traceback (most recent call last):
    ValueError: 's3:/bucket/my.index' is an address that has lost a slash, as in a pathlib.Path; pass a str,
    's3://bucket/my.index'
    """
    path = os.fspath(index)
    lost = _LOST_SLASH.match(path) if isinstance(path, str) else None
    if lost is not None:
        whole_address = f"{lost[1]}//{path[lost.end() :]}"
        raise ValueError(
            f"{path!r} is an address that has lost a slash, as in a pathlib.Path; pass a str, {whole_address!r}"
        )
    return path


def store_pairs(options: Mapping[str, str] | None, name: str = "store_options") -> list[tuple[str, str]]:
    """Returns the keys and values of the options of a store; ``name`` is for messages. Values may be secrets,
    so no message contains them.

    >>> store_pairs({"region": "eu-central-1"}), store_pairs(None)
    ([('region', 'eu-central-1')], [])
    >>> store_pairs({"max_requests": 8})
    Traceback (most recent call last):
    TypeError: store_options: the value of 'max_requests' is of type int; expected text
    """
    if options is None:
        return []
    if not isinstance(options, Mapping):
        raise TypeError(
            f"{name} is of type {type(options).__name__}; expected a dictionary of keys and values, both text"
        )
    for key, value in options.items():
        if not isinstance(key, str):
            raise TypeError(f"{name}: a key is of type {type(key).__name__}; expected text")
        if not isinstance(value, str):
            raise TypeError(f"{name}: the value of {key!r} is of type {type(value).__name__}; expected text")
    return list(options.items())


def stripe_unit(unit: float | str | None, stripe: Sequence[Path] | None) -> int | None:
    """Returns the bytes of a stripe unit; refused without ``stripe``.

    >>> stripe_unit("64KiB", ["/mnt/a", "/mnt/b"])
    65536
    >>> stripe_unit("64KiB", None)
    Traceback (most recent call last):
    ValueError: stripe_unit is '64KiB' without stripe: name the folders, too
    """
    if unit is not None and not stripe:
        raise ValueError(f"stripe_unit is {unit!r} without stripe: name the folders, too")
    return memory_bytes(unit)


def whole(name: str, value: Any, least: int = 0, most: int = 2**32 - 1) -> int:
    """Returns ``value`` as an ``int`` from ``least`` to ``most``; ``name`` is for messages.

    >>> whole("k", np.int64(10))
    10
    >>> whole("k", -1)
    Traceback (most recent call last):
    ValueError: k is -1; expected a whole number from 0 to 4294967295
    """
    most = 2**63 - 1 if name in ("memory", "seed") else most
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; expected a whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; expected a whole number from {least} to {most}")
    return number


def family_options(options: Mapping[str, object]) -> dict[str, int | float | str]:
    """Returns the options of a family as values that JSON can hold; options that are None are left out.

    >>> family_options({"max_degree": np.int64(32), "alpha": np.float32(1.5), "layout": "csr", "code_kind": None})
    {'max_degree': 32, 'alpha': 1.5, 'layout': 'csr'}
    >>> family_options({"max_degree": [32]})
    Traceback (most recent call last):
    TypeError: max_degree is [32]; expected a number or text
    """
    values: dict[str, int | float | str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, str):
            values[name] = value
            continue
        try:
            values[name] = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            if not isinstance(value, float | np.floating):
                raise TypeError(f"{name} is {value!r}; expected a number or text") from None
            if not np.isfinite(value):
                raise ValueError(f"{name} is {value}; expected a finite number") from None
            values[name] = float(value)
    return values


def audited(audit: float | None, on_miss: OnMiss) -> tuple[float, str] | None:
    """Returns the options of the audit of live searches; None without one."""
    if on_miss not in get_args(OnMiss):
        raise ValueError(f"on_miss is {on_miss!r}: it is one of {', '.join(get_args(OnMiss))}")
    if audit is None:
        if on_miss != "note":
            raise ValueError(f"on_miss is {on_miss!r}, but nothing is audited; give audit, too")
        return None
    return float(audit), on_miss
