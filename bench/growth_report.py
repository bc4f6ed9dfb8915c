"""The report on growth: tables and fitted exponents, from records alone."""

import math

SETS = {
    "real": "the million real vectors",
    "blended": "blends of near vectors, which are not near copies (`bench/suites/src/blend.rs`)",
    "perturbed": "copies of the million, each component changed by up to 3 (`bench/suites/src/perturb.rs`)",
}
PHASES = ("navigate", "scan", "read", "rerank")
# Fitted figures of builds and of searches: a title, and the figure of a record.
BUILT = {
    "build, seconds": lambda one: one["build_seconds"],
    "build, processor seconds": lambda one: None if one["continued"] else one["processor_seconds"],
    "build, peak memory": lambda one: one["peak_rss_bytes"],
    "index, bytes": lambda one: one["index_bytes"],
}
SEARCHED = {
    "processor time per query": lambda one: one["processor_us_per_query"],
    **{
        f"of which {phase}": lambda one, phase=phase: (one["phase_us_per_query"] or {}).get(phase)
        for phase in PHASES
        if phase != "read"
    },
    "reads": lambda one: one["reads_per_query"],
    "rounds": lambda one: one["hops_per_query"],
    "codes scored": lambda one: one["code_distances_per_query"],
    "open, seconds": lambda one: one["open_seconds_warm"],
    "memory of the open index": lambda one: one["dram_bytes"],
    "state of a query, planned": lambda one: one["query_state_bytes"],
}


def fitted(points):
    """Fits figure = a n^b to `points` (n, figure) by least squares of the logarithms. Returns the exponent b
    and the largest factor between a point and the fit, or None if fewer than two figures are above zero.
    """
    logs = [(math.log(n), math.log(figure)) for n, figure in points if figure and figure > 0]
    if len(logs) < 2:
        return None
    mean_n, mean = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    slope = sum((n - mean_n) * (y - mean) for n, y in logs) / sum((n - mean_n) ** 2 for n, _ in logs)
    off = max(abs(y - mean - slope * (n - mean_n)) for n, y in logs)
    return slope, math.exp(off)


def power(count):
    exponent = math.log10(count)
    return f"10^{exponent:.0f}" if exponent == round(exponent) else f"{count:,}"


def amount(byte_count):
    for unit, bytes_per_unit in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if byte_count >= bytes_per_unit:
            return f"{byte_count / bytes_per_unit:.3g} {unit}"
    return f"{byte_count:.0f} B"


def number(value):
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(titles, rows):
    dashes = ["---"] + ["---:"] * (len(titles) - 1)
    return "".join(f"| {' | '.join(row)} |\n" for row in [titles, dashes, *rows])


class Findings:
    """Records by kind and place: `SET/N/FAMILY` for builds, with `/TIER/RECALL` for searches."""

    def __init__(self, steps):
        self.kinds = {}
        for step, one in steps.items():
            kind, _, place = step.partition("/")
            self.kinds.setdefault(kind, {})[tuple(place.split("/"))] = one

    def of(self, kind):
        """Returns places and records of a kind, sorted by set, family and increasing size."""
        found = self.kinds.get(kind, {}).items()
        return sorted(found, key=lambda item: (order(item[0][0]), item[0][2:], int(item[0][1])))

    def series(self, kind):
        """Returns records that differ only in size: (set, family, ...) with [(n, record)]."""
        found = {}
        for (name, count, *rest), one in self.of(kind):
            if "left_out" not in one:
                found.setdefault((name, *rest), []).append((int(count), one))
        return found


def order(name):
    return list(SETS).index(name)


def hardness(findings):
    titles = [
        "set",
        "vectors",
        "LID, mean (median)",
        "relative contrast",
        "at the 100th",
        "nearest",
        "100th",
        "queries",
    ]
    rows = []
    for (name, count), one in findings.of("truth"):
        lid = f"{one['lid_mean']:.1f} ({one['lid_median']:.1f})"
        contrast = [f"{one[key]:.2f}" for key in ("relative_contrast", "relative_contrast_last")]
        distances = [f"{one[key]:.0f}" for key in ("nearest", "farthest")]
        rows.append([name, power(int(count)), lid, *contrast, *distances, f"{one['queries']:,}"])
    return table(titles, rows)


def builds(findings):
    titles = [
        "set, family", "vectors", "seconds", "processor s", "s per million", "peak memory", "index", "index / data",
        "stages",
    ]  # fmt: skip
    rows = []
    for (name, count, family), one in findings.of("build"):
        stages = ", ".join(
            f"{stage} {seconds:.3g}" for stage, seconds in summed(one.get("stage_seconds", []))
        )
        seconds = one["build_seconds"]
        processor = f"{number(one['processor_seconds'])}{'*' if one['continued'] else ''}"
        sizes = [amount(one["peak_rss_bytes"]), amount(one["index_bytes"]), f"{one['amplification']:.2f}"]
        millions = number(seconds / int(count) * 1e6)
        rows.append(
            [f"{name}, {family}", power(int(count)), number(seconds), processor, millions, *sizes, stages]
        )
    return table(titles, rows)


def summed(stages):
    """Returns seconds by stage; a stage that occurs several times is summed."""
    found = {}
    for stage, seconds in stages:
        found[stage] = found.get(stage, 0.0) + seconds
    return found.items()


