"""The paper's answers A1 to A3, compared with the measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bathyal_bench.repro.cloud import verdicts
from bathyal_bench.repro.cloud.curves import (
    Counter,
    Values,
    bottom,
    crossing,
    crossing_words,
    ratio,
    ratios,
    top,
)
from bathyal_bench.repro.cloud.measured import (
    BEAM,
    CONCURRENCIES,
    DENSE,
    ENDS,
    FEWER,
    FINE,
    GRAPH,
    SPANN,
    Measured,
    beam_width,
)
from bathyal_bench.repro.cloud.verdicts import SPEED_NOISE, above, below
from bathyal_bench.repro.records import Record
from bathyal_bench.repro.verdicts import Verdict

# Dimensions that differ by at most this share count as equal.
SAME_DIM = 0.25
# Cache size for comparisons of policies and parameters, as a divisor of the index size.
PART = 4
ELEMENT_BITS = {"f32": 32, "f16": 16, "bf16": 16, "u8": 8, "i8": 8, "b1": 1}
# The finding in words, and its verdict; None without a verdict.
Found = tuple[str, Verdict | None]
NOT_MEASURED: Found = ("not measured", None)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the finding here."""

    answer: str
    claim: str
    here: str
    verdict: Verdict | None


def all_claims(measured: Measured) -> list[Claim]:
    """Returns all claims of the paper that the measurements can be compared with."""
    answers = {"A1": what_for_what(measured), "A2": design(measured), "A3": caching(measured)}
    return [
        Claim(answer, claim, here, verdict)
        for answer, found in answers.items()
        for claim, (here, verdict) in found
    ]


def of_ratio(
    what: str, times: float | None, verdict: Callable[[float, float], Verdict], noise: float
) -> Found:
    """Describes a ratio, with its verdict."""
    return NOT_MEASURED if times is None else (f"{what}: {times:.2f} times", verdict(times, noise))


def what_for_what(measured: Measured) -> list[tuple[str, Found]]:
    """Returns the claims of answer A1."""
    concurrencies = measured.concurrencies(CONCURRENCIES) or [1]
    many = concurrencies[-1]
    graph, lists = measured.both(many)
    high = top(graph, lists)
    what = f"queries/s, graph over spann with {many} at once at {high or 0.0:.3f}"
    at_top = None if high is None else ratio(graph, lists, high)
    return [
        (
            "SPANN is faster for one query at a time, at all recalls (figure 7)",
            alone(measured, concurrencies[0]),
        ),
        (
            "DiskANN is faster at high recall and many queries at once (figure 7)",
            of_ratio(what, at_top, above, SPEED_NOISE),
        ),
        (
            "the more queries at once, the lower the recall from which DiskANN is ahead",
            crossings(measured, concurrencies),
        ),
        (
            "fewer dimensions shift the balance to SPANN (figures 10 and 11)",
            shift(measured, has_fewer_dimensions),
        ),
        ("smaller elements shift the balance to SPANN (figure 12)", shift(measured, has_smaller_elements)),
        ("larger sets shift the balance to SPANN: rounds of a graph grow (figure 13)", growth(measured)),
    ]


def alone(measured: Measured, concurrency: int) -> Found:
    """Compares lists and graph at every recall with few concurrent queries."""
    graph, lists = measured.both(concurrency)
    here = f"graph ahead with {concurrency} at once: {crossing_words(crossing(graph, lists))}"
    compared = [times for _, times in ratios(graph, lists)]
    return here, below(max(compared), SPEED_NOISE) if compared else None


def crossings(measured: Measured, concurrencies: list[int]) -> Found:
    """Checks that the recall from which the graph is faster falls with the number of concurrent queries."""
    found = [crossing(*measured.both(concurrency)) for concurrency in concurrencies]
    words = [f"{c}: {crossing_words(recall)}" for c, recall in zip(concurrencies, found, strict=True)]
    recalls = [recall for recall in found if recall is not None]
    return "; ".join(words), verdicts.falls(recalls) if len(recalls) == len(found) else None


def has_fewer_dimensions(of: Record, than: Record) -> bool:
    return bool(of["element"] == than["element"] and of["dim"] < than["dim"])


