"""Conversion of callers' vectors to the form that the compiled module takes: C-contiguous numpy arrays.

No library is imported for this, because a caller who passes a tensor, a frame or a column has imported its
library.
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
"""Values that are converted at once, so that a large array is not copied several times as a whole."""
HOST_MEMORY = (1, 3)
"""Device types of DLPack whose memory the processor can read: its own, and pages pinned for CUDA."""
WANTED = "expected float32, float16, uint8 or int8"

_warned: set[tuple[str, str]] = set()
"""Conversions that callers have been warned of."""


class ArgumentLabel(NamedTuple):
    """The names by which messages refer to an argument."""

    name: str
    """The name of the argument."""
    one: str
    """The name of one of its vectors."""
    holder: str = "the index"
    """The object whose element the argument must have."""
    bits: bool = False
    """True if its bytes hold eight bits each; booleans are then packed."""


QUERIES = ArgumentLabel("queries", "query")
VECTORS = ArgumentLabel("vectors", "vector")


def rows(
    value: Any, element: str, label: ArgumentLabel = QUERIES, dim: int | None = None
) -> tuple[NDArray[Any], bool]:
    """Returns ``value`` as an array of ``element``, and True if it is a single vector (of one dimension).

    A conversion without loss is silent; if floats lose digits, there is a warning the first time. Values that
    an integer or a narrower float cannot hold are refused. Without vectors, the array is ``0 x dim``.

    >>> rows([[1, 2], [3, 4]], "u8")
    (array([[1, 2], [3, 4]], dtype=uint8), False)
    >>> rows([1.5, 2], "u8")
    Traceback (most recent call last):
    ValueError: queries: row 0, dimension 0 is 1.5, which uint8, the element of the index, cannot hold: scale and
    round the values first
    """
    # The usual case goes first, because testing for the others takes longer than the rest of this function.
    array = value if _is_plain(value) else _array(value, label)
    dtype, width = columns(element, dim or 0)
    if element == "b1" or label.bits:
        array = _packed(array, label)
    if array.size == 0:
        return _empty(array, dtype, label, width or None), False
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{label.name} have {array.ndim} dimensions, expected 2 ({label.name} x dim) or 1 (one {label.one})"
        )
    if array.dtype != dtype:
        array = _converted(array, dtype, label, silent=not _is_array(value))
    return np.ascontiguousarray(array), array.ndim == 1


def vectors(value: Any, label: ArgumentLabel, first: int = 0) -> NDArray[Any]:
    """Returns ``value`` as an array of ``vectors x dim``: in its own dtype if that is an element of
    Bathyal's, else as float32. ``first`` is the number of its first row in messages.

    >>> vectors([[0, 1], [2, 3]], ArgumentLabel("data", "vector")).dtype
    dtype('float32')
    """
    array = value if _is_plain(value) else _array(value, label)
    if array.ndim != 2:
        dimensions = f"{array.ndim} dimension{'' if array.ndim == 1 else 's'}"
        raise ValueError(
            f"{label.name} has {dimensions}, expected 2: vectors x components"
            + ("; a single vector is array.reshape(1, -1)" if array.ndim == 1 and array.size else "")
        )
    if array.size == 0:
        raise ValueError(f"{label.name} is {array.shape[0]} x {array.shape[1]}, so it holds no vectors")
    if label.bits:
        array = _packed(array, label)
    native = array.dtype.newbyteorder("=")
    if native in DTYPES.values():
        return np.ascontiguousarray(array, dtype=native)
    to = label._replace(holder="stored vectors")
    converted = _converted(array, np.dtype(np.float32), to, silent=not _is_array(value), first=first)
    if native.kind in "iu" and _is_array(value):
        _warn_once(
            str(native),
            "float32",
            f"{label.name} holds {native}, which is stored as float32; uint8 or int8 take one byte per component",
        )
    return np.ascontiguousarray(converted)


def _is_plain(value: Any) -> bool:
    """Returns True if ``value`` is a numpy array whose dtype is not object."""
    return type(value) is np.ndarray and value.dtype.kind != "O"


def is_path(value: Any) -> bool:
    """Returns True if ``value`` is a path."""
    return isinstance(value, str | os.PathLike)


def path_or_vectors(value: Any, label: ArgumentLabel) -> Path | NDArray[Any]:
    """Returns a path unchanged, and everything else as :func:`vectors` converts it."""
    return value if is_path(value) else vectors(value, label)


def _packed(array: NDArray[Any], label: ArgumentLabel) -> NDArray[Any]:
    """Packs booleans into bytes of eight bits, as ``numpy.packbits`` does; returns other arrays unchanged."""
    if array.dtype != bool or array.ndim == 0:
        return array
    if array.shape[-1] % 8:
        raise ValueError(
            f"{label.name} have {array.shape[-1]} bits, expected a multiple of 8: zeros behind each "
            f"{label.one} change no distance"
        )
    return np.packbits(array, axis=-1)


def _empty(array: NDArray[Any], dtype: np.dtype[Any], label: ArgumentLabel, dim: int | None) -> NDArray[Any]:
    """Returns an empty array, unless the shape of ``array`` is wrong."""
    wrong = array.ndim == 2 and dim is not None and array.shape[1] not in (0, dim)
    if array.ndim > 2 or wrong or (array.ndim == 2 and array.shape[0] > 0):
        shape = " x ".join(str(length) for length in array.shape)
        raise ValueError(f"{label.name} are {shape}, expected {label.name} x {'dim' if dim is None else dim}")
    return np.empty((0, dim or 0), dtype)


def _is_array(value: Any) -> bool:
    """Returns True if the caller has chosen the dtype, which lists do not have."""
    return not isinstance(value, list | tuple | range)


def _array(value: Any, label: ArgumentLabel) -> NDArray[Any]:
    """Returns any object with numbers as a numpy array, whose dtype is not converted yet."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{label.name} is a masked array; expected all values: fill the masked ones with .filled(...), or "
            "leave their rows out"
        )
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = np.asarray(value)
    elif _is_instance(value, "torch", "Tensor"):
        array = _of_tensor(value, label)
    else:
        held = frames.array(value, label)
        array = _of_others(value, label) if held is None else held
    if array.dtype == object and array.ndim == 1 and len(array) > 0:
        return _of_sequence(array.tolist(), label)
    return array


