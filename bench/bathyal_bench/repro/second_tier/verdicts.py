"""Verdicts: results here compared with the ranges of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from bathyal_bench.repro.records import Record
from bathyal_bench.repro.verdicts import Verdict, within

Range = tuple[float, float]

# Divisors are at least this large.
LEAST = 1e-9

# The amplification of the paper's graph on second-tier memory, for 128-byte vectors (section 5).
PAPER_AMPLIFICATION = 1.7


def small_enough(amplification: float) -> Verdict:
    """Returns whether a graph is smaller than the paper's; sizes have no noise."""
    return Verdict.AGREES if amplification < PAPER_AMPLIFICATION else Verdict.DIFFERS


def word(here: Sequence[float], paper: Range, reach: Sequence[Range]) -> str:
    """Returns ``as in the paper``, ``within the noise``, ``lower``, ``higher``, or ``in part`` if only some
    differ.

    ``reach`` has the range of the repeats of each value of ``here``.
    """
    low, high = paper
    found = within(here, low, high, reach)
    if found is Verdict.AGREES:
        return "as in the paper"
    if found is Verdict.NOISE:
        return found.value
    if max(here) < low:
        return "lower"
    return "higher" if min(here) > high else "in part"


def quotients(above: Record, below: Record) -> Range:
    """Returns the range of the quotients of two throughputs, round by round.

    The reported quotient is that of the medians, so it belongs to the range whichever rounds the medians are
    from.
    """
    rounds = zip(above["samples"], below["samples"], strict=True)
    found = [one["qps"] / max(other["qps"], LEAST) for one, other in rounds]
    found.append(above["qps"] / max(below["qps"], LEAST))
    return min(found), max(found)
