"""Elements that numpy does not have: bits, eight per byte, and bfloat16."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import bathyal

K = 10


def bits_of(count: int, seed: int) -> np.ndarray:
    """Returns booleans ``count x 256`` around a few patterns."""
    patterns = np.random.default_rng(17).random((20, 256)) < 0.5
    random = np.random.default_rng(seed)
    return patterns[random.integers(0, 20, count)] ^ (random.random((count, 256)) < 0.1)


def hamming(queries: np.ndarray, base: np.ndarray) -> np.ndarray:
    return (queries[:, None, :] != base[None, :, :]).sum(axis=2)


def test_bits_are_searched_packed_or_as_booleans(tmp_path: Path) -> None:
    base, queries = bits_of(2000, 1), bits_of(30, 2)
    packed = np.packbits(base, axis=1)
    index = bathyal.build(packed, tmp_path / "packed.index", metric="hamming")
    assert (index.metric, index.element, index.dim, len(index)) == ("hamming", "b1", 256, 2000)
    assert index.build_report is not None and index.build_report["data_bytes"] == packed.size
    found = index.search(np.packbits(queries, axis=1), k=K)
    exact = np.sort(hamming(queries, base), axis=1)[:, :K]
    # As near as the last of the true neighbours.
    assert np.mean(found.distances <= exact[:, -1:]) >= 0.9
    for query, ids, distances in zip(queries, found.ids, found.distances, strict=True):
        assert np.array_equal(hamming(query[None], base[ids])[0], distances)
    assert index.search(queries, k=K) == found
    one = index.search(queries[3], k=K)
    assert one.ids.tolist() == found.ids[3].tolist()
    assert index.search(np.empty((0, 32), np.uint8), k=K).ids.shape == (0, K)
    assert np.array_equal(index.vectors([5, 7]), packed[[5, 7]])
    assert np.array_equal(np.concatenate([rows for _, rows in index.batches()]), packed)
    of_truths = bathyal.build(base, tmp_path / "truths.index", metric="hamming")
    assert of_truths.search(queries, k=K) == found
    of_batches = bathyal.build(iter([base[:900], base[900:]]), tmp_path / "batches.index", metric="hamming")
    assert of_batches.search(queries, k=K) == found


def test_bits_are_compared_exactly(tmp_path: Path) -> None:
    base, queries = bits_of(500, 3), bits_of(7, 4)
    ids, distances = bathyal.groundtruth(np.packbits(base, axis=1), queries, metric="hamming", k=K)
    exact = hamming(queries, base)
    assert np.array_equal(distances, np.sort(exact, axis=1)[:, :K])
    assert np.array_equal(np.take_along_axis(exact, ids.astype(np.int64), axis=1), distances)
    bathyal.write_vectors(tmp_path / "base.b1bin", base)
    assert np.array_equal(bathyal.read_vectors(tmp_path / "base.b1bin"), np.packbits(base, axis=1))
    again, _ = bathyal.groundtruth(tmp_path / "base.b1bin", queries, metric="hamming", k=K)
    assert np.array_equal(again, ids)
    converted = bathyal.convert(tmp_path / "base.b1bin", tmp_path / "base.u8bin")
    assert (converted.columns, converted.element) == (256, "u8")
    assert np.array_equal(bathyal.read_vectors(tmp_path / "base.u8bin"), base)


def test_other_values_than_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.index"
    with pytest.raises(ValueError, match="holds f32, and the metric hamming compares bits: pack"):
        bathyal.build(np.zeros((9, 8), np.float32), path, metric="hamming")
    with pytest.raises(ValueError, match="have 12 bits, expected a multiple of 8"):
        bathyal.build(np.zeros((9, 12), bool), path, metric="hamming")
    with pytest.raises(ValueError, match=r"holds bool, .*hamming"):
        bathyal.build(np.zeros((9, 16), bool), path)
    index = bathyal.build(np.packbits(bits_of(100, 5), axis=1), path, metric="hamming")
    with pytest.raises(ValueError, match="264 dimensions, the index has 256"):
        index.search(np.zeros((2, 33), np.uint8))
    with pytest.raises(ValueError, match=r"0\.5, which uint8"):
        index.search(np.full((2, 32), 0.5))


def test_bfloat16_vectors_are_stored_and_returned(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    rows = random.standard_normal((800, 24)).astype(ml_dtypes.bfloat16)
    floats = rows.astype(np.float32)
    for metric in ("l2", "ip", "cosine"):
        index = bathyal.build(rows, tmp_path / f"{metric}.index", metric=metric)
        assert (index.element, index.dim) == ("bf16", 24)
        truth, exact = bathyal.groundtruth(floats, floats[:20], metric=metric, k=K)
        found = index.search(rows[:20], k=K, recall=0.99)
        assert bathyal.recall(found.ids, truth) > 0.9
        assert np.allclose(np.sort(found.distances)[:, :3], exact[:, :3], rtol=1e-3, atol=1e-4)
        # Floats are rounded, as the vectors were.
        assert index.search(floats[:20], k=K, recall=0.99) == found
        assert np.array_equal(index.vectors([3, 1]), rows[[3, 1]])
    bathyal.write_vectors(tmp_path / "rows.bf16bin", rows)
    assert np.array_equal(bathyal.read_vectors(tmp_path / "rows.bf16bin"), rows)
    of_file = bathyal.build(tmp_path / "rows.bf16bin", tmp_path / "file.index")
    assert of_file.element == "bf16"
    with pytest.raises(ValueError, match="bf16"):
        bathyal.write_vectors(tmp_path / "rows.npy", rows)


def test_metric_names_of_other_systems_are_understood(tmp_path: Path) -> None:
    rows = np.random.default_rng(7).standard_normal((200, 8)).astype(np.float32)
    for name, own in [("euclidean", "l2"), ("Dot", "ip"), ("angular", "cosine")]:
        with pytest.warns(UserWarning, match=f"'{name}' is called {own} here"):
            index = bathyal.build(rows, tmp_path / f"{name}.index", metric=name)  # type: ignore[arg-type]
        assert index.metric == own
    with pytest.raises(
        ValueError, match="unknown metric 'manhattan': it is one of l2, ip, cosine; or hamming"
    ):
        bathyal.groundtruth(rows, rows, metric="manhattan")  # type: ignore[arg-type]