def _is_instance(value: Any, module: str, kind: str) -> bool:
    """Returns True if ``value`` is of the class ``kind`` of a loaded module."""
    known = getattr(sys.modules.get(module), kind, None)
    return isinstance(known, type) and isinstance(value, known)


def _of_tensor(tensor: Any, label: ArgumentLabel) -> NDArray[Any]:
    """Converts a tensor of PyTorch."""
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{label.name} is a tensor on the device {tensor.device}; expected one in this machine's memory: pass "
            f"{label.name}.cpu()"
        )
    torch = sys.modules["torch"]
    if tensor.is_quantized or tensor.layout != torch.strided:
        raise ValueError(
            f"{label.name} is a sparse or quantized tensor; expected a dense one: pass {label.name}.to_dense() "
            "or .dequantize()"
        )
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        # numpy has no bfloat16 of its own; float32 holds all its values.
        bf16 = DTYPES.get("bf16")
        tensor = tensor.float() if bf16 is None else tensor.view(torch.int16)
        return np.asarray(tensor.numpy() if bf16 is None else tensor.numpy().view(bf16))
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def _of_others(value: Any, label: ArgumentLabel) -> NDArray[Any]:
    """Converts lists, and objects with a protocol that numpy knows."""
    name, kind = label.name, type(value).__name__
    device = getattr(value, "__dlpack_device__", None)
    if callable(device) and device()[0] not in HOST_MEMORY:
        raise ValueError(
            f"{name} is a {kind} on another device; expected one in this machine's memory: pass a copy there, "
            "by .cpu() or .get()"
        )
    if isinstance(value, list | tuple):
        return _of_sequence(value, label)
    if isinstance(value, Iterator):
        raise TypeError(
            f"{name} is a {kind}, which yields its values one by one; expected all at once: pass "
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


def _of_sequence(value: Sequence[Any], label: ArgumentLabel) -> NDArray[Any]:
    """Converts a list of numbers, or of rows of any kind."""
    plain = (int, float, list, tuple, range, str, bytes, np.generic)
    made: Sequence[Any] = value
    if any(not isinstance(row, plain) and type(row) is not np.ndarray for row in value):
        of_row = [ArgumentLabel(f"{label.name}[{at}]", label.one, label.holder) for at in range(len(value))]
        made = [
            row if row is None or isinstance(row, plain) else _array(row, of)
            for row, of in zip(value, of_row, strict=True)
        ]
    missing = next((at for at, row in enumerate(made) if row is None), None)
    if missing is not None:
        raise ValueError(f"{label.name}: row {missing} is missing (None); leave such rows out")
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
                f"{label.name}: row {odd} has another length ({lengths[odd]}) than row 0 ({lengths[0]}); expected "
                f"{label.name} x dim"
            ) from cause
        raise ValueError(f"{label.name}: it holds values that are not numbers; {WANTED}") from cause
    return array


