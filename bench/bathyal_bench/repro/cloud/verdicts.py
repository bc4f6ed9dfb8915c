"""Whether what was measured is on the side that the paper says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bathyal_bench.repro.cloud.curves import STEP
from bathyal_bench.repro.verdicts import Verdict

# How far ratios of speeds are from 1 before one is said to be faster: speeds are of tens to a thousand queries.
SPEED_NOISE = 0.05
# How many more rounds lists may take in the mean before that is called growth.
SAME_ROUNDS = 0.5

WORDS = {Verdict.AGREES: "yes", Verdict.DIFFERS: "**no**", Verdict.NOISE: "within the noise", None: "-"}


def above(ratio: float, noise: float = 0.0) -> Verdict:
    """Whether a ratio is above 1; ``noise`` is how far it can be from 1 by chance, 0 for what is counted."""
    if ratio > 1.0 + noise:
        return Verdict.AGREES
    return Verdict.NOISE if noise and ratio >= 1.0 - noise else Verdict.DIFFERS


def below(ratio: float, noise: float = 0.0) -> Verdict:
    """Whether a ratio is below 1."""
    if ratio < 1.0 - noise:
        return Verdict.AGREES
    return Verdict.NOISE if noise and ratio <= 1.0 + noise else Verdict.DIFFERS


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on something that was said of several measurements: the worst of theirs."""
    worst = (Verdict.DIFFERS, Verdict.NOISE)
    return next((one for one in worst if one in verdicts), Verdict.AGREES)


def falls(recalls: Sequence[float]) -> Verdict:
    """Whether recalls fall from the first to the last and never rise; by less than the step between recalls \
that
    curves are compared at, that is not known."""
    rises = max((later - one for one, later in pairwise(recalls)), default=0.0)
    if rises > STEP or recalls[0] <= recalls[-1]:
        return Verdict.DIFFERS
    return Verdict.AGREES if recalls[0] - recalls[-1] > STEP else Verdict.NOISE


def grows(rounds_of_graph: Sequence[float], rounds_of_lists: Sequence[float]) -> Verdict:
    """Whether a graph takes more rounds the more vectors there are, and lists as many as ever; both from \
few vectors
    to many."""
    if rounds_of_graph[-1] <= rounds_of_graph[0]:
        return Verdict.DIFFERS
    more = rounds_of_lists[-1] - rounds_of_lists[0]
    if more <= 0.0:
        return Verdict.AGREES
    return Verdict.NOISE if more <= SAME_ROUNDS else Verdict.DIFFERS
