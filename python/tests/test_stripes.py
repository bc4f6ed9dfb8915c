"""Indexes over several disks: builds, searches, conversions, and messages for missing or wrong parts."""

import os
import shutil

import numpy as np
import pytest

import bathyal


@pytest.fixture
def disks(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    return folders


@pytest.fixture
def striped(vectors, disks, tmp_path):
    path = tmp_path / "striped.index"
    bathyal.build(vectors, path, stripe=disks, stripe_unit="4KiB", progress=False).close()
    return path


def part(folder):
    """Returns the part of the vectors in a folder."""
    (found,) = folder.glob("*vectors.bin*")
    return found


def test_striped_indexes_give_the_same_answers(vectors, queries, disks, tmp_path, striped):
    whole = bathyal.build(vectors, tmp_path / "whole.index", progress=False)
    with bathyal.open(striped) as index:
        expected, found = whole.search(queries, k=5), index.search(queries, k=5)
        assert np.array_equal(found.ids, expected.ids)
        served = index.stats()["parts"]
        assert [os.path.dirname(entry["path"]) for entry in served] == [str(folder) for folder in disks]
        assert sum(entry["reads"] for entry in served) >= found.stats.reads.sum()
        assert all(entry["bytes"] > 0 and entry["p99_us"] > 0 for entry in served)
        assert f'part="{part(disks[1])}"' in index.prometheus()
    assert whole.stats()["parts"] == []
    for tier in ("dram", "mapped"):
        with bathyal.open(striped, tier=tier) as index:
            assert np.array_equal(index.search(queries, k=1).ids, expected.ids[:, :1])


def test_the_parts_are_shown_and_verified(disks, striped):
    listed = bathyal.inspect(striped)["parts"]
    assert [entry["path"] for entry in listed if entry["file"] == "vectors.bin"] == [
        str(part(d)) for d in disks
    ]
    assert bathyal.verify(striped, progress=False)["sound"]
    with open(part(disks[1]), "r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    faults = bathyal.verify(striped, progress=False)["faults"]
    assert faults[0].startswith(str(part(disks[1])))


def test_missing_and_exchanged_disks_are_named(disks, striped, queries, tmp_path):
    with bathyal.open(striped) as index:
        expected = index.search(queries, k=5).ids
    elsewhere = tmp_path / "elsewhere"
    disks[1].rename(elsewhere)
    with pytest.raises(FileNotFoundError, match=r"part 2 of 2 of vectors.bin .* not mounted"):
        bathyal.open(striped)
    with bathyal.open(striped, stripe=[elsewhere]) as index:
        assert np.array_equal(index.search(queries, k=5).ids, expected)
    assert bathyal.verify(striped, progress=False, stripe=[elsewhere, disks[0]])["sound"]
    assert len(bathyal.inspect(striped, stripe=[elsewhere])["parts"]) == 4
    elsewhere.rename(disks[1])
    shutil.copy(part(disks[0]), part(disks[1]))
    with pytest.raises(bathyal.DamagedIndexError, match="is part 1 where part 2 belongs"):
        bathyal.open(striped)


def test_an_index_is_converted_to_any_number_of_disks(disks, striped, queries, tmp_path):
    with bathyal.open(striped) as index:
        expected = index.search(queries, k=5).ids
    third = tmp_path / "c"
    third.mkdir()
    report = bathyal.convert_stripes(striped, striped, [*disks, third], overwrite=True, progress=False)
    assert (report["parts_before"], report["parts"]) == (2, 3)
    assert len(list(third.iterdir())) == 2
    report = bathyal.convert_stripes(striped, tmp_path / "whole.index", progress=False)
    assert (report["parts_before"], report["parts"]) == (3, 1)
    with bathyal.open(tmp_path / "whole.index") as index:
        assert np.array_equal(index.search(queries, k=5).ids, expected)
    with pytest.raises(FileExistsError):
        bathyal.convert_stripes(striped, tmp_path / "whole.index", progress=False)
    with pytest.raises(ValueError, match="is not striped"):
        bathyal.open(tmp_path / "whole.index", stripe=disks)


def test_invalid_stripe_folders_are_refused(vectors, disks, tmp_path):
    def refused(message, **arguments):
        with pytest.raises(ValueError, match=message):
            bathyal.build(vectors, tmp_path / "new.index", progress=False, **arguments)

    refused("expected a list of folders", stripe=str(disks[0]))
    refused("one folder is given", stripe=disks[:1])
    refused("is named twice", stripe=[disks[0], disks[0]])
    refused("there is no such folder", stripe=[disks[0], tmp_path / "nowhere"])
    refused("a multiple of 4096", stripe=disks, stripe_unit=1000)
    refused("without stripe", stripe_unit="64KiB")
    assert not (tmp_path / "new.index").exists()
