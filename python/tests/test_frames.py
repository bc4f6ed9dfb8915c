"""Tensors, frames and columns of other libraries."""

import numpy as np
import pytest

import bathyal
from conftest import needed

ROWS = np.random.default_rng(1).integers(0, 100, (60, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    with bathyal.build(ROWS, tmp_path_factory.mktemp("frames") / "index", family="flat") as index:
        yield index


def check(built, tmp_path, of):
    """Checks that the rows converted by ``of`` are searched and built like the rows themselves."""
    assert built.search(of(ROWS[:7]), k=3) == built.search(ROWS[:7], k=3)
    with bathyal.build(of(ROWS), tmp_path / "new", family="flat", overwrite=True) as index:
        assert index.element == "f32" and np.array_equal(index.vectors(range(60)), ROWS)
    assert np.array_equal(
        bathyal.groundtruth(of(ROWS), of(ROWS), k=2)[0], bathyal.groundtruth(ROWS, ROWS, k=2)[0]
    )


def test_torch(built, tmp_path):
    torch = needed("torch")
    check(built, tmp_path, torch.from_numpy)
    check(built, tmp_path, lambda rows: torch.from_numpy(rows).double())
    check(built, tmp_path, lambda rows: torch.from_numpy(rows).bfloat16())
    check(built, tmp_path, lambda rows: torch.from_numpy(rows).requires_grad_())
    check(built, tmp_path, lambda rows: torch.nn.Parameter(torch.from_numpy(rows)))
    check(built, tmp_path, lambda rows: torch.from_numpy(rows.T.copy()).T)
    check(built, tmp_path, lambda rows: list(torch.from_numpy(rows)))
    assert built.search(torch.from_numpy(ROWS[0]), k=3).ids.shape == (3,)
    with pytest.raises(ValueError, match=r"queries is a tensor on the device meta.*queries\.cpu\(\)"):
        built.search(torch.empty((2, 4), device="meta"))
    with pytest.raises(ValueError, match="sparse"):
        built.search(torch.eye(4).to_sparse())
    with pytest.raises(ValueError, match="holds bool"):
        built.search(torch.ones((2, 4), dtype=torch.bool))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(ROWS)), batch_size=7)
    with bathyal.build(loader, tmp_path / "loaded", family="flat") as index:
        assert np.array_equal(index.vectors(range(60)), ROWS)


def test_pandas(built, tmp_path):
    pandas = needed("pandas")
    check(built, tmp_path, pandas.DataFrame)
    check(built, tmp_path, lambda rows: pandas.Series(list(rows)))
    check(built, tmp_path, lambda rows: pandas.Series(rows.tolist(), index=range(100, 100 + len(rows))))
    check(built, tmp_path, lambda rows: pandas.DataFrame({"embedding": list(rows)}))
    check(
        built,
        tmp_path,
        lambda rows: pandas.DataFrame({"a": range(len(rows)), "e": list(rows)})["e"].to_numpy(),
    )
    check(built, tmp_path, lambda rows: pandas.DataFrame(rows.astype(int)).astype("Int64"))
    assert built.search(pandas.Series(ROWS[0]), k=3).ids.shape == (3,)
    assert built.search(pandas.DataFrame(ROWS[:0]), k=3).ids.shape == (0, 3)
    with pytest.raises(ValueError, match=r"columns \['id', 'e'\]; expected one.*queries\['e'\]"):
        built.search(pandas.DataFrame({"id": [1], "e": [ROWS[0]]}))
    with pytest.raises(ValueError, match="queries: row 1 is missing"):
        built.search(pandas.Series([ROWS[0], None]))
    with pytest.raises(ValueError, match="another length"):
        built.search(pandas.Series([ROWS[0], ROWS[1][:2]]))
    with pytest.raises(ValueError, match="missing values"):
        built.search(
            pandas.DataFrame(ROWS[:2].astype(int)).astype("Int64").replace(int(ROWS[0, 0]), pandas.NA)
        )
    with pytest.raises(ValueError, match="queries"):
        built.search(pandas.DataFrame({"a": ["x", "y"]}))


