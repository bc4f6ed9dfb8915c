"""How what was found compares with the ranges that the paper gives."""

from __future__ import annotations

from collections.abc import Sequence

from bathyal_bench.repro.records import Record
from bathyal_bench.repro.verdicts import Verdict, within

Range = tuple[float, float]

# Divisors are at least so much.
LEAST = 1e-9

# The amplification that the paper's graph comes to on second-tier memory, for 128-byte vectors (section 5).
PAPER_AMPLIFICATION = 1.7


def small_enough(amplification: float) -> Verdict:
    """Whether a graph is smaller than the paper's; sizes have no noise."""
    return Verdict.AGREES if amplification < PAPER_AMPLIFICATION else Verdict.DIFFERS


def word(here: Sequence[float], paper: Range, reach: Sequence[Range]) -> str:
    """``as there``, ``within the noise``, ``lower``, ``higher``, or ``in part`` where only some differ.

    ``reach`` is from where to where the repeats of each of ``here`` lie.
    """
    low, high = paper
    found = within(here, low, high, reach)
    if found is Verdict.AGREES:
        return "as there"
    if found is Verdict.NOISE:
        return found.value
    if max(here) < low:
        return "lower"
    return "higher" if min(here) > high else "in part"


def quotients(above: Record, below: Record) -> Range:
    """From where to where the quotients of two throughputs lie, round by round.

    The reported quotient is that of the medians; it belongs to the range, whichever rounds these are of.
    """
    rounds = zip(above["samples"], below["samples"], strict=True)
    found = [one["qps"] / max(other["qps"], LEAST) for one, other in rounds]
    found.append(above["qps"] / max(below["qps"], LEAST))
    return min(found), max(found)
