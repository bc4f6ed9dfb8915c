"""Cells and lines that reports of several papers share."""

from __future__ import annotations

from bathyal_bench.repro.records import Record


def or_dash(value: object) -> str:
    """A value as it is, and a dash for none.

    >>> or_dash(16), or_dash(None)
    ('16', '-')
    """
    return "-" if value is None else f"{value}"


def described(one: Record) -> str:
    """A set of vectors and queries, as the line about the run has it; ``made`` says of what it is made.

    >>> facts = {"vectors": 100, "dim": 24, "element": "f32", "queries": 10}
    >>> described(Record({"name": "base", **facts}, ""))
    '`base`: 100 vectors of 24 f32, 10 queries'
    >>> described(Record({"name": "base-d24", "made": "`base` projected", **facts}, ""))
    '`base-d24` (`base` projected): 100 vectors of 24 f32, 10 queries'
    """
    made = f" ({one['made']})" if one.get("made") else ""
    vectors = f"{one['vectors']} vectors of {one['dim']} {one['element']}"
    return f"`{one['name']}`{made}: {vectors}, {one['queries']} queries"


def filled(template: str, record: Record, **more: object) -> str:
    """A line of a table: the fields of a record, and what is computed from them, in their places.

    >>> filled("| {qps:.1f} | {share} |", Record({"qps": 12.34}, "records.jsonl:2"), share="5%")
    '| 12.3 | 5% |'
    """
    return template.format_map(Record({**record, **more}, record.where))
