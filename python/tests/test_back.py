"""Vectors by their ids, and iteration over indexes."""

import numpy as np
import pytest

import bathyal

ROWS = np.random.default_rng(1).integers(1, 200, (700, 6), dtype=np.uint8)
FAMILIES = {
    "flat": {"family": "flat"},
    "cluster": {"family": "cluster"},
    "lsh": {"family": "lsh"},
    "partitioned": {"family": "partitioned"},
    **{
        f"graph {layout}": {"family": "graph", "layout": layout, "max_degree": 16}
        for layout in ("padded", "csr")
    },
    **{
        f"spann {layout}": {"family": "spann", "layout": layout}
        for layout in ("coupled", "decoupled", "grouped")
    },
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_returns_its_vectors(tmp_path, family):
    ids = np.array([[3, 699], [0, 3], [350, 351]])
    with bathyal.build(ROWS, tmp_path / "i", **FAMILIES[family]) as index:
        found = index.vectors(ids)
        assert found.dtype == np.uint8 and np.array_equal(found, ROWS[ids])
        assert np.array_equal(index.vectors(7), ROWS[7])
        assert np.array_equal(index.vectors(np.int32(7)), ROWS[7])
        assert np.array_equal(index.vectors([7]), ROWS[[7]])
        assert index.vectors([]).shape == (0, 6) and index.vectors(np.empty((2, 0), int)).shape == (2, 0, 6)
        assert np.array_equal(index.vectors(index.search(ROWS[5], k=1).ids), ROWS[[5]])
        assert np.array_equal(list(index), ROWS)
        ends = [ids[-1] for ids, _ in index.batches(rows=256)]
        assert ends == [255, 511, 699]
        for tier in ("dram", "mapped"):
            with bathyal.open(tmp_path / "i", tier=tier) as other:
                assert np.array_equal(other.vectors(ids), ROWS[ids])


def test_invalid_ids_are_refused(tmp_path):
    with bathyal.build(ROWS, tmp_path / "i", family="lsh") as index:
        index.insert(ROWS[:50])
        index.delete([5, 720])
        expected = np.delete(np.concatenate([ROWS, ROWS[:50]]), [5, 720], axis=0)
        assert np.array_equal(list(index), expected)
        assert np.array_equal(
            np.concatenate([ids for ids, _ in index.batches(rows=99)])[[4, 5, -1]], [4, 6, 749]
        )
        for ids, kind, message in (
            (5, ValueError, "there is no vector 5: it was deleted"),
            ([1, 720], ValueError, "there is no vector 720: it was deleted"),
            (750, ValueError, "there is no vector 750: ids are below 750"),
            (-1, ValueError, "expected 0 to 4294967295"),
            (2**32, ValueError, "expected 0 to 4294967295"),
            (1.0, TypeError, "whole numbers"),
            ("1", TypeError, "whole numbers"),
            (True, TypeError, "whole numbers"),
        ):
            with pytest.raises(kind, match=message):
                index.vectors(ids)
        with pytest.raises(ValueError, match="rows is 0"):
            index.batches(rows=0)
        with pytest.raises(TypeError):
            ROWS[0] in index  # noqa: B015
    with pytest.raises(ValueError, match="closed"):
        index.vectors(0)


def test_vectors_stored_smaller_are_returned_as_float32(tmp_path):
    rows = np.random.default_rng(1).standard_normal((500, 16), dtype=np.float32)
    for store_as, off in (("f16", 2e-3), ("i8", 2e-2)):
        with bathyal.build(rows, tmp_path / store_as, store_as=store_as) as index:
            found = index.vectors(range(500))
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, rows, atol=off * np.abs(rows).max())
    with bathyal.build(rows, tmp_path / "cosine", metric="cosine") as index:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        np.testing.assert_allclose(index.vectors(range(500)), rows / lengths, atol=1e-6)
