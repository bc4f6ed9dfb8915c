"""Whether so few hash tables are what theory asks for, and whether they find what it promises."""

from __future__ import annotations

import math

from bathyal_bench.repro.verdicts import Verdict, at_least

# What equation 5 promises of a radius: 1/2 - 1/e.
PROMISED = 0.5 - math.exp(-1)
# Standard deviations of a share that its noise is.
DEVIATIONS = 2.0


def enough_tables(tables: int, of_theory: float) -> Verdict:
    """Whether there are as many tables as equation 5 asks for; both are exact."""
    return at_least(tables, of_theory)


def found_as_promised(found: float, queries: int) -> Verdict:
    """Whether at least as large a share of the queries found something near as equation 5 promises.

    The noise is that of a share of so many queries.
    """
    deviation = math.sqrt(PROMISED * (1.0 - PROMISED) / max(queries, 1))
    return at_least(found, PROMISED, DEVIATIONS * deviation / max(found, 1e-9))


def about_tables(tables: int, of_theory: float, found: float, queries: int) -> str:
    """What follows from both for the reader."""
    if enough_tables(tables, of_theory) is Verdict.AGREES:
        return "and so many tables are what equation 5\nasks for."
    made_up = {
        Verdict.AGREES: "gamma and S make up for it",
        Verdict.NOISE: "gamma and S make up for it within the noise",
        Verdict.DIFFERS: "gamma and S do not make up for it",
    }[found_as_promised(found, queries)]
    return (
        "so so few tables are a budget, not what equation 5\n"
        f"asks for; {made_up}, and what is left of the promise is the number above."
    )