def has_smaller_elements(of: Record, than: Record) -> bool:
    dims = of["dim"] / max(than["dim"], 1)
    bits, more = ELEMENT_BITS[of["element"]], ELEMENT_BITS[than["element"]]
    return bits < more and abs(dims - 1.0) <= SAME_DIM


def shift(measured: Measured, is_pair: Callable[[Record, Record], bool]) -> Found:
    """Checks that the graph's lead is smaller in one set than in another; ``is_pair`` selects the two
    sets.
    """
    many = (measured.concurrencies(ENDS) or [1])[-1]
    sets = measured.run["sets"]
    pair = next(((of, than) for of in sets for than in sets if is_pair(of, than)), None)
    if pair is None:
        return NOT_MEASURED
    both = [measured.both(many, of_set=one["name"]) for one in pair]
    tops = [top(*curves) for curves in both]
    if None in tops:
        return NOT_MEASURED
    recall = min([1.0, *(one for one in tops if one is not None)])
    of_this, of_that = (ratio(graph, lists, recall) for graph, lists in both)
    if of_this is None or of_that is None:
        return NOT_MEASURED
    here = f"graph over spann with {many} at once at {recall:.3f}: "
    here += f"{of_this:.2f} times in `{pair[0]['name']}`, {of_that:.2f} in `{pair[1]['name']}`"
    return here, below(of_this / max(of_that, 1e-12), SPEED_NOISE)


def growth(measured: Measured) -> Found:
    """Checks that a graph's rounds grow with the number of vectors, and the rounds of lists do not."""
    graph, lists = measured.growth(GRAPH), measured.growth(SPANN)
    if len(graph) < 2 or not lists:
        return NOT_MEASURED
    of_graph, of_lists = ([points[0]["rounds"], points[-1]["rounds"]] for points in (graph, lists))
    here = f"{graph[0]['vectors']} to {graph[-1]['vectors']} vectors: rounds of the graph "
    here += f"{of_graph[0]:.1f} to {of_graph[1]:.1f}, of the lists {of_lists[0]:.1f} to {of_lists[1]:.1f}"
    return here, verdicts.grows(of_graph, of_lists)


def fast(changed: Values, usual: Values, high: bool = True) -> float | None:
    """Returns the ratio of the two at the highest recall that both reach, or at the lowest."""
    recall = top(changed, usual) if high else bottom(changed, usual)
    return None if recall is None else ratio(changed, usual, recall)


def design(measured: Measured) -> list[tuple[str, Found]]:
    """Returns the claims of answer A2."""
    ends = measured.concurrencies(ENDS) or [1]
    few, many = ends[0], ends[-1]

    def speed(index: str, usual: str, concurrency: int, high: bool = True) -> float | None:
        return fast(measured.speeds(index, concurrency), measured.speeds(usual, concurrency), high)

    def count(index: str, usual: str, of: Counter) -> float | None:
        return fast(measured.counted(index, of), measured.counted(usual, of))

    def wide(concurrency: int) -> float | None:
        wide, usual = (measured.speeds(GRAPH, concurrency, beam) for beam in (64, BEAM))
        return fast(wide, usual)

    def speed_of(what: str, concurrency: int) -> str:
        return f"queries/s{what} with {concurrency} at once"

    return [
        (
            "twice the centroids read fewer bytes for a recall (figure 15: 1.47 times fewer)",
            of_ratio("bytes", count(FINE, SPANN, lambda point: point["bytes"]), below, 0.0),
        ),
        (
            "twice the centroids are faster at high recall and many queries at once (figure 14: up to 3.14 times)",
            of_ratio(speed_of("", many), speed(FINE, SPANN, many), above, SPEED_NOISE),
        ),
        (
            "twice the centroids are slower at low recall and few queries at once (figure 14)",
            of_ratio(speed_of("", few), speed(FINE, SPANN, few, high=False), below, SPEED_NOISE),
        ),
        (
            "fewer replicas are slower for a recall (figure 16: 1.92 times with 2)",
            of_ratio(speed_of("", few), speed(FEWER[2], SPANN, few), below, SPEED_NOISE),
        ),
        (
            "a denser graph takes fewer rounds (figure 18)",
            of_ratio("rounds", count(DENSE, GRAPH, lambda point: point["rounds"]), below, 0.0),
        ),
        (
            "a denser graph is faster with few and with many queries at once (figure 17: up to 1.85 times)",
            denser(few, many, [speed(DENSE, GRAPH, concurrency) for concurrency in (few, many)]),
        ),
        (
            "a wide beam is faster at high recall and few queries at once (figure 19: 1.85 times with 64)",
            of_ratio(speed_of(", W 64 over 16,", few), wide(few), above, SPEED_NOISE),
        ),
        (
            "a wide beam is slower with many queries at once (figure 19: GET limit)",
            of_ratio(speed_of(", W 64 over 16,", many), wide(many), below, SPEED_NOISE),
        ),
    ]


