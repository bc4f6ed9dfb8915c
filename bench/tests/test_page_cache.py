"""The page cache is measured, emptied, and kept below a limit, including mapped pages."""

import os

import numpy as np
import pytest

from bathyal_bench.page_cache import PageCache, cached_bytes, expect_random, forget, mapped_bytes, remember

MEBIBYTE = 1 << 20
# Bytes that may stay cached: dropping is a request, and the kernel keeps pages that are in flight to its
# lists.
KEPT_BYTES = MEBIBYTE


@pytest.fixture
def file(tmp_path):
    """A file of 16 MiB that can be dropped from the page cache."""
    path = tmp_path / "lists"
    path.write_bytes(os.urandom(16 * MEBIBYTE))
    forget([path])
    if cached_bytes([path]) > KEPT_BYTES:
        pytest.skip("this file system is in memory: its files cannot be dropped from the page cache")
    return path


def test_pages_that_were_read_are_counted_and_dropped(file):
    remember([file])
    # If memory is short, the kernel has reclaimed some pages already.
    assert cached_bytes([file]) >= 15 * MEBIBYTE
    assert mapped_bytes([file]) == 0
    forget([file])
    assert cached_bytes([file]) <= KEPT_BYTES


def test_mapped_pages_are_counted_and_dropped(file):
    mapped = np.memmap(file, "u1", "r")
    total = int(mapped[::4096].sum())
    assert mapped_bytes([file]) == 16 * MEBIBYTE
    forget([file])
    assert cached_bytes([file]) <= KEPT_BYTES and mapped_bytes([file]) <= KEPT_BYTES
    assert int(mapped[::4096].sum()) == total


@pytest.mark.parametrize("by_mapping", [False, True])
def test_the_cache_is_kept_near_its_limit(file, by_mapping):
    cache = PageCache([file], 4 * MEBIBYTE)
    mapped = np.memmap(file, "u1", "r")
    most = 0
    with open(file, "rb", buffering=0) as opened:
        for start in range(0, 16 * MEBIBYTE, MEBIBYTE):
            if by_mapping:
                assert mapped[start : start + MEBIBYTE : 4096].sum() > 0
            else:
                assert len(opened.read(MEBIBYTE)) == MEBIBYTE
            most = max(most, cached_bytes([file]) - mapped_bytes([file]))
            assert cache.settle() >= 0
            # Read-ahead of the kernel may still complete.
            assert cached_bytes([file]) <= 8 * MEBIBYTE
    assert cache.most >= most
    assert mapped_bytes([file]) <= cached_bytes([file])


def test_without_read_ahead_only_touched_pages_are_cached(file):
    mapped = np.memmap(file, "u1", "r")
    expect_random([file])
    assert mapped[8 * MEBIBYTE] >= 0
    assert 0 < cached_bytes([file]) < MEBIBYTE


def test_without_a_limit_nothing_is_dropped(file):
    remember([file])
    cache = PageCache([file], None)
    cache.settle()
    assert cache.most == cached_bytes([file]) == 16 * MEBIBYTE
