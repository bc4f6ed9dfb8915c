"""Parameters, accuracy and reads."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bathyal_bench.repro.document import Document
from bathyal_bench.repro.e2lsh.measured import Measured
from bathyal_bench.repro.e2lsh.theory import Promise, hashes_of_theory, least_exponent, promise
from bathyal_bench.repro.e2lsh.verdicts import PROMISED, about_tables
from bathyal_bench.repro.numbers import fixed, percent, shown, size
from bathyal_bench.repro.plots import Axes, Curve
from bathyal_bench.repro.records import Record

# Rounds of reads of a search of the family: tables, then vectors.
FAMILY_ROUNDS = "2.0"
# Eighths of the filter that the variants use: none, the eighth with one bit per vector and table, or all.
FILTERS = {
    "as the paper has it": 0,
    "radii from a sampled nearest distance on": 0,
    "and a bit a vector and table for empty buckets": 1,
}
WHOLE_FILTER = 8


def promised(measured: Measured) -> Promise:
    """Returns the theory's promise at a radius, for the chosen tables and the S at the ratio."""
    chosen, row = measured.chosen, measured.at_ratio(measured.k)
    candidates = 0 if row is None else row["candidates"]
    return promise(
        measured.run["vectors"], chosen["tables"], chosen["hashes"], measured.run["width"], candidates
    )


def found(measured: Measured) -> float:
    """Returns the share of queries that found a vector within c^2 times the nearest distance."""
    row = measured.at_ratio(measured.k)
    return 0.0 if row is None else float(row["within"])


def parameters(measured: Measured, document: Document) -> None:
    run, chosen = measured.run, measured.chosen
    vectors, tables, hashes = run["vectors"], chosen["tables"], chosen["hashes"]
    theory, exponent = hashes_of_theory(run["width"], vectors), least_exponent()
    promised_success, share = promised(measured), found(measured)
    of_theory = vectors**exponent
    document.add("\n## Parameters\n\n")
    rows = [
        ["tables per radius (L)", tables, fixed(of_theory)],
        ["exponent (rho)", fixed(math.log(tables) / math.log(max(vectors, 2)), 3), fixed(exponent, 3)],
        [
            "values of a compound hash (m)",
            f"{hashes} (gamma {fixed(hashes / theory, 2)})",
            fixed(theory, 1),
        ],
        ["width of a hash (w), radii", shown(run["width"]), ""],
        [
            f"radii (r), from {short(chosen['first_radius'])} on, each twice the previous one",
            chosen["radii"],
            "",
        ],
        ["bits that select a slot of a table (u)", chosen["slot_bits"], ""],
        [
            "promised success at a radius, with these L, m, w and S",
            percent(promised_success.probability),
            percent(PROMISED),
        ],
        ["share of the vectors within R in the query's buckets", percent(promised_success.near), ""],
        [
            "entries from beyond c R in these buckets, at most",
            f"{fixed(promised_success.far)}, of which S are compared",
            "2 L",
        ],
        ["a vector within c^2 times the nearest distance was found", percent(share), ""],
    ]
    document.table(["", "here", "equation 5"], rows, " rr")
    document.add(
        f"\nNo width of a hash gives an exponent below {fixed(exponent, 3)} at a ratio of 2, "
        f"{about_tables(tables, of_theory, share, run['queries'])}\n"
    )


