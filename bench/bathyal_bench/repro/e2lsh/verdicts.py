"""Verdicts on the number of hash tables, and on the share of queries that found something near."""

from __future__ import annotations

import math

from bathyal_bench.repro.verdicts import Verdict, at_least

# The success at a radius that equation 5 promises: 1/2 - 1/e.
PROMISED = 0.5 - math.exp(-1)
# Noise of a share, in standard deviations.
DEVIATIONS = 2.0


def enough_tables(tables: int, of_theory: float) -> Verdict:
    """Compares the number of tables with that of equation 5; both are exact."""
    return at_least(tables, of_theory)


def found_as_promised(found: float, queries: int) -> Verdict:
    """Compares the share of queries that found a near vector with the promise of equation 5.

    The noise is that of a share of so many queries.
    """
    deviation = math.sqrt(PROMISED * (1.0 - PROMISED) / max(queries, 1))
    return at_least(found, PROMISED, DEVIATIONS * deviation / max(found, 1e-9))


def about_tables(tables: int, of_theory: float, found: float, queries: int) -> str:
    """States the conclusion from both for the reader."""
    if enough_tables(tables, of_theory) is Verdict.AGREES:
        return "and the tables are as many as\nequation 5 requires."
    compensation = {
        Verdict.AGREES: "gamma and S compensate for that",
        Verdict.NOISE: "gamma and S compensate for that within the noise",
        Verdict.DIFFERS: "gamma and S do not compensate for that",
    }[found_as_promised(found, queries)]
    return (
        "and there are fewer tables, as a budget, than equation 5\n"
        f"requires; {compensation}. The number above is the success that is still promised."
    )
