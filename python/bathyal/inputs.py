"""Vectors as callers have them, brought into the one form that the compiled half takes: C-contiguous numpy arrays.

No library is imported for this: whoever passes a tensor, a frame or a column has loaded the library that it is of.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bathyal import frames
from bathyal.arguments import DTYPES, Path, columns

BLOCK_VALUES = 1 << 22
"""Values that are converted at once, so that a large array does not need several copies of itself."""
HOST_MEMORY = (1, 3)
"""Kinds of devices in DLPack whose memory the processor reads: its own, and pages that are pinned for CUDA."""
WANTED = "expected float32, float16, uint8 or int8"

_said: set[tuple[str, str]] = set()
"""Conversions that callers have been told of."""


class Called(NamedTuple):
    """What messages call an argument."""

    name: str
    """The argument."""
    one: str
    """One of its vectors."""
    holder: str = "the index"
    """What holds the element that it has to have."""
    bits: bool = False
    """Whether its bytes are eight bits each, so that truth values are packed like that."""


QUERIES = Called("queries", "query")
VECTORS = Called("vectors", "vector")


def rows(
    value: Any, element: str, called: Called = QUERIES, dim: int | None = None
) -> tuple[NDArray[Any], bool]:
    """``value`` as an array of ``element``, and whether it is a single vector: of one dimension.

    What loses nothing is converted in silence, floats that lose digits with a warning the first time. What an
    integer or a narrower float cannot hold is refused. Of no vectors ``vectors x dim`` is ``0 x dim``.

    >>> rows([[1, 2], [3, 4]], "u8")
    (array([[1, 2], [3, 4]], dtype=uint8), False)
    >>> rows([1.5, 2], "u8")
    Traceback (most recent call last):
    ValueError: queries: row 0, dimension 0 is 1.5, which uint8, the element of the index, cannot hold: scale and
    round the values first
    """
    # What is nearly always the case goes first: to look for anything else takes longer than all that is done here.
    array = value if _is_plain(value) else _array(value, called)
    dtype, width = columns(element, dim or 0)
    if element == "b1" or called.bits:
        array = _packed(array, called)
    if array.size == 0:
        return _none(array, dtype, called, width or None), False
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{called.name} have {array.ndim} dimensions, expected 2 ({called.name} x dim) or 1 (one {called.one})"
        )
    if array.dtype != dtype:
        array = _converted(array, dtype, called, silent=not _is_array(value))
    return np.ascontiguousarray(array), array.ndim == 1


def vectors(value: Any, called: Called, first: int = 0) -> NDArray[Any]:
    """``value`` as an array of ``vectors x dim`` of whatever element suits it: its own where an index has such,
    else float32. ``first`` is the number of its first row in messages.

    >>> vectors([[0, 1], [2, 3]], Called("data", "vector")).dtype
    dtype('float32')
    """
    array = value if _is_plain(value) else _array(value, called)
    if array.ndim != 2:
        dimensions = f"{array.ndim} dimension{'' if array.ndim == 1 else 's'}"
        raise ValueError(
            f"{called.name} has {dimensions}, expected 2: vectors x components"
            + ("; a single vector is array.reshape(1, -1)" if array.ndim == 1 and array.size else "")
        )
    if array.size == 0:
        raise ValueError(f"{called.name} is {array.shape[0]} x {array.shape[1]}, so it holds no vectors")
    if called.bits:
        array = _packed(array, called)
    native = array.dtype.newbyteorder("=")
    if native in DTYPES.values():
        return np.ascontiguousarray(array, dtype=native)
    to = called._replace(holder="stored vectors")
    converted = _converted(array, np.dtype(np.float32), to, silent=not _is_array(value), first=first)
    if native.kind in "iu" and _is_array(value):
        _say_once(
            str(native),
            "float32",
            f"{called.name} holds {native}, which is stored as float32; uint8 or int8 take a byte a component",
        )
    return np.ascontiguousarray(converted)


def _is_plain(value: Any) -> bool:
    """Whether ``value`` is an array of numpy of numbers, as far as its dtype says."""
    return type(value) is np.ndarray and value.dtype.kind != "O"


def is_path(value: Any) -> bool:
    """Whether ``value`` is the path of a file."""
    return isinstance(value, str | os.PathLike)


def path_or_vectors(value: Any, called: Called) -> Path | NDArray[Any]:
    """A path as it is, everything else as :func:`vectors` makes it."""
    return value if is_path(value) else vectors(value, called)


def _packed(array: NDArray[Any], called: Called) -> NDArray[Any]:
    """Truth values as bytes of eight bits, as ``numpy.packbits`` makes them; what else there is as it is."""
    if array.dtype != bool or array.ndim == 0:
        return array
    if array.shape[-1] % 8:
        raise ValueError(
            f"{called.name} have {array.shape[-1]} bits, expected a multiple of 8: zeros behind each "
            f"{called.one} change no distance"
        )
    return np.packbits(array, axis=-1)


def _none(array: NDArray[Any], dtype: np.dtype[Any], called: Called, dim: int | None) -> NDArray[Any]:
    """An array of no vectors, unless it is one of vectors without components, or of something else."""
    wrong = array.ndim == 2 and dim is not None and array.shape[1] not in (0, dim)
    if array.ndim > 2 or wrong or (array.ndim == 2 and array.shape[0] > 0):
        shape = " x ".join(str(length) for length in array.shape)
        raise ValueError(
            f"{called.name} are {shape}, expected {called.name} x {'dim' if dim is None else dim}"
        )
    return np.empty((0, dim or 0), dtype)


def _is_array(value: Any) -> bool:
    """Whether a caller has chosen the dtype: numbers in lists have none."""
    return not isinstance(value, list | tuple | range)


def _array(value: Any, called: Called) -> NDArray[Any]:
    """Whatever holds numbers as an array of numpy, not yet of an element of ours."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{called.name} is a masked array; expected all values: fill the masked ones with .filled(...), or "
            "leave their rows out"
        )
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = np.asarray(value)
    elif _is(value, "torch", "Tensor"):
        array = _of_tensor(value, called)
    else:
        held = frames.array(value, called)
        array = _of_others(value, called) if held is None else held
    if array.dtype == object and array.ndim == 1 and len(array) > 0:
        return _of_sequence(array.tolist(), called)
    return array