def test_pandas_with_columns_of_arrow(built, tmp_path):
    pandas, arrow = needed("pandas"), needed("pyarrow")
    kind = pandas.ArrowDtype(arrow.list_(arrow.float32(), 4))
    check(built, tmp_path, lambda rows: pandas.Series(rows.tolist(), dtype=kind))


def test_arrow(built, tmp_path):
    arrow = needed("pyarrow")

    def fixed(rows):
        return arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), rows.shape[1])

    check(built, tmp_path, fixed)
    check(built, tmp_path, lambda rows: arrow.array(rows.tolist(), arrow.list_(arrow.float32())))
    check(built, tmp_path, lambda rows: arrow.array(rows.tolist(), arrow.large_list(arrow.float64())))
    check(built, tmp_path, lambda rows: fixed(np.concatenate([rows[:1], rows]))[1:])
    check(
        built, tmp_path, lambda rows: arrow.chunked_array([fixed(rows[:3]), fixed(rows[:0]), fixed(rows[3:])])
    )
    check(built, tmp_path, lambda rows: arrow.table({"vector": fixed(rows)}))
    check(built, tmp_path, lambda rows: arrow.record_batch({"vector": fixed(rows)}))
    tensor = getattr(arrow, "FixedShapeTensorArray", None)
    if tensor is not None:
        check(built, tmp_path, tensor.from_numpy_ndarray)
    assert built.search(fixed(ROWS[:0]), k=3).ids.shape == (0, 3)
    assert built.search(arrow.array(ROWS[0]), k=3).ids.shape == (3,)
    lists = arrow.list_(arrow.float32())
    for column, message in (
        (arrow.array([ROWS[0].tolist(), None], lists), r"queries: row 1 has missing values"),
        (arrow.array([[1.0, 2.0, None, 4.0]], lists), r"queries: row 0 has missing values"),
        (arrow.array([[1.0, 2.0, 3.0, 4.0], [1.0]], lists), r"row 1 has another length \(1\)"),
        (arrow.array([["a", "b", "c", "d"]]), "queries holds string"),
        (arrow.array([[True] * 4]), "queries holds bool"),
        (
            arrow.table({"id": [1], "vector": fixed(ROWS[:1])}),
            r"columns \['id', 'vector'\].*queries\['vector'\]",
        ),
        (arrow.table({"id": [1]}), "without a column of lists"),
        (arrow.chunked_array([[[1.0, 2.0]], [[1.0]]], lists), "not equally long"),
    ):
        with pytest.raises(ValueError, match=message):
            built.search(column)


def test_batches_of_arrow(tmp_path):
    arrow = needed("pyarrow")
    column = arrow.FixedSizeListArray.from_arrays(arrow.array(ROWS.ravel()), 4)
    table = arrow.table({"vector": column})
    with bathyal.build(table.to_reader(max_chunksize=7), tmp_path / "new", family="flat") as index:
        assert np.array_equal(index.vectors(range(60)), ROWS)


def test_polars(built, tmp_path):
    polars = needed("polars")
    check(built, tmp_path, polars.from_numpy)
    check(built, tmp_path, lambda rows: polars.Series(rows.tolist(), dtype=polars.List(polars.Float32)))
    check(built, tmp_path, lambda rows: polars.Series(rows.tolist(), dtype=polars.Array(polars.Float32, 4)))
    check(built, tmp_path, lambda rows: polars.DataFrame({"e": rows.tolist()}))
    with pytest.raises(TypeError, match=r"LazyFrame.*\.collect\(\)"):
        built.search(polars.from_numpy(ROWS).lazy())
    with pytest.raises(ValueError, match="missing values"):
        built.search(polars.Series([[1.0] * 4, None]))
    with pytest.raises(ValueError, match="not equally long"):
        built.search(polars.Series([[1.0] * 4, [1.0]]))
    with pytest.raises(ValueError, match="columns"):
        built.search(polars.DataFrame({"id": [1], "e": [[1.0] * 4]}))