def short(number: float) -> str:
    """Formats a number with as many digits as it needs.

    >>> short(1.0), short(123.4), short(0.0625), short(2.5)
    ('1', '123', '0.0625', '2.5')
    """
    digits = 0 if number >= 100 else 2 if number >= 1 else 4
    text = fixed(number, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def reads(measured: Measured, document: Document) -> None:
    """Adds table 4, and further counters of a query."""
    document.add(
        "\n## Reads of a query (table 4)\n\n"
        "At the ratio, or as close to it as a search comes. "
        "The paper has 25 tables, 11 radii of which 9.08 are searched, and 347.5\n"
        "reads for SIFT, without empty buckets.\n\n"
    )
    heads = ["k", "S", "ratio", "radii searched", "reads", "of tables", "of blocks", "empty", "entries"]
    found = (measured.at_ratio(k) for k in measured.run["k"])
    rows = [row_of_reads(row) for row in found if row is not None]
    document.table([*heads, "compared", "rounds"], rows, "r" * 11)


def row_of_reads(row: Record) -> list[object]:
    return [
        row["k"],
        row["candidates"],
        fixed(row["ratio"], 3),
        f"{fixed(row['searched_radii'], 2)} of {row['radii']}",
        *(fixed(row[name], 1) for name in ("reads", "table_reads", "block_reads", "empty")),
        fixed(row["entries"]),
        fixed(row["compared"]),
        fixed(row["rounds"], 1),
    ]


def figure_3(measured: Measured, document: Document) -> None:
    """Adds figure 3, and the effects of gamma and S."""
    document.add(
        "\n## Accuracy against reads (figure 3, section 3.3)\n\n"
        "Each curve is a block size, each point an S, from 2 L / 4 on; hashes as chosen.\n"
    )
    own = [row for row in measured.accuracy() if row["k"] == measured.k]
    shown_rows = own + measured.of("block size", measured.k)
    curves = [
        Curve(
            f"{bytes_} bytes",
            [(row["ratio"], row["reads"]) for row in shown_rows if row["block_bytes"] == bytes_],
        )
        for bytes_ in sorted({row["block_bytes"] for row in shown_rows})
    ]
    axes = Axes("Reads of a query by size of block", "overall ratio", "reads")
    document.plot("figure-3.svg", axes, curves)
    document.line()
    heads = ["m", "gamma", "k", "S", "ratio", "radii", "reads", "compared", "us in memory"]
    hashes = measured.chosen["hashes"]
    rows = [
        row
        for row in measured.paper
        if row["experiment"] == "accuracy" and (row["k"] == measured.k or row["hashes"] == hashes)
    ]
    document.table(heads, map(row_3, rows), "r" * 9)


def row_3(row: Record) -> list[object]:
    return [
        row["hashes"],
        fixed(row["gamma"], 2),
        row["k"],
        row["candidates"],
        fixed(row["ratio"], 3),
        fixed(row["searched_radii"], 2),
        fixed(row["reads"], 1),
        fixed(row["compared"]),
        fixed(row["processor_ns"] / 1e3),
    ]


def fingerprints(measured: Measured, document: Document) -> None:
    """Adds the counts of entries that fingerprints reject, with the expected counts for that many bits
    (section 5.2).
    """
    document.add(
        "\n## Fingerprints (section 5.2)\n\n"
        "Entries per query of other buckets that share a table's slot, "
        "with the smallest buckets and the largest S,\n"
        "so that buckets are read whole. "
        "The expected count is the number of vectors outside the bucket, over 2^u.\n\n"
    )
    rows = []
    for k in measured.run["k"]:
        # With the smallest buckets and the largest S, buckets are read to their end.
        of_k = measured.of("accuracy", k)
        row = max(of_k, key=lambda row: (row["hashes"], row["candidates"]), default=None)
        if row is not None:
            rows.append(row_of_fingerprints(row, 2 ** measured.chosen["slot_bits"]))
    document.table(["k", "m", "entries", "rejected", "expected"], rows, "r" * 5)


def row_of_fingerprints(row: Record, slots: int) -> list[object]:
    held = row["entries"] - row["rejected"]
    expected = (row["table_reads"] * row["vectors"] - held) / slots
    entries, rejected = fixed(row["entries"]), fixed(row["rejected"], 1)
    return [row["k"], row["hashes"], entries, rejected, fixed(expected, 1)]


def ideas(measured: Measured, document: Document) -> None:
    """Adds the savings of each variant."""
    document.add(
        "\n## Savings of each idea\n\n"
        "Reads per query with the S of the table above; each line is on top of those before it. "
        "`lsh` has one table for all radii\n"
        "and its vectors on the device, and their reads count; "
        "with the paper's tables the vectors are in memory.\n\n"
    )
    heads = ["k", "", "ratio", "reads", "of tables", "wasted", "rounds", "bytes in memory besides vectors"]
    document.table(heads, idea_rows(measured), "r rrrrrr")
    document.add("\nFor SIFT the paper counts 347.5 reads (table 4), without those of vectors.\n")


def idea_rows(measured: Measured) -> Iterator[list[object]]:
    for k in measured.run["k"]:
        for row in measured.of("ideas", k):
            eighths = FILTERS.get(row["variant"], WHOLE_FILTER)
            filter_bytes = measured.chosen["filter_bytes"] * eighths // WHOLE_FILTER
            yield [
                k,
                row["variant"],
                fixed(row["ratio"], 3),
                *(fixed(row[name], 1) for name in ("reads", "table_reads", "wasted", "rounds")),
                size(row["memory_bytes"] + filter_bytes),
            ]
        family = measured.family_at("file", k)
        if family is not None:
            yield [
                k,
                "`lsh`: one sorted table for all radii, runs of blocks, codes choose",
                fixed(family["ratio"], 3),
                fixed(family["reads"], 1),
                fixed(family["table_reads"], 1),
                "",
                FAMILY_ROUNDS,
                size(family["memory_bytes"]),
            ]