def _is(value: Any, module: str, kind: str) -> bool:
    """Whether ``value`` is of a class of a library that is loaded."""
    known = getattr(sys.modules.get(module), kind, None)
    return isinstance(known, type) and isinstance(value, known)


def _of_tensor(tensor: Any, called: Called) -> NDArray[Any]:
    """A tensor of PyTorch."""
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{called.name} is a tensor on the device {tensor.device}; expected one in this machine's memory: pass "
            f"{called.name}.cpu()"
        )
    torch = sys.modules["torch"]
    if tensor.is_quantized or tensor.layout != torch.strided:
        raise ValueError(
            f"{called.name} is a sparse or quantized tensor; expected a dense one: pass {called.name}.to_dense() "
            "or .dequantize()"
        )
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        # numpy has no such dtype of its own; float32 holds all its values.
        bf16 = DTYPES.get("bf16")
        tensor = tensor.float() if bf16 is None else tensor.view(torch.int16)
        return np.asarray(tensor.numpy() if bf16 is None else tensor.numpy().view(bf16))
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def _of_others(value: Any, called: Called) -> NDArray[Any]:
    """Lists, and whatever speaks a protocol that numpy knows."""
    name, kind = called.name, type(value).__name__
    device = getattr(value, "__dlpack_device__", None)
    if callable(device) and device()[0] not in HOST_MEMORY:
        raise ValueError(
            f"{name} is a {kind} on another device; expected one in this machine's memory: pass a copy there, "
            "by .cpu() or .get()"
        )
    if isinstance(value, list | tuple):
        return _of_sequence(value, called)
    if isinstance(value, Iterator):
        raise TypeError(
            f"{name} is a {kind}, of which no more is known than what comes next; expected all at once: pass "
            f"numpy.array(list({name}))"
        )
    try:
        if device is not None and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        array: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise TypeError(f"{name} is a {kind}, which numpy cannot make an array of: {error}") from error
    if array.dtype == object and array.ndim == 0:
        raise TypeError(
            f"{name} is of type {kind}; expected an array of two dimensions, a list, a tensor, a DataFrame, an "
            "Arrow column or the path of a file"
        )
    return array


