"""Collections: written rows are found, for every form of rows."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import re
import shutil
import sys
import warnings

import numpy as np
import pytest

import bathyal
from bathyal import Collection
from conftest import needed

ROWS = np.random.default_rng(5).standard_normal((500, 12), dtype=np.float32)
COLUMNS = {"year": "int64", "lang": "string", "tags": "list<string>", "weight": "float64", "seen": "bool"}


def metadata(count: int, start: int = 0) -> dict[str, list[object]]:
    """Columns of ``count`` rows, in which some values are missing."""
    rows = range(start, start + count)
    return {
        "year": [None if row % 7 == 3 else 2000 + row % 30 for row in rows],
        "lang": [("de", "en", "fr", None)[row % 4] for row in rows],
        "tags": [None if row % 5 == 0 else [f"t{row % 3}", "all"][: row % 3] for row in rows],
        "weight": [row / 8 for row in rows],
        "seen": [row % 2 == 0 for row in rows],
    }


def named(count: int, start: int = 0) -> list[str]:
    return [f"r{row:04}" for row in range(start, start + count)]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "docs.collection"


@pytest.fixture
def docs(path: pathlib.Path):
    with Collection.create(path, dim=12, columns=COLUMNS) as docs:
        docs.add(named(300), ROWS[:300], metadata(300))
        yield docs


def nearest(query: np.ndarray, rows: np.ndarray, k: int) -> list[int]:
    return np.argsort(((rows - query) ** 2).sum(1), kind="stable")[:k].tolist()


@pytest.mark.parametrize("flushed", [False, True])
def test_written_rows_are_found(docs: Collection, path: pathlib.Path, flushed: bool) -> None:
    if flushed:
        docs.flush()
        assert docs.inspect()["rows_in_memory"] == 0
    found = docs.search(ROWS[:20], k=5, recall=1.0, columns=True, vectors=True)
    assert found.ids.shape == found.distances.shape == (20, 5)
    assert found.ids.dtype == object and found.distances.dtype == np.float32
    for query in range(20):
        rows = nearest(ROWS[query], ROWS[:300], 5)
        assert found.ids[query].tolist() == [f"r{row:04}" for row in rows]
        assert np.array_equal(found.vectors[query], ROWS[rows])
        assert found.metadata["weight"][query].tolist() == [row / 8 for row in rows]
        assert found.metadata["lang"][query].tolist() == [("de", "en", "fr", None)[row % 4] for row in rows]
    assert found.matches == 300 and found.notes == () and found.costs["seconds"] > 0
    assert sum(plan["matches"] for plan in found.plans) == 300
    one = docs.search(ROWS[7], k=3, columns="year")
    assert one.ids.shape == (3,) and one.vectors is None and list(one.metadata) == ["year"]
    assert one.ids[0] == "r0007"
    with pytest.warns(bathyal.SearchWarning, match="asked for 1000"):
        assert docs.search(ROWS[0], k=1000).ids.shape == (300,)


def nested(depth: int) -> dict[str, object]:
    """A filter nested in so many others."""
    filter: dict[str, object] = {"year": 1}
    for _ in range(depth):
        filter = {"$not": filter}
    return filter


@pytest.mark.parametrize("flushed", [False, True])
def test_filters(docs: Collection, flushed: bool) -> None:
    if flushed:
        docs.flush()
    values = metadata(300)
    rows = [
        row
        for row in range(300)
        if (values["year"][row] or 0) >= 2020 and values["lang"][row] in ("de", "en")
    ]
    words = "year >= 2020 and lang in ('de', 'en')"
    for filter in (
        words,
        {"year": {"$gte": 2020}, "lang": {"$in": ["de", "en"]}},
        {"year": {"$gte": np.int64(2020)}, "lang": {"$in": np.array(["de", "en"])}},
        {"year": {"$gte": 2020}, "lang": {"$in": {"de", "en"}}},
    ):
        assert docs.count(filter) == len(rows)
        found = docs.search(ROWS[:10], k=4, recall=1.0, filter=filter)
        assert found.matches == len(rows)
        for query in range(10):
            best = nearest(ROWS[query], ROWS[rows], 4)
            assert found.ids[query].tolist() == [f"r{rows[at]:04}" for at in best]
    assert [batch.ids.tolist() for batch in docs.batches(filter=words, rows=10_000)] == [
        [f"r{row:04}" for row in rows]
    ]
    with pytest.warns(bathyal.SearchWarning, match="0 rows match"):
        none = docs.search(ROWS[:2], filter="year = 1")
    assert none.ids.shape == (2, 0) and none.matches == 0 and none.metadata.to_list() == []
    for filter, kind, words in [
        ("year >=", ValueError, r"(?s)expected .*\n.*\^"),
        ("nothing = 1", ValueError, "nothing"),
        ("year = 'x'", ValueError, "year"),
        ({"year": {"$near": 1}}, ValueError, r"\$near"),
        ({"year": float("nan")}, ValueError, "JSON"),
        ({"year": object()}, TypeError, "type object"),
        (nested(110), ValueError, "more than 100 deep"),
        (nested(500), ValueError, "recursion limit"),
        (nested(100_000), ValueError, "more than 100 deep"),
        (["year"], TypeError, "filter is of type list"),
    ]:
        with pytest.raises(kind, match=words):
            docs.search(ROWS[0], filter=filter)
        with pytest.raises(kind, match=words):
            docs.count(filter)


def test_rows_are_changed_and_deleted(docs: Collection) -> None:
    with pytest.raises(bathyal.DuplicateIdError, match=r'2 of the ids are there already: "r0001", "r0002"'):
        docs.add(["new", "r0001", "r0002"], ROWS[:3])
    with pytest.raises(ValueError, match=r'"x".*leave the others out'):
        docs.upsert(["x", "x"], ROWS[:2])
    assert len(docs) == 300 and "new" not in docs
    assert docs.upsert(["new", "r0001"], ROWS[400:402]) == bathyal.Written(added=1, replaced=1)
    assert docs.get("r0001", vectors=True).vectors.tolist() == [ROWS[401].tolist()]
    assert docs.get(["r0001"]).metadata["year"].tolist() == [None]
    assert docs.update(["r0002", "nobody"], {"lang": "xx"}) == bathyal.Written(replaced=1, missing=1)
    assert docs.get(["r0002"]).metadata.to_list() == [
        {"year": 2002, "lang": "xx", "tags": ["t2", "all"], "weight": 0.25, "seen": True}
    ]
    assert docs.update(["r0002", "r0004"], [{"year": 1}, {"year": None}]).replaced == 2
    assert docs.get(["r0004", "r0002"]).metadata["year"].tolist() == [None, 1]
    with pytest.raises(ValueError, match="same columns for all rows"):
        docs.update(["r0002", "r0004"], [{"year": 1}, {"lang": "de"}])
    assert docs.delete(["r0002", "nobody", "r0002"]) == bathyal.Written(deleted=1, missing=1)
    gone = docs.count("lang = 'de'")
    assert docs.delete(filter="lang = 'de'").deleted == gone
    assert len(docs) == docs.count() == 300 - gone and docs.count("lang = 'de'") == 0
    assert docs.delete([]) == bathyal.Written()
    for arguments in ({}, {"ids": ["a"], "filter": "year = 1"}):
        with pytest.raises(TypeError, match="ids or a filter"):
            docs.delete(**arguments)
    left = len(docs)
    for empty in ({}, {"$and": [{}]}, {"$or": [{"year": 2001}, {}]}):
        with pytest.raises(ValueError, match=r"an empty filter, .* would delete all rows"):
            docs.delete(filter=empty)
        assert docs.count(empty) == left
    with pytest.raises(ValueError, match="the filter is empty"):
        docs.delete(filter="")
    assert docs.delete(filter="true").deleted == left


def test_unknown_arguments_are_refused(docs: Collection) -> None:
    for given, meant in [("nprobe", None), ("filters", "filter"), ("top_k", "k"), ("time_out", "timeout")]:
        message = f"search() has no argument {given!r}; " + (
            f"did you mean {meant!r}?" if meant else "it takes: "
        )
        with pytest.raises(TypeError, match=re.escape(message)):
            docs.search(ROWS[0], **{given: 3})
    with pytest.raises(TypeError, match=r"search_async\(\) has no argument 'where'; did you mean 'filter'\?"):
        asyncio.run(docs.search_async(ROWS[0], where="year = 2001"))
    for options in ({"familly": "graph"}, {"family": "graph", "max_degre": 4}):
        with pytest.raises(
            TypeError, match=r"field 'vector' has no argument .*did you mean '(family|max_degree)'"
        ):
            Collection.create("memory://unknown", 8, options=options)
    with pytest.raises(TypeError, match=r"field 'title' has no argument 'metrik'; did you mean 'metric'\?"):
        Collection.create("memory://unknown", vectors={"title": {"dim": 8, "metrik": "ip"}})


def test_rows_are_returned_in_the_order_of_the_ids(docs: Collection) -> None:
    rows = docs.get(["r0009", "nobody", "r0003", "r0009"], columns=["weight"], vectors=True)
    assert rows.ids.tolist() == ["r0009", "r0003", "r0009"] and rows.places.tolist() == [0, 2, 3]
    assert rows.metadata["weight"].dtype == np.float64
    assert np.array_equal(rows.vectors, ROWS[[9, 3, 9]])
    none = docs.get(["nobody"], vectors=True)
    assert len(none) == 0 and none.vectors.shape == (0, 12) and none.metadata.to_list() == []
    assert len(docs.get([])) == 0 and docs.get("r0001").vectors is None
    assert "r0001" in docs and "nobody" not in docs and "" not in docs and 7 not in docs
    assert list(docs) == named(300)
    with pytest.raises(ValueError, match='no column "nothing"'):
        docs.get(["r0001"], columns="nothing")
    with pytest.raises(ValueError, match="no field of vectors"):
        docs.get(["r0001"], vectors="nothing")


def test_another_collection_takes_batches(docs: Collection, tmp_path: pathlib.Path) -> None:
    docs.flush()
    docs.delete(["r0007"])
    docs.upsert(named(10, 295), ROWS[295:305], metadata(10, 295))
    batches = list(docs.batches(vectors=True, rows=64))
    assert [len(batch) for batch in batches] == [64, 64, 64, 64, 48]
    assert [id for batch in batches for id in batch.ids] == [id for id in named(305) if id != "r0007"]
    with Collection.create(tmp_path / "copy", dim=12, columns=COLUMNS) as other:
        assert other.add_batches(batches) == bathyal.Written(added=304)
        assert list(other.batches(vectors=True, rows=64)) == batches
        with pytest.raises(bathyal.DuplicateIdError):
            other.add_batches(batches)
        assert other.add_batches(iter(batches), upsert=True).replaced == 304
    report = docs.copy(tmp_path / "whole", progress=False)
    assert report["rows"] == 304
    with Collection.open(tmp_path / "whole") as whole:
        assert list(whole.batches(vectors=True, rows=64)) == batches
        assert whole.verify(progress=False) == {"sound": True, "fault_count": 0, "faults": []}


def test_a_batch_that_fails_leaves_those_before_it(docs: Collection) -> None:
    def batches():
        yield ["x1", "x2"], ROWS[:2]
        yield ["x3"], ROWS[:1], {"year": [1]}
        yield ["x4", "x4"], ROWS[:2]

    steps: list[tuple[str, int, int]] = []
    with pytest.raises(bathyal.DuplicateIdError) as caught:
        docs.add_batches(batches(), total=5, progress=lambda *now: steps.append(now))
    assert steps == [("writing", 2, 5), ("writing", 3, 5)]
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["3 rows of earlier batches were written"]
    assert len(docs) == 303 and "x3" in docs and "x4" not in docs


def test_numbers_as_ids(path: pathlib.Path) -> None:
    with Collection.create(path, dim=12, id="u64", columns={"year": "int16"}) as docs:
        assert docs.add(range(100), ROWS[:100], {"year": np.arange(100)}).added == 100
        assert docs.add(np.array([2**64 - 1, 100], dtype=np.uint64), ROWS[100:102]).added == 2
        assert docs.add(np.int64(500), ROWS[102]).added == 1
        found = docs.search(ROWS[100], k=1)
        assert found.ids.dtype == np.uint64 and found.ids.tolist() == [2**64 - 1]
        assert list(docs)[-2:] == [500, 2**64 - 1]
        assert (
            100 in docs
            and np.int64(100) in docs
            and -1 not in docs
            and "100" not in docs
            and True not in docs
        )
        assert docs.delete(filter="id < 50").deleted == 50
        for ids, words in [
            ([-1], "too large or too small|ids"),
            (np.array([-1]), "ids"),
            ([2**64], "too large"),
            (["a"], "type str; expected a whole number"),
            ([1.5], "type float; expected a whole number"),
            ([None], "null"),
        ]:
            with pytest.raises(ValueError, match=words):
                docs.add(ids, ROWS[:1])
        with pytest.raises(TypeError, match="ids is a boolean"):
            docs.delete(True)


def test_several_fields_and_all_elements(path: pathlib.Path) -> None:
    small = np.random.default_rng(1).integers(0, 200, (60, 8), dtype=np.uint8)
    bits = np.random.default_rng(2).integers(0, 2, (60, 64)).astype(bool)
    fields = {
        "title": (12, "f32", "cosine"),
        "body": {"dim": 8, "element": "u8"},
        "code": {"dim": 64, "metric": "hamming"},
        "half": (12, "f16"),
    }
    with Collection.create(path, vectors=fields, id="u64", options={"family": "graph"}) as docs:
        assert [field["family"] for field in docs.schema["vectors"]] == ["graph"] * 4
        vectors = {"title": ROWS[:60], "body": small, "code": bits, "half": ROWS[:60].astype(np.float16)}
        docs.add(range(60), vectors)
        for field, queries in vectors.items():
            for at in range(5):
                assert docs.search(queries[at], k=1, field=field, recall=1.0).ids.tolist() == [at]
            docs.flush()
        back = docs.get([5, 3], vectors=True).vectors
        assert list(back) == ["title", "body", "code", "half"]
        assert np.array_equal(back["body"], small[[5, 3]])
        assert np.array_equal(back["code"], np.packbits(bits[[5, 3]], axis=-1))
        unit = ROWS[[5, 3]] / np.linalg.norm(ROWS[[5, 3]], axis=1, keepdims=True)
        np.testing.assert_allclose(back["title"], unit, atol=1e-6)
        assert back["half"].dtype == np.float16
        assert list(docs.get([5], vectors="body").vectors) == ["body"]
        for call, words in [
            (lambda: docs.search(ROWS[0]), "name one with field="),
            (lambda: docs.search(ROWS[0], field="x"), 'no field of vectors "x"'),
            (lambda: docs.add([70], {**vectors, "x": ROWS[:1]}), "no field of vectors 'x'"),
            (lambda: docs.add([70], {"title": ROWS[:1]}), "vectors of 'body' are missing"),
            (lambda: docs.add([70], vectors), 'vectors of "title": there are 60 for 1'),
        ]:
            with pytest.raises(ValueError, match=words):
                call()
        with pytest.raises(TypeError, match="dictionary with those of each field"):
            docs.add([70], ROWS[:1])


DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000)
ALL_TYPES = {
    "bool": [True, False, None],
    "int8": [-128, 127, None],
    "int16": [-(2**15), 2**15 - 1, None],
    "int32": [-(2**31), 2**31 - 1, None],
    "int64": [-(2**63), 2**63 - 1, None],
    "uint8": [0, 255, None],
    "uint16": [0, 2**16 - 1, None],
    "uint32": [0, 2**32 - 1, None],
    "uint64": [0, 2**64 - 1, None],
    "float32": [0.5, float("inf"), None],
    "float64": [0.1, -1e300, None],
    "string": ["", "grün \U0001f600 \0", None],
    "date": [DAY, datetime.date(1, 1, 1), None],
    "timestamp": [NOON, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), None],
    "list<int64>": [[], [1, None, -3], None],
    "list<string>": [["a"], ["", None], None],
    "list<date>": [[DAY], [None], None],
    "list<float32>": [[0.5], [], None],
}


@pytest.mark.parametrize("flushed", [False, True])
def test_values_of_all_types_are_returned(path: pathlib.Path, flushed: bool) -> None:
    columns = {name.replace("<", "_").strip(">"): name for name in ALL_TYPES}
    values = {name: ALL_TYPES[kind] for name, kind in columns.items()}
    with Collection.create(path, dim=12, columns=columns) as docs:
        docs.add(["a", "b", "c"], ROWS[:3], values)
        by_row = [{name: column[row] for name, column in values.items()} for row in range(3)]
        docs.add(["d", "e", "f"], ROWS[:3], by_row)
        docs.add({"id": ["g"], "vector": ROWS[:1]})
        if flushed:
            docs.flush()
        expected = [*by_row, *by_row, dict.fromkeys(columns)]
        held = docs.get(list("abcdefg")).metadata
        assert held.to_list() == expected
        whole = docs.get(["a", "b"]).metadata
        for name, column in values.items():
            kind = columns[name]
            if kind == "date":
                assert whole[name].tolist() == column[:2] and held[name].dtype == "datetime64[D]"
                assert np.isnat(held[name][2])
            elif kind == "timestamp":
                assert whole[name].tolist() == column[:2] and held[name].dtype == "datetime64[us]"
                assert np.isnat(held[name][2])
            else:
                assert whole[name].tolist() == column[:2] and held[name].tolist()[:3] == column
                plain = kind not in ("string",) and "list" not in kind
                assert whole[name].dtype == (np.dtype(kind) if plain else object)


def test_arrays_of_numpy_are_columns(path: pathlib.Path) -> None:
    columns = {
        "n": "int32",
        "f": "float64",
        "t": "string",
        "d": "date",
        "at": "timestamp",
        "l": "list<int16>",
    }
    with Collection.create(path, dim=12, columns=columns) as docs:
        given = {
            "n": np.array([1, 2, 3], dtype=">i2"),
            "f": np.array([0.5, np.nan, 2.0], dtype=np.float16),
            "t": np.array(["x", "yy", ""]),
            "d": np.array(["2024-02-29", "NaT", "1960-01-01"], dtype="datetime64[D]"),
            "at": np.array(["2024-02-29T12:30:15.250", "NaT", "1960-01-01"], dtype="datetime64[ms]"),
            "l": np.arange(6).reshape(3, 2),
        }
        docs.add(["a", "b", "c"], ROWS[:3], given)
        held = docs.get(["a", "b", "c"]).metadata
        assert held["n"].tolist() == [1, 2, 3] and held["t"].tolist() == ["x", "yy", ""]
        assert held["f"][0] == 0.5 and np.isnan(held["f"][1])
        assert held["d"].tolist() == [DAY, None, datetime.date(1960, 1, 1)]
        assert held["at"].tolist() == [NOON, None, datetime.datetime(1960, 1, 1)]
        assert held["l"].tolist() == [[0, 1], [2, 3], [4, 5]]
        masked = np.ma.masked_array([1, 2], [False, True])
        docs.add(
            ["d", "e"], ROWS[:2], {"n": masked, "f": np.arange(10)[::5], "t": np.array(["x", None], object)}
        )
        held = docs.get(["d", "e"]).metadata
        assert (
            held["n"].tolist() == [1, None]
            and held["f"].tolist() == [0, 5]
            and held["t"].tolist() == ["x", None]
        )
        docs.add(["f"], ROWS[:1], {"n": np.int8(4), "at": np.datetime64("2024-02-29T12:30:15.25"), "d": DAY})
        assert docs.get("f").metadata["at"].tolist() == [NOON]
        zone = datetime.timezone(datetime.timedelta(hours=2))
        docs.add(["g"], ROWS[:1], {"at": [datetime.datetime(2024, 2, 29, 14, 30, 15, 250_000, zone)]})
        assert docs.get("g").metadata["at"].tolist() == [NOON]


def test_dates_and_times_may_be_text(path: pathlib.Path) -> None:
    columns = {"d": "date", "at": "timestamp", "l": "list<timestamp>"}
    with Collection.create(path, dim=12, columns=columns) as docs:
        row = {
            "d": "2024-02-29",
            "at": "2024-02-29T12:30:15.250",
            "l": ["2024-02-29T14:30:15.25+02:00", None],
        }
        docs.add(["a", "b"], ROWS[:2], [row, {"d": DAY, "at": None}])
        docs.add(["c"], ROWS[:1], {"d": np.array(["1960-01-01"]), "at": "2024-02-29 12:30:15.25"})
        held = docs.get(["a", "b", "c"]).metadata
        assert held["d"].tolist() == [DAY, DAY, datetime.date(1960, 1, 1)]
        assert held["at"].tolist() == [NOON, None, NOON] and held["l"].tolist()[0] == [NOON, None]
        for name, text in (("d", "2024-13-01"), ("at", "noon"), ("at", "")):
            with pytest.raises(
                ValueError, match=rf'column "{name}", row 1: "{text}" is not a (date|time) such as'
            ):
                docs.add(["x", "y"], ROWS[:2], {name: [None, text]})
        assert docs.update(["a"], {"at": "2024-02-29T12:30:15.250Z"}).replaced == 1


def test_counters_warm_up_and_explanations(path: pathlib.Path) -> None:
    with Collection.create(path, dim=12, columns={"year": "int64"}) as docs:
        docs.add([str(row) for row in range(200)], ROWS[:200], {"year": np.arange(200)})
        docs.flush()
        assert docs.warm()["seconds"] >= 0 and docs.warm(k=3, recall=0.9, field="vector")["queries"] >= 0
        docs.search(ROWS[:5], k=3)
        with pytest.raises(ValueError, match="unknown"):
            docs.search(ROWS[:5], k=3, filter="unknown = 1")
        stats = docs.stats()
        assert (stats["searches"], stats["queries"], stats["errors"], stats["rows"]) == (1, 5, 1, 200)
        assert f'bathyal_collection_queries_total{{collection="{path}"}} 5' in docs.prometheus().splitlines()
        report = docs.explain(ROWS[7], k=2, filter="year < 100")
        assert report["ids"][0] == "7" and report["matches"] == 100 and len(report["plans"]) == 1
        with docs.snapshot() as then:
            assert then.explain(ROWS[7], k=1)["ids"] == ["7"]


def test_arguments_may_be_changed_after_a_write(path: pathlib.Path) -> None:
    arrow = needed("pyarrow")
    vectors, years = ROWS[:3].copy(), np.array([1, 2, 3])
    with Collection.create(path, dim=12, columns={"year": "int64"}) as docs:
        docs.add(["a", "b", "c"], vectors, arrow.table({"year": arrow.array(years)}))
        vectors[:], years[:] = 0, 0
        rows = docs.get(["a", "b", "c"], vectors=True)
        assert rows.metadata["year"].tolist() == [1, 2, 3] and np.array_equal(rows.vectors, ROWS[:3])


def test_metadata_that_does_not_fit_is_refused(docs: Collection) -> None:
    for given, kind, words in [
        ({"nothing": [1]}, ValueError, 'no column "nothing"; there is year, lang'),
        ({"year": ["x"]}, ValueError, "column \"year\", row 0: 'x' is of type str; expected a whole number"),
        ({"year": [2**63]}, ValueError, "too large"),
        ({"year": [1.5]}, ValueError, "type float"),
        ({"year": np.array([1.5])}, ValueError, 'column "year": the values are Float64'),
        ({"year": np.array(["x"])}, ValueError, "type str"),
        ({"year": np.array([1j])}, ValueError, "complex"),
        ({"year": np.zeros((1, 2, 3))}, ValueError, "3 dimensions"),
        ({"year": [1, 2]}, ValueError, 'column "year" has 2 values for 1 ids'),
        ({"lang": [7]}, ValueError, "expected text"),
        ({"weight": ["x"]}, ValueError, "expected a number"),
        ({"lang": ["\ud800"]}, ValueError, "UTF-8"),
        ({"lang": np.array([7])}, ValueError, "Int64"),
        ({"tags": [["a", 7]]}, ValueError, 'column "tags", in lists, row 1: 7'),
        ({"tags": ["abc"]}, ValueError, "expected a list"),
        ({"tags": [7]}, ValueError, "expected a list"),
        ({"seen": ["yes"]}, ValueError, "True or False"),
        ({7: [1]}, TypeError, "expected text"),
        ({"year": object()}, TypeError, "expected an array or a list"),
        ([{"year": 1}, {"year": 2}], ValueError, "2 rows of metadata for 1 ids"),
        ([{"nothing": 1}], ValueError, 'no column "nothing"'),
        (["x"], TypeError, "metadata, row 0"),
        (7, TypeError, "metadata is of type int"),
    ]:
        with pytest.raises(kind, match=words):
            docs.add(["new"], ROWS[:1], given)
    for ids, vectors, words in [
        (["new"], ROWS[:2], "there are 2 for 1 ids"),
        (["new"], ROWS[:1, :5], "5 dimensions"),
        (["new"], np.full((1, 12), np.nan, np.float32), "NaN"),
        ([""], ROWS[:1], "1 to 1024"),
        (["x" * 1025], ROWS[:1], "1 to 1024"),
        ([], ROWS[:1], "there are 1 for 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            docs.add(ids, vectors)
    with pytest.raises(TypeError, match=r"columns id, vector"):
        docs.add(["a"])
    with pytest.raises(ValueError, match="no column 'vector'; it has id"):
        docs.add({"id": ["a"]})
    assert docs.add([], np.zeros((0, 12))) == bathyal.Written()
    assert len(docs) == 300


def test_invalid_schemas_are_refused(tmp_path: pathlib.Path) -> None:
    for given, kind, words in [
        ({}, TypeError, "neither dim nor vectors"),
        ({"dim": 8, "vectors": {"a": (8,)}}, TypeError, "both given"),
        ({"dim": 0}, ValueError, "dimensions"),
        ({"dim": 1.5}, TypeError, "whole number"),
        ({"dim": 8, "metric": "near"}, ValueError, "near"),
        ({"dim": 8, "element": "f64"}, ValueError, "f64"),
        ({"dim": 8, "id": "int"}, ValueError, "'string' or 'u64'"),
        ({"dim": 8, "columns": {"a": "decimal"}}, ValueError, "decimal"),
        ({"dim": 8, "columns": {"a": int}}, TypeError, "name of a type"),
        ({"dim": 8, "columns": {"id": "int64"}}, ValueError, "id"),
        ({"dim": 8, "columns": {"vector": "int64"}}, ValueError, "twice"),
        ({"dim": 8, "options": {"family": "tree"}}, ValueError, "tree"),
        ({"dim": 8, "options": {"colour": "red"}}, TypeError, "colour"),
        ({"vectors": {"a": 8}}, TypeError, r"expected \(dim, element, metric\)"),
        ({"vectors": {}}, ValueError, "fields of vectors"),
        ({"dim": 8, "durability": "hope"}, ValueError, "disk, system"),
        ({"dim": 8, "write_memory": "1kB"}, MemoryError, "memory for writes"),
        ({"dim": 8, "build_memory": "70MiB"}, MemoryError, "build_memory"),
        ({"dim": 8, "compact_memory": "1MB"}, MemoryError, "compact_memory"),
        ({"dim": 8, "tier": "tape"}, ValueError, "tape"),
    ]:
        with pytest.raises(kind, match=words):
            Collection.create(tmp_path / "c", **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flushed", [False, True])
def test_several_collections_are_searched_as_if_they_were_one(tmp_path: pathlib.Path, flushed: bool) -> None:
    parts = []
    for number in range(3):
        docs = Collection.create(tmp_path / f"{number}", dim=12, columns=COLUMNS)
        rows = slice(100 * number, 100 * number + 100)
        docs.add(named(100), ROWS[rows], metadata(100, 100 * number))
        if flushed:
            docs.flush()
        parts.append(docs)
    queries = ROWS[[5, 250]]
    found = bathyal.search_many(parts, queries, k=4, columns=["year"], vectors=True)
    wanted = [nearest(query, ROWS[:300], 4) for query in queries]
    assert (found.collections * 100 + [[int(id[1:]) for id in ids] for ids in found.ids]).tolist() == wanted
    assert found.matches == 300 and not found.notes
    np.testing.assert_array_equal(found.vectors, ROWS[wanted])
    assert found.metadata["year"].tolist() == [
        [metadata(1, row)["year"][0] for row in rows] for rows in wanted
    ]
    single = bathyal.search_many(parts, queries[0], k=4, columns="year", vectors=True)
    assert single.ids.shape == (4,) and single.collections.tolist() == found.collections[0].tolist()
    assert found == bathyal.search_many(parts, queries, k=4, columns=["year"], vectors=True)
    table = found.to_arrow()
    names = ["query", "rank", "collection", "id", "distance", "vector", "year"]
    assert table.column_names == names and table.num_rows == 8
    few = bathyal.search_many(parts, queries, k=4, filter="year = 2003 and seen")
    assert few.matches == sum(docs.count("year = 2003 and seen") for docs in parts)
    none = bathyal.search_many(parts, np.empty((0, 12), dtype=np.float32), k=4)
    assert none.ids.shape == (0, 4) and none.collections.shape == (0, 4)
    with pytest.warns(bathyal.SearchWarning, match="only 300 rows"):
        assert bathyal.search_many(parts, queries, k=400).ids.shape == (2, 300)
    with pytest.raises(ValueError, match="at least one"):
        bathyal.search_many([], queries)
    with (
        Collection.create(tmp_path / "other", dim=3) as other,
        pytest.raises(ValueError, match="its dim is 3"),
    ):
        bathyal.search_many([parts[0], other], queries)
    for docs in parts:
        docs.close()
    with pytest.raises(ValueError, match="closed"):
        bathyal.search_many(parts, queries)


def test_a_damaged_collection_is_repaired_into_a_new_one(tmp_path):
    vectors = np.arange(60, dtype=np.float32).reshape(20, 3)
    with bathyal.Collection.create(tmp_path / "old", dim=3, id="u64", columns={"year": "int64"}) as old:
        old.add(range(10), vectors[:10], {"year": list(range(10))})
        old.flush()
        old.add(range(10, 20), vectors[10:], {"year": None})
    report = bathyal.Collection.repair(tmp_path / "old", tmp_path / "whole", progress=False)
    assert (report["complete"], report["rows"], report["lost_rows"]) == (True, 20, 0)
    with pytest.raises(FileExistsError):
        bathyal.Collection.repair(tmp_path / "old", tmp_path / "whole", progress=False)
    # The latest log is lost, with the rows that were added last.
    shutil.rmtree(sorted((tmp_path / "old").glob("l-*"))[-1])
    with pytest.raises(bathyal.DamagedIndexError, match="repair"):
        bathyal.Collection.open(tmp_path / "old")
    report = bathyal.Collection.repair(tmp_path / "old", tmp_path / "early", progress=False)
    assert (report["complete"], report["lost_log"], report["rows"]) == (False, True, 10)
    with bathyal.Collection.open(tmp_path / "early") as early:
        assert len(early) == 10 and early.get([7], vectors=True).vectors.tolist() == vectors[7:8].tolist()


def test_efforts_do_not_depend_on_the_kind_of_segment(path: pathlib.Path) -> None:
    vectors = np.random.default_rng(3).standard_normal((400, 8), dtype=np.float32)
    docs = Collection.create(path, dim=8, id="u64", flat_below=300, compact=False)
    for until, flush in [(0, False), (100, False), (100, True), (390, True), (400, False)]:
        have = len(docs)
        if until > have:
            docs.add(range(have, until), vectors[have:until])
        if flush:
            docs.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bathyal.SearchWarning)
            found = docs.search(vectors[:3], k=5, search_list=400)
            assert until == 0 or found.ids[:, 0].tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="search_list is 4, which must be at least k = 5"):
            docs.search(vectors[:3], k=5, search_list=4)
        with pytest.raises(ValueError, match=r"recall is 0.9 and search_list is 50; give one of them"):
            docs.search(vectors[:3], k=5, search_list=50, recall=0.9)
    docs.close()


def test_arguments_without_a_meaning_are_refused(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    docs = Collection.create(path, dim=8, id="u64", columns={"year": "int64"}, keep_versions=3)
    docs.add(range(20), np.eye(20, 8), {"year": 1})
    docs.flush()
    docs.export(tmp_path / "rows.parquet", columns=["year"], progress=False)
    bathyal.write_vectors(tmp_path / "rows.fbin", np.eye(20, 8))
    for file, given, message in [
        ("rows.parquet", {"first_id": 1000}, "a first id"),
        ("rows.parquet", {"ids": tmp_path / "ids.npy"}, "a file of ids"),
        ("rows.parquet", {"key": "vector"}, "key is for .hdf5 files"),
        ("rows.fbin", {"id_column": "id"}, "leave the column of ids"),
        ("rows.fbin", {"columns": ["year"]}, "leave the columns out"),
        ("rows.fbin", {"ids": tmp_path / "ids.npy", "first_id": 3}, "give one of them"),
        ("rows.fbin", {"key": "train"}, "a key names a part of .hdf5"),
    ]:
        with pytest.raises(ValueError, match=message):
            docs.add_file(tmp_path / file, upsert=True, progress=False, **given)
    with pytest.raises(ValueError, match="rows is 4, but batches of an iterator are written as they are"):
        docs.add_batches(iter([]), rows=4)
    (version, *_) = docs.versions()
    docs.close()
    for name in ("write_memory", "build_memory", "compact_memory", "compact_speed", "flat_below"):
        with pytest.raises(ValueError, match=f"{name} is 10000000, but a version is not written to"):
            Collection.open(path, version=version, **{name: 10_000_000})


def test_the_memory_that_a_refusal_names_is_enough(path: pathlib.Path) -> None:
    for name in ("write_memory", "build_memory", "compact_memory"):
        with pytest.raises(MemoryError) as refused:
            Collection.create(path, dim=8, **{name: "900kB"})
        needed = re.search(r"needs (\d+) bytes \(([^)]+)\)", str(refused.value))
        assert needed is not None
        for number, given in enumerate((int(needed[1]), needed[2])):
            Collection.create(path.with_name(f"{name}{number}"), dim=8, **{name: given}).close()
    Collection.create(path, dim=8, write_memory="1MB").close()


def test_a_collection_is_calibrated_and_audited_with_given_queries(tmp_path):
    random = np.random.default_rng(3)
    rows = random.standard_normal((1700, 16), dtype=np.float32) / np.arange(1, 17, dtype=np.float32)
    given = random.uniform(-1, 1, (240, 16)).astype(np.float32)
    options = {"flat_below": 100, "background": False, "threads": 2}
    with Collection.create(tmp_path / "c", dim=16, id="u64", metric="cosine", **options) as docs:
        docs.add(range(1400), rows[:1400])
        docs.flush()
        # A segment of some 100 rows is searched exactly, and is not measured; one of 300 is.
        docs.add(range(1400, 1700), rows[1400:])
        report = docs.calibrate(given[:200], name="text", progress=False)
        assert (report["name"], report["queries"], report["segments"]) == ("text", 200, 1)
        assert {one["k"] for one in report["recalls"]} == {1, 10, 100}
        docs.flush()
        calibration = docs.inspect()["calibrations"][0]
        assert (calibration["name"], calibration["queries"], calibration["segments"]) == ("text", 200, 2)
        audited = docs.audit(given[200:], recall=[0.8, 0.9], calibration="text", progress=False)
        assert [one["reached"] for one in audited["recalls"]] == [True, True]
        docs.search(given, recall=0.9, calibration="text")
        docs.search(given, calibration="build")
        assert docs.audit(given, filter="id < 5", progress=False)["k"] == 5
        with pytest.raises(ValueError, match=r"no calibration .near.*build, text"):
            docs.search(given, calibration="near")
        with pytest.raises(ValueError, match="calibration is for a recall"):
            docs.search(given, search_list=20, calibration="text")
        with pytest.raises(ValueError, match="no row is there, or matches"):
            docs.audit(given, filter="id > 5000", progress=False)
        with pytest.raises(ValueError, match="field"):
            docs.calibrate(given, field="other", progress=False)
        with pytest.raises(ValueError, match="queries"):
            docs.calibrate(given[:, :5], progress=False)
        assert docs.remove_calibration("text") and not docs.remove_calibration("text")
