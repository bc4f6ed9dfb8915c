"""Cells and lines that reports of several papers share."""

from __future__ import annotations

from bathyal_bench.repro.records import Record


def or_dash(value: object) -> str:
    """Formats a value; a dash for None.

    >>> or_dash(16), or_dash(None)
    ('16', '-')
    """
    return "-" if value is None else f"{value}"


def describe_set(one: Record) -> str:
    """Describes a set of vectors and queries from the line about the run; ``made`` tells how it was derived.

    >>> facts = {"vectors": 100, "dim": 24, "element": "f32", "queries": 10}
    >>> describe_set(Record({"name": "base", **facts}, ""))
    '`base`: 100 vectors of 24 f32, 10 queries'
    >>> describe_set(Record({"name": "base-d24", "made": "`base` projected", **facts}, ""))
    '`base-d24` (`base` projected): 100 vectors of 24 f32, 10 queries'
    """
    made = f" ({one['made']})" if one.get("made") else ""
    vectors = f"{one['vectors']} vectors of {one['dim']} {one['element']}"
    return f"`{one['name']}`{made}: {vectors}, {one['queries']} queries"


def filled(template: str, record: Record, **more: object) -> str:
    """Fills a line of a table with the fields of a record and with computed values.

    >>> filled("| {qps:.1f} | {share} |", Record({"qps": 12.34}, "records.jsonl:2"), share="5%")
    '| 12.3 | 5% |'
    """
    return template.format_map(Record({**record, **more}, record.where))
