"""Formatting of numbers in reports."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from statistics import median as middle

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def fixed(value: float | None, digits: int = 0) -> str:
    """Formats a number with ``digits`` decimals, halves to even. None, JSON's ``null``, stands for NaN.

    >>> fixed(2.5), fixed(0.125, 2), fixed(-0.04, 1), fixed(math.nan, 1), fixed(math.inf), fixed(None)
    ('2', '0.12', '-0.0', 'NaN', 'inf', 'NaN')
    """
    return "NaN" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def shown(value: float) -> str:
    """Formats a number with all its digits, without an exponent.

    >>> shown(0.03), shown(1.0), shown(1e-7), shown(2.5e9), shown(3)
    ('0.03', '1', '0.0000001', '2500000000', '3')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return fixed(value)
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None, digits: int = 1) -> str:
    """Formats a share in per cent; a dash for None.

    >>> percent(0.1234), percent(None), percent(0.5, 0)
    ('12.3%', '-', '50%')
    """
    return "-" if share is None else f"{fixed(100.0 * share, digits)}%"


def median(values: Iterable[float]) -> float:
    """Returns the median of ``values``; 0 if there are none."""
    found = list(values)
    return middle(found) if found else 0.0


def size(count: int) -> str:
    """Formats bytes with three digits and a decimal unit.

    >>> size(0), size(999), size(12_750_000), size(9_995_000), size(999_500), size(3 * 10**9)
    ('0 B', '999 B', '12.8 MB', '10.0 MB', '1.00 MB', '3.00 GB')
    """
    if count < 1000:
        return f"{count} B"
    power = len(f"{count}") - 1
    unit, digits = power // 3, 2 - power % 3
    step = 10 ** (3 * unit - digits)
    steps = (count + step // 2) // step
    if steps == 1000:
        # Rounding gave one digit more: 9.995 MB become 10.0 MB, and 999.5 kB become 1.00 MB.
        steps = 100
        unit, digits = (unit + 1, 2) if digits == 0 else (unit, digits - 1)
    return f"{steps / 10**digits:.{digits}f} {UNITS[unit]}"
