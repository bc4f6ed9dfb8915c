"""Verdicts on the claims of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bathyal_bench.repro.cloud.curves import STEP
from bathyal_bench.repro.verdicts import Verdict

# Least distance of a ratio of speeds from 1 for a verdict: speeds come from tens to a thousand queries.
SPEED_NOISE = 0.05
# Most additional rounds of lists, in the mean, that do not count as growth.
SAME_ROUNDS = 0.5

WORDS = {Verdict.AGREES: "yes", Verdict.DIFFERS: "**no**", Verdict.NOISE: "within the noise", None: "-"}


def above(ratio: float, noise: float = 0.0) -> Verdict:
    """Compares a ratio with 1; ``noise`` is its possible distance from 1 by chance, 0 for counters."""
    if ratio > 1.0 + noise:
        return Verdict.AGREES
    return Verdict.NOISE if noise and ratio >= 1.0 - noise else Verdict.DIFFERS


def below(ratio: float, noise: float = 0.0) -> Verdict:
    """Compares a ratio with 1 from above."""
    if ratio < 1.0 - noise:
        return Verdict.AGREES
    return Verdict.NOISE if noise and ratio <= 1.0 + noise else Verdict.DIFFERS


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns the verdict on a claim about several measurements: the worst of their verdicts."""
    worst = (Verdict.DIFFERS, Verdict.NOISE)
    return next((one for one in worst if one in verdicts), Verdict.AGREES)


def falls(recalls: Sequence[float]) -> Verdict:
    """Checks that recalls fall from the first to the last and never rise.

    A fall of less than the step between compared recalls is noise.
    """
    rises = max((later - one for one, later in pairwise(recalls)), default=0.0)
    if rises > STEP or recalls[0] <= recalls[-1]:
        return Verdict.DIFFERS
    return Verdict.AGREES if recalls[0] - recalls[-1] > STEP else Verdict.NOISE


def grows(rounds_of_graph: Sequence[float], rounds_of_lists: Sequence[float]) -> Verdict:
    """Checks that a graph takes more rounds with more vectors, and lists do not.

    Both have rounds from few to many vectors.
    """
    if rounds_of_graph[-1] <= rounds_of_graph[0]:
        return Verdict.DIFFERS
    more = rounds_of_lists[-1] - rounds_of_lists[0]
    if more <= 0.0:
        return Verdict.AGREES
    return Verdict.NOISE if more <= SAME_ROUNDS else Verdict.DIFFERS