def denser(few: int, many: int, speeds: list[float | None]) -> Found:
    """Checks that a denser graph is faster with few and with many concurrent queries."""
    found = [times for times in speeds if times is not None]
    if len(found) < 2:
        return NOT_MEASURED
    here = f"queries/s with {few} at once {found[0]:.2f} times, with {many} {found[1]:.2f}"
    return here, verdicts.all_of([above(times, SPEED_NOISE) for times in found])


def caching(measured: Measured) -> list[tuple[str, Found]]:
    """Returns the claims of answer A3."""
    graph, lists = cache(measured, GRAPH, BEAM), cache(measured, SPANN)
    narrow, wide = cache(measured, GRAPH, 4), cache(measured, GRAPH, 64)
    fewer = cache(measured, FEWER[2])
    hits = [one["hit_rate"] if one else None for one in (fewer, lists)]
    by_round = [first_and_later(graph)[place] for place in (0, 1)]
    of_graph = [saved(graph), graph["hit_rate"] if graph else None]
    return [
        (
            "fewer replicas raise the hit rate of lists in a cache of one size (figure 24)",
            compare(("hit rate with 2 replicas", "with 8"), hits, above, 0.0),
        ),
        (
            "the first rounds of a graph hit most (figure 23)",
            compare(("first round", "later ones"), by_round, above, 0.0),
        ),
        (
            "a graph saves fewer rounds than its hit rate says (figure 6)",
            compare(("rounds saved", "hit rate"), of_graph, below, 0.0),
        ),
        (
            "the wider the beam, the fewer rounds a cache saves (figure 25)",
            compare(("rounds saved with W 64", "with W 4"), [saved(wide), saved(narrow)], below, 0.0),
        ),
        (
            "lists gain more from a cache than a graph with few queries at once (figure 20)",
            compare(
                ("computed gain of lists", "of the graph"), [gain(lists), gain(graph)], above, SPEED_NOISE
            ),
        ),
    ]


def compare(
    names: tuple[str, str],
    numbers: list[float | None],
    verdict: Callable[[float, float], Verdict],
    noise: float,
) -> Found:
    """Describes two numbers, with the verdict on their ratio."""
    one, other = numbers
    if one is None or other is None:
        return NOT_MEASURED
    return f"{names[0]} {one:.2f}, {names[1]} {other:.2f}", verdict(one / max(other, 1e-12), noise)


def cache(measured: Measured, index: str, beam: int | None = None) -> Record | None:
    """Returns the record of a cache of the compared size."""
    selected = (index, beam, "slru", PART)
    found = (
        one
        for one in measured.cached
        if (one["index"], beam_width(one["effort"]), one["policy"], one["part"]) == selected
    )
    return next(found, None)


def saved(cached: Record | None) -> float | None:
    """Returns the share of a search's rounds that need no request."""
    return None if cached is None else cached["saved_waves"] / max(cached["waves"], 1e-9)


def gain(cached: Record | None) -> float | None:
    """Returns the factor by which a cache speeds up few concurrent queries, by the equations."""
    if cached is None or not cached["computed_qps"]:
        return None
    _, without, with_cache = cached["computed_qps"][0]
    return with_cache / max(without, 1e-9)


def first_and_later(cached: Record | None) -> tuple[float | None, float | None]:
    """Returns the hit rate of the first round, and the mean hit rate of later ones."""
    rates = cached["by_wave"] if cached else []
    later = rates[1:]
    return rates[0] if rates else None, sum(later) / len(later) if later else None