def _of_sequence(value: Sequence[Any], called: Called) -> NDArray[Any]:
    """A list of numbers, or of rows of whatever kind."""
    plain = (int, float, list, tuple, range, str, bytes, np.generic)
    made: Sequence[Any] = value
    if any(not isinstance(row, plain) and type(row) is not np.ndarray for row in value):
        of_row = [Called(f"{called.name}[{at}]", called.one, called.holder) for at in range(len(value))]
        made = [
            row if row is None or isinstance(row, plain) else _array(row, of)
            for row, of in zip(value, of_row, strict=True)
        ]
    missing = next((at for at, row in enumerate(made) if row is None), None)
    if missing is not None:
        raise ValueError(f"{called.name}: row {missing} is missing (None); leave such rows out")
    try:
        array: NDArray[Any] = np.asarray(made)
    except ValueError as error:
        array = np.empty(0, object)
        cause: ValueError | None = error
    else:
        cause = None
    if array.dtype == object:
        lengths = [np.shape(row)[0] if np.ndim(row) else None for row in made if not _is_ragged(row)]
        odd = next((at for at, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is not None and None not in lengths:
            raise ValueError(
                f"{called.name}: row {odd} has another length ({lengths[odd]}) than row 0 ({lengths[0]}); expected "
                f"{called.name} x dim"
            ) from cause
        raise ValueError(f"{called.name}: not all that it holds is a number; {WANTED}") from cause
    return array


def _is_ragged(row: Any) -> bool:
    """Whether a row is itself of rows that are not equally long."""
    try:
        np.shape(row)
    except ValueError:
        return True
    return False


def _converted(
    array: NDArray[Any], dtype: np.dtype[Any], called: Called, silent: bool = False, first: int = 0
) -> NDArray[Any]:
    """``array`` as ``dtype``: all its values, or the nearest where floats lose digits. ``first`` is the number of
    its first row in messages."""
    native = array.dtype.newbyteorder("=")
    if native not in DTYPES.values() and native.kind not in "fiu":
        raise ValueError(_refused(native, called))
    if native == dtype:
        return array.astype(native)
    converted = np.empty(array.shape, dtype)
    step = max(1, BLOCK_VALUES // max(1, array[:1].size))
    lossy = False
    for start in range(0, len(array), step):
        some = array[start : start + step].astype(native, copy=False)
        with np.errstate(all="ignore"):
            made = some.astype(dtype)
        differs = (made != some) & (some == some)
        # Of floats only what becomes infinite is lost; of integers everything that differs, and what is no number.
        lost = ~(made == some) if dtype.kind in "iu" else differs & ~np.isfinite(made) & np.isfinite(some)
        if lost.any():
            at = tuple(int(index) for index in np.argwhere(lost)[0])
            row, column = (start + at[0], at[1]) if array.ndim == 2 else (0, start + at[0])
            raise ValueError(
                f"{called.name}: row {first + row}, dimension {column} is {some[at]}, which {dtype}, the element "
                f"of {called.holder}, cannot hold: scale and round the values first"
            )
        lossy = lossy or bool(differs.any())
        converted[start : start + step] = made
    if lossy and not silent:
        _say_once(
            str(native),
            str(dtype),
            f"{called.name} holds {native}, which is rounded to {dtype}; pass {called.name}.astype('{dtype}') to "
            "say so, and to save the copy",
        )
    return converted


def _refused(dtype: np.dtype[Any], called: Called) -> str:
    """Why no vectors are made of ``dtype``, and what to do."""
    advice = {
        "b": f"say what is meant with {called.name}.astype('uint8'), or take the metric 'hamming'",
        "c": "give real and imaginary parts as components of their own",
        "O": "rows of unequal length, missing values and what is no number have to go first",
        "U": f"make numbers of the text with {called.name}.astype('float32')",
        "S": f"make numbers of the text with {called.name}.astype('float32')",
    }.get(dtype.kind, f"convert it with {called.name}.astype(...)")
    return f"{called.name} holds {dtype}, {WANTED}: {advice}"


def _say_once(given: str, made: str, message: str) -> None:
    """Warns of a conversion, once a process."""
    if (given, made) in _said:
        return
    _said.add((given, made))
    # The caller is who is told, beyond this package and what runs its blocks.
    ours, level, frame = os.path.dirname(__file__), 1, sys._getframe()
    while frame.f_back is not None and (
        os.path.dirname(frame.f_code.co_filename) == ours or frame.f_code.co_filename == contextlib.__file__
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
