"""What the paper found beside what was found here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bathyal_bench.repro.document import table
from bathyal_bench.repro.numbers import fixed, percent
from bathyal_bench.repro.second_tier.verdicts import Range, word

Form = Callable[[float], str]


def times(value: float) -> str:
    """A ratio."""
    return fixed(value, 2)


def share(value: float) -> str:
    """A share, in whole per cents."""
    return percent(value, 0)


def plain(value: float) -> str:
    """A number with one digit at most."""
    return fixed(value, 1 if abs(value) < 100 else 0)


@dataclass(frozen=True)
class Finding:
    """One finding of the paper: what it is, where it was measured, and both ranges in words."""

    what: str
    place: str
    paper: str
    here: str
    verdict: str


def findings(
    what: str, place: str, paper: Range, here: Sequence[float], form: Form, reach: Sequence[Range] = ()
) -> list[Finding]:
    """``here`` beside the range that the paper gives; nothing where nothing was measured.

    ``reach`` is from where to where the repeats of each of ``here`` lie; counts and sizes have none.
    """
    ranges = reach or [(value, value) for value in here]
    known = [(value, span) for value, span in zip(here, ranges, strict=True) if math.isfinite(value)]
    if not known:
        return []
    values = [value for value, _ in known]
    told = f"{form(paper[0])} or more" if paper[1] == math.inf else between(form, *paper)
    verdict = word(values, paper, [span for _, span in known])
    return [Finding(what, place, told, between(form, min(values), max(values)), verdict)]


def between(form: Form, low: float, high: float) -> str:
    """A range in words; one number where both ends look the same."""
    return form(low) if form(low) == form(high) else f"{form(low)} to {form(high)}"


def findings_table(found: Iterable[Finding]) -> str:
    """All of them; what is not as there stands out."""
    plain_words = ("as there", "within the noise")
    rows = [
        [
            one.what,
            one.place,
            one.paper,
            one.here,
            one.verdict if one.verdict in plain_words else f"**{one.verdict}**",
        ]
        for one in found
    ]
    return table(["finding", "where", "the paper", "here", ""], rows)
