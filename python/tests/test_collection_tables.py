"""Tables of pandas, Arrow, polars and duckdb as rows of a collection, and back."""

from __future__ import annotations

import datetime
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

import bathyal
from bathyal import Collection
from conftest import needed

ROWS = np.random.default_rng(5).standard_normal((40, 4)).astype(np.float32)
COLUMNS = {
    "year": "int64",
    "lang": "string",
    "tags": "list<string>",
    "on": "date",
    "at": "timestamp",
    "weight": "float32",
}
VALUES: dict[str, list[Any]] = {
    "year": [2020, None, 2022],
    "lang": ["de", None, "en"],
    "tags": [["a", "b"], [], None],
    "on": [datetime.date(2024, 2, 29), None, datetime.date(1960, 1, 1)],
    "at": [datetime.datetime(2024, 2, 29, 12), None, datetime.datetime(1960, 1, 1)],
    "weight": [0.5, None, 2.0],
}
BY_ROW = [{name: column[row] for name, column in VALUES.items()} for row in range(3)]


@pytest.fixture
def docs(tmp_path: pathlib.Path):
    with Collection.create(tmp_path / "docs.collection", dim=4, columns=COLUMNS) as docs:
        yield docs


def check(docs: Collection, ids: list[str]) -> None:
    rows = docs.get(ids, vectors=True)
    assert rows.metadata.to_list() == BY_ROW
    assert np.array_equal(rows.vectors, ROWS[:3])
    docs.delete(ids)


def test_arrow(docs: Collection) -> None:
    arrow = needed("pyarrow")
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(ROWS[:3].ravel()), 4)
    metadata = arrow.table(VALUES)
    ids = ["a", "b", "c"]
    for given in (
        (ids, ROWS[:3], metadata),
        (arrow.array(ids), vectors, metadata.to_batches()[0]),
        (arrow.chunked_array([ids[:1], ids[1:]]), vectors, {name: metadata[name] for name in VALUES}),
        (arrow.array(ids, arrow.large_string()), ROWS[:3], VALUES),
        (arrow.array(ids).dictionary_encode(), ROWS[:3], VALUES),
    ):
        assert docs.add(*given).added == 3
        check(docs, ids)
    whole = metadata.append_column("id", arrow.array(ids)).append_column("vector", vectors)
    uneven = arrow.array(ROWS[:3].tolist(), arrow.list_(arrow.float64()))
    for table in (whole, whole.to_batches()[0], whole.set_column(7, "vector", uneven), whole.to_reader()):
        assert docs.add(table).added == 3
        check(docs, ids)
    # A slice is read without the rest of its table.
    twice = arrow.concat_tables([whole, whole]).combine_chunks()
    assert docs.add(twice.slice(3)).added == 3
    check(docs, ids)
    for table, words in [
        (whole.drop(["id"]), "no column 'id'; it has year"),
        (whole.rename_columns(["x", *whole.column_names[1:]]), 'no column "x"'),
        (whole.set_column(7, "vector", arrow.array([[1.0], [1.0, 2.0], [1.0]])), "row 1 of the vectors"),
        (
            whole.set_column(7, "vector", arrow.array([None, [1.0] * 4, [1.0] * 4])),
            "1 of its vectors are null",
        ),
        (whole.set_column(7, "vector", arrow.array([1.0, 2.0, 3.0])), "expected vectors"),
        (whole.set_column(6, "id", arrow.array(["a", None, "b"])), "1 of them are null"),
        (whole.set_column(0, "year", arrow.array(["x", "y", "z"])), "values are Utf8"),
        (whole.set_column(0, "year", arrow.array([1.5, 2.0, 3.0])), "values are Float64"),
        (arrow.array(ids), "it is a column of Utf8"),
        (whole.append_column("year", whole["year"]), 'the column "year" is there twice'),
    ]:
        with pytest.raises(ValueError, match=words):
            docs.add(table)
    assert len(docs) == 0


