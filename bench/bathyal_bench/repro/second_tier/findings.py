"""The paper's findings, compared with the results here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bathyal_bench.repro.document import table
from bathyal_bench.repro.numbers import fixed, percent
from bathyal_bench.repro.second_tier.verdicts import Range, word

Form = Callable[[float], str]


def times(value: float) -> str:
    """Formats a ratio."""
    return fixed(value, 2)


def share(value: float) -> str:
    """Formats a share in whole per cent."""
    return percent(value, 0)


def plain(value: float) -> str:
    """Formats a number with at most one decimal place."""
    return fixed(value, 1 if abs(value) < 100 else 0)


@dataclass(frozen=True)
class Finding:
    """A finding of the paper: what it is, where it was measured, and both ranges in words."""

    what: str
    place: str
    paper: str
    here: str
    verdict: str


def findings(
    what: str, place: str, paper: Range, here: Sequence[float], form: Form, reach: Sequence[Range] = ()
) -> list[Finding]:
    """Compares ``here`` with the range of the paper; returns nothing if nothing was measured.

    ``reach`` has the range of the repeats of each value of ``here``; counts and sizes have none.
    """
    ranges = reach or [(value, value) for value in here]
    known = [(value, span) for value, span in zip(here, ranges, strict=True) if math.isfinite(value)]
    if not known:
        return []
    values = [value for value, _ in known]
    paper_words = f"{form(paper[0])} or more" if paper[1] == math.inf else between(form, *paper)
    verdict = word(values, paper, [span for _, span in known])
    return [Finding(what, place, paper_words, between(form, min(values), max(values)), verdict)]


def between(form: Form, low: float, high: float) -> str:
    """Returns a range in words; one number if both ends look the same."""
    return form(low) if form(low) == form(high) else f"{form(low)} to {form(high)}"


def findings_table(found: Iterable[Finding]) -> str:
    """Returns the table of all findings; verdicts that differ from the paper are bold."""
    agreeing = ("as in the paper", "within the noise")
    rows = [
        [
            one.what,
            one.place,
            one.paper,
            one.here,
            one.verdict if one.verdict in agreeing else f"**{one.verdict}**",
        ]
        for one in found
    ]
    return table(["finding", "where", "the paper", "here", ""], rows)
