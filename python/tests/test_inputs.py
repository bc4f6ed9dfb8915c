"""Callers' vectors: conversions, warnings and refusals."""

import array
import subprocess
import sys
import warnings

import numpy as np
import pytest

import bathyal
from bathyal import inputs

ROWS = np.random.default_rng(1).integers(0, 100, (60, 4)).astype(np.float32)
"""Whole numbers, which all elements hold."""


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(inputs, "_warned", set())


@pytest.fixture
def silence():
    """The test raises no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module", params=["f32", "u8"])
def built(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "index"
    rows = ROWS.astype({"f32": np.float32, "u8": np.uint8}[request.param])
    with bathyal.build(rows, path, family="flat") as index:
        yield index


class Interface:
    """Only ``__array_interface__``."""

    def __init__(self, rows):
        self.rows = rows
        self.__array_interface__ = rows.__array_interface__


class Array:
    """Only ``__array__``."""

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return self.rows if dtype is None else self.rows.astype(dtype)


class Lent:
    """Only DLPack."""

    def __init__(self, rows, device=1):
        self.rows, self.device = rows, device

    def __dlpack__(self, **options):
        return self.rows.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)


SAME = {
    "float64": lambda rows: rows.astype(np.float64),
    "float16": lambda rows: rows.astype(np.float16),
    "int64": lambda rows: rows.astype(np.int64),
    "uint16": lambda rows: rows.astype(np.uint16),
    "uint8": lambda rows: rows.astype(np.uint8),
    "big-endian": lambda rows: rows.astype(">f4"),
    "big-endian float64": lambda rows: rows.astype(">f8"),
    "Fortran": np.asfortranarray,
    "strided": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "backwards": lambda rows: rows[::-1].copy()[::-1],
    "read-only": lambda rows: np.frombuffer(rows.tobytes(), np.float32).reshape(rows.shape),
    "matrix": lambda rows: rows.view(np.matrix),
    "lists": lambda rows: rows.tolist(),
    "whole lists": lambda rows: rows.astype(int).tolist(),
    "tuples": lambda rows: tuple(map(tuple, rows.tolist())),
    "list of arrays": list,
    "list of array.array": lambda rows: [array.array("f", row.tolist()) for row in rows],
    "list of others": lambda rows: [Array(row) for row in rows],
    "objects": lambda rows: np.array([*map(list, rows), None], object)[:-1],
    "memoryview": memoryview,
    "interface": Interface,
    "array": Array,
    "DLPack": Lent,
}


@pytest.mark.parametrize("kind", SAME)
def test_equal_numbers_in_any_container_find_the_same(built, kind, silence):
    expected = built.search(ROWS[:7], k=3)
    given = SAME[kind](ROWS[:7].copy())
    assert built.search(given, k=3) == expected
    single = SAME[kind](ROWS[:7].copy())[0] if isinstance(given, np.ndarray) else given
    if isinstance(given, np.ndarray) and kind not in ("matrix", "objects"):
        found = built.search(single, k=3)
        assert found.ids.shape == found.distances.shape == (3,)
        assert np.array_equal(found.ids, expected.ids[0])


@pytest.mark.parametrize("kind", SAME)
def test_equal_numbers_in_any_container_build_the_same(kind, tmp_path):
    given = SAME[kind](ROWS.copy())
    with warnings.catch_warnings():
        # Whole numbers become float32, with a warning.
        warnings.simplefilter("ignore" if kind in ("int64", "uint16") else "error")
        index = bathyal.build(given, tmp_path / "i", family="flat")
        truth = bathyal.groundtruth(given, given, k=3)
        bathyal.write_vectors(tmp_path / "v.npy", given)
    own = {"float16": "f16", "uint8": "u8"}.get(kind, "f32")
    assert (index.element, len(index)) == (own, len(ROWS))
    assert np.array_equal(index.vectors(range(len(ROWS))), ROWS)
    assert np.array_equal(bathyal.read_vectors(tmp_path / "v.npy"), ROWS)
    assert np.array_equal(truth[0], bathyal.groundtruth(ROWS, ROWS, k=3)[0])


@pytest.mark.parametrize("kind", SAME)
def test_equal_numbers_in_any_container_are_inserted(kind, tmp_path, silence):
    with bathyal.build(ROWS, tmp_path / "i", family="lsh") as index:
        assert index.insert(SAME[kind](ROWS[:5].copy())) == range(60, 65)
        assert np.array_equal(index.vectors(range(60, 65)), ROWS[:5])


def test_a_loss_of_digits_warns_once(built, tmp_path):
    fine = np.full((2, 4), 0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            bathyal.build(np.random.default_rng(1).random((50, 4)), tmp_path / "i", overwrite=True).close()
            if built.element == "f32":
                built.search(fine)
    assert [str(one.message) for one in caught] == [
        "data holds float64, which is rounded to float32; pass data.astype('float32') to say so, and to avoid the "
        "copy"
    ]
    assert caught[0].filename == __file__
    # Numbers of Python have no dtype, so there is no warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs._warned.clear()
        if built.element == "f32":
            built.search(fine.tolist())


def test_a_build_of_whole_numbers_as_float32_warns(tmp_path):
    with pytest.warns(
        UserWarning, match="data holds int64, which is stored as float32; uint8 or int8 take one byte"
    ):
        index = bathyal.build(ROWS.astype(np.int64), tmp_path / "i")
    assert index.element == "f32"


def test_float16_queries_search_an_index_of_float32(tmp_path, silence):
    rows = np.random.default_rng(1).random((50, 4), dtype=np.float32)
    with bathyal.build(rows, tmp_path / "i", family="flat") as index:
        half = rows[:5].astype(np.float16)
        assert index.search(half) == index.search(half.astype(np.float32))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (256, "queries: row 1, dimension 2 is 256"),
        (-1, "is -1"),
        (0.5, "is 0.5"),
        (np.nan, "is nan"),
        (np.inf, "is inf"),
    ],
)
def test_values_that_bytes_cannot_hold_are_refused(tmp_path, value, message):
    with bathyal.build(ROWS.astype(np.uint8), tmp_path / "i", family="flat") as index:
        queries = np.ones((3, 4), np.int64 if isinstance(value, int) else np.float64)
        queries[1, 2] = value
        for given in (queries, queries.tolist()):
            with pytest.raises(
                ValueError, match=message + ".*which uint8, the element of the index, cannot hold"
            ):
                index.search(given)
        with pytest.raises(ValueError, match=r"vectors.*which uint8, the element of the file, cannot hold"):
            bathyal.write_vectors(tmp_path / "v.u8bin", queries)
        with pytest.raises(ValueError, match=r"queries.*which uint8, the element of the base, cannot hold"):
            bathyal.groundtruth(ROWS.astype(np.uint8), queries, k=1)
        with pytest.raises(
            ValueError, match=r"calibration.*which uint8, the element of the data, cannot hold"
        ):
            bathyal.build(ROWS.astype(np.uint8), tmp_path / "other", calibration=queries)


def test_values_too_large_for_a_float_are_refused(built, tmp_path):
    large = np.full((2, 4), 1e300)
    with pytest.raises(ValueError, match=r"queries: row 0, dimension 0 is 1e\+300"):
        built.search(large)
    with pytest.raises(ValueError, match=r"data: row 0, dimension 0 is 1e\+300"):
        bathyal.build(large, tmp_path / "i")


REFUSED = [
    (np.ones((2, 4), bool), ValueError, r"holds bool.*astype\('uint8'\)"),
    (np.ones((2, 4), complex), ValueError, "holds complex128.*real and imaginary"),
    (np.full((2, 4), "x"), ValueError, "holds <U1.*text"),
    (np.full((2, 4), b"x"), ValueError, r"holds \|S1"),
    (np.ones((2, 4), "M8[s]"), ValueError, "holds datetime64"),
    (np.ones((2, 4), object), ValueError, "holds object"),
    (np.ma.masked_equal(ROWS[:2], 3), ValueError, r"is a masked array.*\.filled"),
    ([np.ma.masked_equal(ROWS[0], 3)], ValueError, r"\[0\] is a masked array"),
    ([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0]], ValueError, r"row 1 has another length \(2\) than row 0 \(4\)"),
    ([[1.0, 2.0, 3.0, 4.0], None], ValueError, r"row 1 is missing \(None\)"),
    ([[1.0, 2.0, 3.0, None]], ValueError, "it holds values that are not numbers"),
    ([1.0, [2.0, 3.0]], ValueError, "it holds values that are not numbers"),
    ([["a", "b", "c", "d"]], ValueError, "text"),
    (np.ones((2, 2, 4), np.float32), ValueError, "3 dimensions"),
    ({1: 2}, TypeError, "is of type dict; expected an array"),
    (None, TypeError, "is of type NoneType"),
    (object(), TypeError, "is of type object"),
    (7, ValueError, "0 dimensions"),
    (b"\1\2\3\4", ValueError, "text|0 dimensions"),
    (Lent(ROWS[:2], device=2), ValueError, r"on another device.*\.cpu\(\)"),
]


@pytest.mark.parametrize(("value", "kind", "message"), REFUSED)
def test_other_values_than_vectors_are_refused_with_the_name_of_the_argument(
    built, tmp_path, value, kind, message
):
    with pytest.raises(kind, match="^queries.*" + message):
        built.search(value)
    with pytest.raises(kind, match="^queries.*" + message):
        built.range_search(value, 1.0)
    with pytest.raises(kind, match="^queries.*" + message):
        bathyal.search([built], value)
    with pytest.raises(kind, match="^vectors.*" + message):
        built.insert(value)
    with pytest.raises(kind, match="^query.*" + message):
        built.explain(value)
    with pytest.raises(kind, match="^queries.*" + message):
        bathyal.groundtruth(ROWS, value, k=1)
    with pytest.raises(kind, match="^data.*" + message):
        bathyal.build(value, tmp_path / "new")
    with pytest.raises(kind, match="^base.*" + message):
        bathyal.groundtruth(value, ROWS, k=1)
    with pytest.raises(kind, match="^vectors.*" + message):
        bathyal.write_vectors(tmp_path / "new.fbin", value)
    assert not any(tmp_path.iterdir())


def test_messages_of_the_library_name_the_argument(built):
    for ask in (
        lambda rows: built.search(rows),
        lambda rows: built.range_search(rows, 1.0),
        lambda rows: bathyal.search([built], rows),
        lambda rows: bathyal.groundtruth(ROWS, rows, k=1),
    ):
        with pytest.raises(ValueError) as caught:
            ask(np.ones((2, 3)))
        assert "queries" in str(caught.value) and "memory" not in str(caught.value)


@pytest.mark.parametrize("none", [[], (), np.empty((0, 4)), np.empty((0, 4), np.float32), np.empty(0)])
def test_no_queries_have_no_answers(built, none):
    found = built.search(none, k=3)
    assert found.ids.shape == found.distances.shape == (0, 3)
    assert (found.ids.dtype, found.distances.dtype) == (np.uint32, np.float32)
    assert found.stats.as_dict()["reads_per_query"] == 0 and found.stats.qps == 0
    assert found == built.search(none, k=3)
    many = bathyal.search([built, built], none, k=3)
    assert many.ids.shape == many.indexes.shape == many.distances.shape == (0, 3)
    ranges = built.range_search(none, 1.0)
    assert len(ranges) == 0 and ranges.offsets.tolist() == [0] and len(ranges.ids) == 0
    ids, far = bathyal.groundtruth(ROWS, none, k=3)
    assert ids.shape == far.shape == (0, 3)
    with pytest.raises(ValueError, match="k is 0"):
        built.search(none, k=0)


def test_no_vectors_are_inserted(tmp_path):
    with bathyal.build(ROWS, tmp_path / "i", family="lsh") as index:
        assert index.insert([]) == range(60, 60)
        assert index.insert(np.empty((0, 4))) == range(60, 60)


def test_one_query_has_one_answer_everywhere(built):
    query = ROWS[7]
    assert built.search(query, k=3).ids.shape == (3,)
    many = bathyal.search([built], query, k=3)
    assert many.ids.shape == many.indexes.shape == many.distances.shape == (3,)
    ids, far = bathyal.groundtruth(ROWS, query, k=3)
    assert ids.shape == far.shape == (3,)
    assert built.range_search(query, 0.0)[0][0].tolist() == [7]
    assert built.explain(query, k=1)["ids"] == [7]


def test_no_library_is_imported_for_what_a_caller_did_not_pass():
    program = (
        "import sys, bathyal, numpy; index = bathyal.build(numpy.eye(20, 4), 'memory://i', progress=False);"
        "index.search([[1, 2, 3, 4]]);"
        "print([name for name in ('torch', 'pandas', 'pyarrow', 'polars', 'h5py', 'tqdm') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_memory_is_a_whole_number_of_whatever_kind(tmp_path):
    for memory in (1e9, np.float64(1e9), np.int64(10**9), np.uint32(10**9), 10**9, "1GB"):
        bathyal.build(ROWS, tmp_path / "i", memory=memory, overwrite=True).close()
        bathyal.open(tmp_path / "i", memory=memory).close()
    for memory in (1.5, float("nan"), float("inf"), [1]):
        with pytest.raises(TypeError, match="memory is"):
            bathyal.open(tmp_path / "i", memory=memory)