def test_arrow_batch_by_batch(docs: Collection) -> None:
    arrow = needed("pyarrow")
    table = arrow.table({
        "id": [f"r{row:02}" for row in range(40)],
        "vector": arrow.FixedSizeListArray.from_arrays(arrow.array(ROWS.ravel()), 4),
        "year": arrow.array(range(40), arrow.int16()),
    })  # fmt: skip
    steps: list[tuple[str, int, int]] = []
    assert docs.add_batches(table, rows=16, progress=lambda *now: steps.append(now)).added == 40
    assert steps == [("writing", done, 40) for done in (16, 32, 40)]
    assert docs.inspect()["sequence"] == 3
    assert docs.add_batches(table.to_reader(max_chunksize=7), upsert=True).replaced == 40
    assert docs.inspect()["sequence"] == 9
    assert np.array_equal(docs.get(["r39", "r00"], vectors=True).vectors, ROWS[[39, 0]])
    assert docs.add_batches(table.slice(0, 0)) == docs.add_batches([]) == bathyal.Written()

    def failing():
        yield table.to_batches()[0]
        raise RuntimeError("the source is dry")

    reader = arrow.RecordBatchReader.from_batches(table.schema, failing())
    with pytest.raises(ValueError, match="the source is dry"):
        docs.add_batches(reader, upsert=True)


