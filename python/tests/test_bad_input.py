"""Bad input is refused with the right exception and a message that names the fault."""

import os
import stat

import numpy as np
import pytest

import bathyal
from conftest import FAMILIES, small

TEN = np.arange(20, dtype=np.float32).reshape(10, 2)


def with_value(value):
    bad = TEN.copy()
    bad[3, 1] = value
    return bad


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (TEN.reshape(-1), ValueError, "expected 2"),
        (TEN.reshape(2, 5, 2), ValueError, "expected 2"),
        (TEN[:0], ValueError, "data is 0 x 2, so it holds no vectors"),
        (TEN[:, :0].copy(), ValueError, "data is 10 x 0"),
        (with_value(np.nan), ValueError, "row 3"),
        (with_value(np.inf), ValueError, "row 3"),
        ({"a": [1.0, 2.0]}, TypeError, "data is of type dict"),
        ("missing.fbin", FileNotFoundError, "missing.fbin"),
        ("vectors.xyz", ValueError, "xyz"),
    ],
)
def test_bad_data_is_refused(data, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        bathyal.build(data, tmp_path / "i")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"family": "forest"}, ValueError, "cluster, graph"),
        ({"group_vectors": 0}, ValueError, "group_vectors"),
        ({"family": "spann", "centroid_share": 0.0}, ValueError, "centroid_share"),
        ({"family": "spann", "centroid_share": float("nan")}, ValueError, "centroid_share"),
        ({"family": "spann", "replicas": 9}, ValueError, "replicas"),
        ({"family": "spann", "replicas": 1.5}, ValueError, "replicas"),
        ({"family": "spann", "list_limit": 0}, ValueError, "list_limit"),
        ({"family": "spann", "layout": "padded"}, ValueError, "layout"),
        ({"code_kind": "pq", "family": "cluster"}, ValueError, "groups"),
        ({"code_kind": "axes", "family": "spann"}, ValueError, "layout coupled"),
        ({"code_kind": "pq", "family": "spann", "layout": "coupled"}, ValueError, "axes"),
        ({"metric": "manhattan"}, ValueError, "l2, ip, cosine"),
        ({"family": "graph", "max_degree": 0}, ValueError, "max_degree"),
        ({"family": "graph", "max_degree": -1}, ValueError, "max_degree"),
        ({"family": "graph", "max_degree": "64"}, ValueError, "max_degree"),
        ({"family": "graph", "max_degree": [64]}, TypeError, "max_degree"),
        ({"max_degree": 64}, ValueError, "max_degree is an option of graph, not of cluster"),
        ({"family": "graph", "probes": 4}, TypeError, "no argument 'probes'; it takes: group_vectors, "),
        ({"max_dgree": 4}, TypeError, "no argument 'max_dgree'; did you mean 'max_degree'"),
        ({"treads": 4}, TypeError, "no argument 'treads'; did you mean 'threads'"),
        ({"family": "tree"}, ValueError, "cluster, graph"),
        ({"family": "graph", "search_list": 0}, ValueError, "search_list"),
        ({"family": "graph", "alpha": 0.5}, ValueError, "alpha"),
        ({"code_kind": "zip"}, ValueError, "zip"),
        ({"code": "pq"}, TypeError, "code_kind"),
        ({"colour": "red"}, TypeError, "no argument 'colour'"),
        ({"code_bytes": 0}, ValueError, "code_bytes"),
        ({"memory": 1000}, MemoryError, "needs"),
        ({"memory": "much"}, ValueError, "2GB"),
        ({"memory": -1}, ValueError, "memory"),
        ({"calibration": np.ones((3, 5), np.float32)}, ValueError, "calibration"),
    ],
)
def test_bad_options_of_builds_are_refused(options, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        bathyal.build(TEN, tmp_path / "i", **options)
    assert list(tmp_path.iterdir()) == []


def test_zero_vectors_are_refused_under_cosine(tmp_path):
    with pytest.raises(ValueError, match=r"rows \[0\]"):
        bathyal.build(
            with_value(0) * (np.arange(10) > 0)[:, None].astype(np.float32), tmp_path / "i", metric="cosine"
        )


def test_an_index_is_replaced_only_on_request(tmp_path):
    bathyal.build(TEN, tmp_path / "i").close()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        bathyal.build(TEN[:5], tmp_path / "i")
    with bathyal.build(TEN[:5], tmp_path / "i", overwrite=True) as index:
        assert len(index) == 5


@pytest.mark.parametrize(
    ("queries", "options", "kind", "message"),
    [
        (np.ones((2, 5), np.float32), {}, ValueError, "5 dimensions"),
        (np.ones((2, 24), bool), {}, ValueError, "bool"),
        (np.ones((2, 24, 2), np.float32), {}, ValueError, "3 dimensions"),
        (np.ones((0, 5), np.float32), {}, ValueError, "queries are 0 x 5, expected queries x 24"),
        (np.ones((2, 0), np.float32), {}, ValueError, "queries are 2 x 0"),
        (np.full((2, 24), np.nan, np.float32), {}, ValueError, "row 0"),
        (np.full((2, 24), 1e300), {}, ValueError, "row 0"),
        (None, {"k": 0}, ValueError, "k is 0"),
        (None, {"k": -1}, ValueError, "k is -1"),
        (None, {"k": 2.5}, TypeError, "k is 2.5"),
        (None, {"recall": 0}, ValueError, "recall"),
        (None, {"recall": 1.5}, ValueError, "recall"),
        (None, {"search_list": 5}, ValueError, "search_list"),
        (None, {"beam_width": 0}, ValueError, "beam_width"),
        (None, {"multi_probe": -1}, ValueError, "multi_probe"),
        (None, {"in_flight": 0}, ValueError, "in_flight"),
        (None, {"probes": 0}, ValueError, "probes"),
        (None, {"threads": -2}, ValueError, "threads"),
        (None, {"mode": "fast"}, ValueError, "batched, pipelined"),
        (None, {"timeout": -1}, ValueError, "timeout"),
        (None, {"timeout": float("nan")}, ValueError, "timeout"),
        (None, {"timeout": 0}, TimeoutError, "deadline"),
    ],
)
def test_bad_searches_are_refused(index, queries, options, kind, message):
    queries = np.ones((2, 24), np.float32) if queries is None else queries
    with pytest.raises(kind, match=message):
        index.search(queries, **options)


def test_paths_without_an_index_are_refused(index_path, tmp_path):
    with pytest.raises(FileNotFoundError):
        bathyal.open(tmp_path / "nothing")
    with pytest.raises(bathyal.Error, match="not a Bathyal index"):
        bathyal.open(tmp_path)
    with pytest.raises(ValueError, match="file, dram"):
        bathyal.open(index_path, tier="tape")
    with pytest.raises(MemoryError, match="needs"):
        bathyal.open(index_path, memory=100)


def test_a_missing_graphics_card_is_an_error(index_path):
    with pytest.raises(ValueError, match="unknown device 'tpu': it is one of cpu, gpu"):
        bathyal.open(index_path, device="tpu")
    # No machine has card number 100: there is no driver, or no such card.
    with pytest.raises(ValueError, match="the tier gpu"):
        bathyal.open(index_path, tier="gpu")
    with pytest.raises(OSError, match="graphics card"):
        bathyal.open(index_path, device="gpu:100")
    with bathyal.open(index_path, device="cpu") as index:
        assert "card" not in index.stats() and "card_trouble" not in index.stats()
    with pytest.raises(ValueError, match="mini_batch"):
        bathyal.open(index_path, mini_batch=8)
    data, new = np.ones((300, 4), np.float32), index_path.parent / "new"
    for call in (
        lambda device: bathyal.groundtruth(data, data, k=3, device=device),
        lambda device: bathyal.build(data, new, device=device),
    ):
        with pytest.raises(ValueError, match="unknown device 'tpu'"):
            call("tpu")
        with pytest.raises(OSError, match="graphics card"):
            call("gpu:100")
    assert not new.exists()


def test_the_processor_searches_if_there_is_no_graphics_card(index_path, queries):
    with bathyal.open(index_path) as index:
        expected = index.search(queries)
    with bathyal.open(index_path, device="gpu:100,cpu", mini_batch=8) as index:
        with pytest.warns(bathyal.SearchWarning, match="this processor searches, and not a graphics card"):
            found = index.search(queries)
        assert (found.ids == expected.ids).all()
        assert "graphics card" in index.stats()["card_trouble"]
        assert any("graphics card" in note for note in found.notes)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_search_answers_from_damaged_files(family, vectors, tmp_path):
    bathyal.build(vectors, tmp_path / "i", **small(family)).close()
    for file in sorted((tmp_path / "i").iterdir()):
        if file.name == "manifest.json":
            continue
        sound = file.read_bytes()
        damaged = bytearray(sound)
        for at in range(0, len(damaged), 997):
            damaged[at] ^= 0x10
        file.write_bytes(damaged)
        # Searches that read single vectors use places, and `vectors` uses positions.
        if file.name not in ("places.bin", "positions.bin"):
            with pytest.raises(bathyal.DamagedIndexError, match=file.name):
                bathyal.open(tmp_path / "i").search(vectors[:20], search_list=200)
        assert not bathyal.verify(tmp_path / "i")["sound"]
        file.write_bytes(sound)
    assert bathyal.verify(tmp_path / "i")["sound"]
    assert issubclass(bathyal.DamagedIndexError, bathyal.Error)


def test_files_with_wrong_headers_are_refused(tmp_path):
    path = tmp_path / "v.fbin"
    bathyal.write_vectors(path, TEN)
    whole = path.read_bytes()
    for content, message in (
        (whole[:-3], "truncated"),
        (whole + b"more", "over-long"),
        (whole[:5], "header"),
        (b"", "holds no"),
        (b"\0" * 8, "holds no"),
        (b"\xff" * 8, "header"),
    ):
        path.write_bytes(content)
        for use in (bathyal.read_vectors, lambda p: bathyal.build(p, tmp_path / "i")):
            with pytest.raises(ValueError, match=message):
                use(path)


@pytest.fixture
def ordinary_user():
    """Root may write everywhere, so the test runs as the user nobody."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_folders_that_cannot_be_written_are_errors(tmp_path, ordinary_user):
    folder = tmp_path / "locked"
    if os.access(tmp_path, os.W_OK, effective_ids=True):
        folder.mkdir()
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PermissionError):
        bathyal.build(TEN, folder / "i")
    with pytest.raises(PermissionError):
        bathyal.write_vectors(folder / "v.fbin", TEN)


def test_a_failing_system_call_keeps_its_number(tmp_path):
    with pytest.raises(OSError) as caught:
        bathyal.read_vectors(tmp_path / "missing.npy")
    assert caught.value.errno == 2