def _is_ragged(row: Any) -> bool:
    """Returns True if a row consists of rows of different lengths."""
    try:
        np.shape(row)
    except ValueError:
        return True
    return False


def _converted(
    array: NDArray[Any], dtype: np.dtype[Any], label: ArgumentLabel, silent: bool = False, first: int = 0
) -> NDArray[Any]:
    """Converts ``array`` to ``dtype``; floats may be rounded. ``first`` is the number of its first row in
    messages."""
    native = array.dtype.newbyteorder("=")
    if native not in DTYPES.values() and native.kind not in "fiu":
        raise ValueError(_refused(native, label))
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
        # For floats, only values that become infinite are lost; for integers, all that differ, and NaN.
        lost = ~(made == some) if dtype.kind in "iu" else differs & ~np.isfinite(made) & np.isfinite(some)
        if lost.any():
            at = tuple(int(index) for index in np.argwhere(lost)[0])
            row, column = (start + at[0], at[1]) if array.ndim == 2 else (0, start + at[0])
            raise ValueError(
                f"{label.name}: row {first + row}, dimension {column} is {some[at]}, which {dtype}, the element "
                f"of {label.holder}, cannot hold: scale and round the values first"
            )
        lossy = lossy or bool(differs.any())
        converted[start : start + step] = made
    if lossy and not silent:
        _warn_once(
            str(native),
            str(dtype),
            f"{label.name} holds {native}, which is rounded to {dtype}; pass {label.name}.astype('{dtype}') to "
            "say so, and to avoid the copy",
        )
    return converted


def _refused(dtype: np.dtype[Any], label: ArgumentLabel) -> str:
    """Returns the message for a ``dtype`` that cannot be converted, with advice."""
    advice = {
        "b": f"convert it with {label.name}.astype('uint8'), or take the metric 'hamming'",
        "c": "give real and imaginary parts as components of their own",
        "O": "remove rows of unequal length, missing values and values that are not numbers first",
        "U": f"convert the text to numbers with {label.name}.astype('float32')",
        "S": f"convert the text to numbers with {label.name}.astype('float32')",
    }.get(dtype.kind, f"convert it with {label.name}.astype(...)")
    return f"{label.name} holds {dtype}, {WANTED}: {advice}"


def _warn_once(given: str, made: str, message: str) -> None:
    """Warns of a conversion, once per process."""
    if (given, made) in _warned:
        return
    _warned.add((given, made))
    # The warning is for the caller's line, outside this package and contextlib.
    ours, level, frame = os.path.dirname(__file__), 1, sys._getframe()
    while frame.f_back is not None and (
        os.path.dirname(frame.f_code.co_filename) == ours or frame.f_code.co_filename == contextlib.__file__
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