def test_pandas(docs: Collection) -> None:
    pandas = needed("pandas")
    ids = ["a", "b", "c"]
    frame = pandas.DataFrame(VALUES)
    assert frame["year"].dtype == np.float64
    typed = frame.astype({"year": "Int64", "lang": "string", "weight": "Float32"})
    category = frame.astype({"lang": "category"})
    shifted = frame.set_index(pandas.Index([7, 8, 9]))
    for metadata in (frame, typed, category, shifted, {name: frame[name] for name in VALUES}):
        assert docs.add(pandas.Series(ids), ROWS[:3], metadata).added == 3
        check(docs, ids)
    zoned = frame.assign(at=pandas.to_datetime(frame["at"]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    assert docs.add(pandas.Index(ids), ROWS[:3], zoned).added == 3
    check(docs, ids)
    whole = frame.assign(id=ids, vector=list(ROWS[:3]))
    assert docs.add(whole).added == 3
    check(docs, ids)
    assert docs.add_batches(whole.set_index(pandas.Index([7, 8, 9])), rows=2, progress=False).added == 3
    check(docs, ids)
    with pytest.raises(ValueError, match='column "year": the values are Float64'):
        docs.add(ids, ROWS[:3], frame.assign(year=[1.5, 2, 3]))


def test_pandas_with_columns_of_arrow(docs: Collection) -> None:
    pandas = needed("pandas")
    needed("pyarrow")
    frame = pandas.DataFrame(VALUES).convert_dtypes(dtype_backend="pyarrow")
    assert docs.add(pandas.array(["a", "b", "c"], "string[pyarrow]"), ROWS[:3], frame).added == 3
    check(docs, ["a", "b", "c"])


def test_polars(docs: Collection) -> None:
    polars = needed("polars")
    ids = ["a", "b", "c"]
    frame = polars.DataFrame(VALUES)
    assert docs.add(polars.Series(ids), ROWS[:3], frame).added == 3
    check(docs, ids)
    assert docs.add(ids, polars.Series(ROWS[:3].tolist()), {name: frame[name] for name in VALUES}).added == 3
    check(docs, ids)
    categorical = frame.with_columns(frame["lang"].cast(polars.Categorical))
    assert docs.add(ids, ROWS[:3], categorical).added == 3
    check(docs, ids)
    for kind in (polars.List(polars.Float32), polars.Array(polars.Float32, 4)):
        vectors = polars.Series("vector", ROWS[:3].tolist(), dtype=kind)
        whole = frame.with_columns(polars.Series("id", ids), vectors)
        assert docs.add(whole).added == 3
        check(docs, ids)
        assert docs.add_batches(whole, rows=2, progress=False).added == 3
        check(docs, ids)


def test_duckdb(docs: Collection) -> None:
    duckdb = needed("duckdb")
    needed("pyarrow")
    query = (
        "select 'r' || i as id, [i, 1, 2, 3]::float[4] as vector, i + 2000 as year, ['t' || i] as tags "
        "from range(3000) r(i)"
    )
    with duckdb.connect() as connection:
        assert docs.add_batches(connection.sql(query), progress=False).added == 3000
        assert docs.add_batches(connection.sql(query).to_arrow_reader(), upsert=True).replaced == 3000
        rows = docs.get(["r7"], vectors=True)
        assert rows.vectors.tolist() == [[7, 1, 2, 3]] and rows.metadata["tags"].tolist() == [["t7"]]
        found = docs.search([5, 1, 2, 3], k=3, filter="year > 2005", columns=["year"])
        assert found.metadata["year"].tolist() == [2006, 2007, 2008]
        nearest = connection.sql("select id, year from found order by rank").fetchall()
        assert nearest == [("r6", 2006), ("r7", 2007), ("r8", 2008)]


def test_results_are_tables(docs: Collection) -> None:
    arrow = needed("pyarrow")
    pandas = needed("pandas")
    docs.add(["a", "b", "c"], ROWS[:3], VALUES)
    rows = docs.get(["c", "a"], vectors=True)
    table = rows.to_arrow()
    assert table.column_names == ["id", "vector", *VALUES]
    assert table["id"].to_pylist() == ["c", "a"] and table["vector"].to_pylist() == ROWS[[2, 0]].tolist()
    assert (
        table.select(list(VALUES)).to_pylist()
        == rows.metadata.to_arrow().to_pylist()
        == [BY_ROW[2], BY_ROW[0]]
    )
    frame = rows.to_pandas()
    assert list(frame.columns) == table.column_names and frame["year"].tolist() == [2022, 2020]
    assert isinstance(rows.metadata.to_pandas(), pandas.DataFrame)
    found = docs.search(ROWS[:2], k=2, columns=["lang"], vectors=True)
    table = found.to_arrow()
    assert table.column_names == ["query", "rank", "id", "distance", "vector", "lang"]
    assert table["query"].to_pylist() == [0, 0, 1, 1] and table["rank"].to_pylist() == [0, 1, 0, 1]
    assert table["id"].to_pylist() == found.ids.ravel().tolist()
    assert table["distance"].to_pylist() == found.distances.ravel().tolist()
    assert table["vector"].to_pylist() == found.vectors.reshape(4, 4).tolist()
    assert table["lang"].to_pylist() == found.metadata["lang"].ravel().tolist()
    assert found.to_pandas()["id"].tolist() == table["id"].to_pylist()
    one = docs.search(ROWS[0], k=2)
    assert one.to_arrow().to_pydict()["query"] == [0, 0]
    assert docs.add(rows.to_arrow().set_column(0, "id", arrow.array(["x", "y"]))).added == 2
    assert np.array_equal(docs.get(["x"], vectors=True).vectors, ROWS[[2]])


def test_results_are_pickled(docs: Collection) -> None:
    docs.add(["a", "b", "c"], ROWS[:3], VALUES)
    for result in (
        docs.search(ROWS[:2], k=2, columns=True, vectors=True),
        docs.search(ROWS[:0], k=2),
        docs.get(["c", "a"], vectors=True),
        docs.get([]),
    ):
        again = pickle.loads(pickle.dumps(result))
        assert again == result and again.metadata.to_list() == result.metadata.to_list()


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_files(docs: Collection, tmp_path: pathlib.Path, ending: str) -> None:
    docs.add(["a", "b", "c"], ROWS[:3], VALUES)
    file = tmp_path / f"rows.{ending}"
    assert docs.export(file, progress=False)["rows"] == 3
    with Collection.create(tmp_path / "other", dim=4, columns=COLUMNS) as other:
        assert other.add_file(file, progress=False)["added"] == 3
        check(other, ["a", "b", "c"])
        assert docs.export(file, filter="year = 2020", columns=["year"], progress=False)["rows"] == 1
        assert other.add_file(file, upsert=True, progress=False)["added"] == 1
        assert other.get("a").metadata.to_list() == [{**dict.fromkeys(COLUMNS), "year": 2020}]
        with pytest.raises(bathyal.DuplicateIdError):
            other.add_file(file, progress=False)
        with pytest.raises(FileNotFoundError):
            other.add_file(tmp_path / f"nothing.{ending}", progress=False)
        file.write_bytes(b"nothing of the kind")
        with pytest.raises(ValueError, match=str(file)):
            other.add_file(file, progress=False)


def test_results_are_compared(docs: Collection) -> None:
    docs.add(["a", "b", "c"], ROWS[:3], VALUES)
    found = docs.search(ROWS[:2], k=2, columns=True)
    assert found == docs.search(ROWS[:2], k=2, columns=True)
    assert found != docs.search(ROWS[:2], k=2) and found != docs.search(ROWS[1:3], k=2, columns=True)
    assert docs.get(["a"]) == docs.get(["a"]) != docs.get(["b"])
    assert found != 7 and docs.get(["a"]) != 7 and found.metadata != 7
    with pytest.raises(TypeError):
        hash(found)
