"""Datasets of HDF5 files whose bytes are in another file, or not contiguous."""

import os
import shutil

import numpy as np
import pytest

import bathyal
from conftest import needed

h5py = needed("h5py")

ROWS = np.arange(400, dtype=np.float32).reshape(100, 4)
OTHERS = -ROWS - 1


@pytest.fixture
def folder(tmp_path):
    """A file with its own rows, and another file with other rows at the same place."""
    (tmp_path / "deep").mkdir()
    for name, rows in (("main.h5", ROWS), ("deep/other.h5", OTHERS)):
        with h5py.File(tmp_path / name, "w") as file:
            file["train"] = rows
    return tmp_path


def link(folder, target, name="linked", path="/train"):
    with h5py.File(folder / "main.h5", "a") as file:
        file[name] = h5py.ExternalLink(target, path)


@pytest.mark.parametrize("absolute", [False, True])
def test_an_external_link_leads_to_the_other_file(folder, absolute, monkeypatch):
    link(folder, str(folder / "deep" / "other.h5") if absolute else "deep/other.h5")
    # Wherever the caller is.
    monkeypatch.chdir(folder / "deep")
    assert np.array_equal(bathyal.read_vectors(folder / "main.h5", "linked"), OTHERS)
    assert np.array_equal(bathyal.read_vectors(folder / "main.h5"), ROWS)
    monkeypatch.chdir(folder)
    assert np.array_equal(bathyal.read_vectors("main.h5", "linked"), OTHERS)


def test_links_of_links_and_links_within_a_file(folder):
    link(folder, "deep/other.h5", "step")
    with h5py.File(folder / "main.h5", "a") as file:
        file["soft"] = h5py.SoftLink("/step")
        file["own"] = h5py.SoftLink("/train")
    with h5py.File(folder / "deep" / "back.h5", "w") as file:
        file["back"] = h5py.ExternalLink("../main.h5", "/step")
    assert np.array_equal(bathyal.read_vectors(folder / "main.h5", "soft"), OTHERS)
    assert np.array_equal(bathyal.read_vectors(folder / "main.h5", "own"), ROWS)
    assert np.array_equal(bathyal.read_vectors(folder / "deep" / "back.h5", "back"), OTHERS)


def test_ids_are_read_through_links_too(folder):
    with h5py.File(folder / "deep" / "truth.h5", "w") as file:
        file["neighbors"] = np.arange(6, dtype=np.int32).reshape(3, 2)
    link(folder, "deep/truth.h5", "neighbors", "/neighbors")
    assert bathyal.read_ids(folder / "main.h5")[0].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_link_to_nothing_is_refused(folder):
    link(folder, "deep/gone.h5")
    link(folder, "deep/other.h5", "nowhere", "/nothing")
    with pytest.raises(ValueError, match=r"'linked' is a link to '/train' in the file 'deep/gone\.h5'"):
        bathyal.read_vectors(folder / "main.h5", "linked")
    with pytest.raises(ValueError, match="'nowhere' is a link to '/nothing'"):
        bathyal.read_vectors(folder / "main.h5", "nowhere")


def test_an_index_is_built_from_the_target_of_a_link(folder):
    with h5py.File(folder / "main.h5", "a") as file:
        del file["train"]
        file["train"] = h5py.ExternalLink("deep/other.h5", "/train")
    with bathyal.build(folder / "main.h5", folder / "i", family="flat") as index:
        assert np.array_equal(index.vectors(range(100)), OTHERS)


def test_external_bytes_are_read_from_their_file(folder):
    (folder / "raw.bin").write_bytes(b"\0" * 64 + OTHERS.tobytes())
    with h5py.File(folder / "main.h5", "a") as file:
        external = [(str(folder / "raw.bin"), 64, OTHERS.nbytes)]
        file.create_dataset("outside", OTHERS.shape, np.float32, external=external)
    assert np.array_equal(bathyal.read_vectors(folder / "main.h5", "outside"), OTHERS)


def test_virtual_datasets_and_user_blocks(folder):
    layout = h5py.VirtualLayout((200, 4), np.float32)
    layout[:100] = h5py.VirtualSource(folder / "main.h5", "train", (100, 4))
    layout[100:] = h5py.VirtualSource(folder / "deep" / "other.h5", "train", (100, 4))
    with h5py.File(folder / "both.h5", "w") as file:
        file.create_virtual_dataset("train", layout)
    assert np.array_equal(bathyal.read_vectors(folder / "both.h5"), np.concatenate([ROWS, OTHERS]))
    with h5py.File(folder / "block.h5", "w", userblock_size=512) as file:
        file["train"] = ROWS
    assert np.array_equal(bathyal.read_vectors(folder / "block.h5"), ROWS)


def test_a_file_of_one_name_in_two_folders(folder):
    """The link is relative to the file that has it, and not to where the caller is."""
    shutil.copy(folder / "main.h5", folder / "other.h5")
    (folder / "deep" / "deep").mkdir()
    shutil.copy(folder / "other.h5", folder / "deep" / "deep" / "other.h5")
    link(folder, "deep/other.h5")
    before = os.getcwd()
    os.chdir(folder / "deep")
    try:
        found = bathyal.read_vectors(folder / "main.h5", "linked")
    finally:
        os.chdir(before)
    assert np.array_equal(found, OTHERS)
