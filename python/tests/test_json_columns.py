"""Columns of JSON: values of any shape are kept as they are, and filters take their keys."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bathyal

VALUES = [
    {"year": 2021, "tags": ["new", "a"], "deep": {"x": 1.5}},
    {"year": "2021", "ö": "ü"},
    [1, None, {"a": []}],
    "text",
    2**60 + 1,
    None,
    {"year": [1999, 2021]},
]


@pytest.fixture
def docs(tmp_path):
    """A collection of these values."""
    docs = bathyal.Collection.create(
        tmp_path / "docs", dim=2, id="u64", columns={"meta": "json", "n": "int64"}
    )
    docs.add(range(len(VALUES)), np.arange(2 * len(VALUES)).reshape(-1, 2), {"meta": VALUES})
    yield docs
    docs.close()


def test_values_are_kept_in_memory_in_segments_and_in_files(docs, tmp_path):
    for step in ("memory", "segment"):
        assert docs.get(range(len(VALUES))).metadata["meta"].tolist() == VALUES, step
        assert docs.search([0, 1], k=len(VALUES), columns="meta").metadata["meta"].tolist() == VALUES
        docs.flush()
    for name in ("rows.parquet", "rows.arrow", "rows.jsonl"):
        docs.export(tmp_path / name, progress=False)
        copy = bathyal.Collection.create(
            f"memory://{name}", dim=2, id="u64", columns={"meta": "json", "n": "int64"}
        )
        copy.add_file(tmp_path / name, progress=False)
        assert copy.get(range(len(VALUES))).metadata["meta"].tolist() == VALUES, name


def test_filters_take_keys(docs):
    def matching(filter):
        return [row for batch in docs.batches(filter=filter, columns=False) for row in batch.ids.tolist()]

    for _ in range(2):
        assert matching("meta.year >= 2021") == [0, 6]
        assert matching({"meta.year": 2021}) == [0, 6]
        assert matching("meta.year = '2021' or meta.deep.x < 2") == [0, 1]
        assert matching("contains(meta.tags, 'new')") == [0]
        assert matching("meta is null") == [5]
        assert matching(f"meta = {2**60 + 1}") == [4]
        assert matching(f"meta = {2**60}") == []
        assert docs.search([0, 1], k=1, filter="meta.ö = 'ü'").ids.tolist() == [1]
        docs.flush()
    assert docs.delete(filter="meta.year = 2021").deleted == 2
    with pytest.raises(ValueError, match="other"):
        docs.count("other.year = 1")


def test_columns_come_in_the_forms_of_other_columns(docs):
    rows = np.zeros((2, 2), np.float32)
    two = [{"a": 1}, [2]]
    forms = [two, np.array(two, dtype=object), pd.Series(two), pa.array(['{"a": 1}', "[2]"])]
    for at, form in enumerate(forms):
        docs.upsert([100 + 2 * at, 101 + 2 * at], rows, {"meta": form})
        assert docs.get([100 + 2 * at, 101 + 2 * at]).metadata["meta"].tolist() == two
    docs.upsert([200, 201], rows, {"meta": {"same": True}})
    assert docs.get([200, 201]).metadata["meta"].tolist() == [{"same": True}] * 2
    docs.upsert([202, 203], rows, [{"meta": {"b": 2}, "n": 1}, {}])
    assert docs.get([202, 203]).metadata.to_list() == [{"meta": {"b": 2}, "n": 1}, {"meta": None, "n": None}]
    docs.update([202], {"meta": [{"c": 3}]})
    assert docs.get([202]).metadata.to_list() == [{"meta": {"c": 3}, "n": 1}]
    docs.upsert([204], rows[:1], {"meta": np.array([7])})
    assert docs.get([204]).metadata["meta"].tolist() == [7]


def test_what_is_no_json_is_refused(docs):
    row = np.zeros((1, 2), np.float32)
    for value, words in (
        ([{"a": {1, 2}}], "row 0: is no value of JSON"),
        ([float("nan")], "row 0: is no value of JSON"),
        (pa.array(['{"a": ']), "row 0 is not JSON"),
        (pa.array([1.5]), "JSON"),
    ):
        with pytest.raises(ValueError, match=words):
            docs.add([900], row, {"meta": value})
    assert 900 not in docs
    with pytest.raises(ValueError, match="may be a list itself"):
        bathyal.Collection.create("memory://lists", dim=2, columns={"meta": "list<json>"})