def searches(findings, family, requested):
    titles = [
        "set, tier", "vectors", "found", "processor us", *PHASES[:2], PHASES[3], "reads", "rounds", "KB",
        "codes scored", "list", "p50 us", "memory", "open s, cold", "warm",
    ]  # fmt: skip
    rows = []
    for (name, count, of, tier, recall), one in findings.of("search"):
        if of != family or recall != requested:
            continue
        place = [f"{name}, {tier}", power(int(count))]
        if "left_out" in one:
            rows.append([*place, one["left_out"], *[""] * (len(titles) - 3)])
            continue
        phases = one["phase_us_per_query"] or {}
        figures = [
            one["processor_us_per_query"], *[phases.get(phase) for phase in PHASES if phase != "read"],
            one["reads_per_query"], one["hops_per_query"], one["bytes_per_query"] / 1e3,
            one["code_distances_per_query"], one["search_list"], one["latency_us"]["p50"],
        ]  # fmt: skip
        opened = [f"{one[key]:.2f}" for key in ("open_seconds_cold", "open_seconds_warm")]
        shown = [f"{one['recall']:.4f}", *map(number, figures), amount(one["dram_bytes"]), *opened]
        rows.append([*place, *shown])
    return table(titles, rows) if rows else ""


def states(findings):
    titles = ["set, family", "vectors", "planned", "measured", "list"]
    rows = []
    for (name, count, family), one in findings.of("state"):
        sizes = [amount(one["planned_state_bytes"]), amount(one["measured_state_bytes"])]
        rows.append([f"{name}, {family}", power(int(count)), *sizes, str(one["search_list"])])
    return table(titles, rows)


def exponents(findings, kind, figures):
    titles = ["series", "sizes", *figures]
    rows = []
    for series, records in findings.series(kind).items():
        fits = [fitted([(n, figure(one)) for n, one in records]) for figure in figures.values()]
        if not any(fits):
            continue
        sizes = ", ".join(power(n) for n, _ in records)
        shown = ["–" if fit is None else f"{fit[0]:+.2f} ({fit[1]:.2f})" for fit in fits]
        rows.append([", ".join(series), sizes, *shown])
    return table(titles, rows)


def reached(findings):
    """Returns the table of the cost of reaching a recall, with the requested recalls."""
    titles = ["set, family, tier", "vectors", "requested", "processor us", "reads", "codes scored", "list"]
    keys = ("processor_us_per_query", "reads_per_query", "code_distances_per_query", "search_list")
    rows = []
    for (name, count, family, tier, recall), one in findings.of("reach"):
        place = [f"{name}, {family}, {tier}, {recall}", power(int(count))]
        if "left_out" in one:
            rows.append([*place, one["left_out"], "", "", "", ""])
            continue
        requested = " to ".join(str(recall) for recall in one["asked"] if recall)
        rows.append([*place, requested, *[number(one[key]) for key in keys]])
    return table(titles, rows)


def growth(findings, kind):
    """Returns the table of growth from a million vectors to the largest set, for the cluster family."""
    titles = ["series", "from", "to", "processor time", "reads", "state of a query"]
    rows = []
    for series, records in findings.series(kind).items():
        records = [(n, one) for n, one in records if n >= 10**6]
        if series[1] != "cluster" or len(records) < 2:
            continue
        (first, before), (last, after) = records[0], records[-1]
        keys = ("processor_us_per_query", "reads_per_query", "query_state_bytes")
        ratios = [f"{after[key] / before[key]:.2f}" if before[key] else "–" for key in keys]
        rows.append([", ".join(series), power(first), power(last), *ratios])
    return table(titles, rows)


def report(steps):
    """Makes the report in markdown."""
    findings = Findings(steps)
    families = sorted({place[2] for place in findings.kinds.get("search", {})})
    recalls = sorted({place[4] for place in findings.kinds.get("search", {})})
    loads = [one["load"] for one in steps.values() if "load" in one]
    parts = [
        "# Growth\n",
        "`make bench-growth` generates this page from its records. Sets of SIFT descriptors, 128 x u8:\n",
        "\n".join(f"* *{name}*: {about}" for name, about in SETS.items()) + "\n",
        f"The load of the machine was {min(loads, default=0):.1f} to {max(loads, default=0):.1f} at the start of"
        " the steps. If it exceeds the number of processors, other programs slowed the measurements in seconds;"
        " processor seconds, reads and bytes hardly depend on the load.\n",
        "## Hardness of the sets\n",
        hardness(findings),
        "## Building\n",
        builds(findings),
        "\\* of the last process only: the build was killed and continued.\n",
        "Exponents b of a n^b, fitted to the logarithms, with the largest factor between a point and the fit:\n",
        exponents(findings, "build", BUILT),
    ]
    for family in families:
        for recall in recalls:
            parts += [f"## Searching {family} at recall {recall}\n", searches(findings, family, recall)]
    parts += [
        "One thread, k = 10, medians of three processes by processor time. Phases are processor time, without"
        " requests to the device and waits. Cold: the first process, after the system was asked to drop the"
        " index's files from its cache.\n",
        "## Growth of searches\n",
        exponents(findings, "search", SEARCHED),
        "The cluster family from a million vectors on, at the requested recall:\n",
        growth(findings, "search"),
        "## At the measured recall\n",
        "Synthetic sets are calibrated with vectors of their own, so real queries find less than requested. The"
        " cost of reaching 0.95, interpolated between the two adjacent requested recalls:\n",
        reached(findings),
        "The cluster family from a million vectors on:\n",
        growth(findings, "reach"),
        "## State of a query\n",
        states(findings),
        "Planned is the index's own estimate. Measured is what the allocator counted for 31 more concurrent"
        " queries, per query.",
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part).rstrip("\n") + "\n"
