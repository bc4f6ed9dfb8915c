"""Messages and attributes of exceptions."""

import errno
import os
import pathlib
import re

import numpy as np
import pytest

import bathyal
from bathyal import _bathyal

ROWS = np.arange(40, dtype=np.float32).reshape(20, 2)
SOURCES = pathlib.Path(__file__).parents[2] / "crates"
LIBRARIES = ("kernels", "tier", "store", "object", "remote", "gpu", "vectors", "index", "collection")
COMMANDS = {"probe", "memory-node", "aws"}
"""Features that Python has no function for, so that messages may name the command."""


def test_missing_files_and_indexes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: bathyal.open("nope"),
        lambda: bathyal.verify("nope"),
        lambda: bathyal.inspect("nope"),
        lambda: bathyal.compact("nope"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "nope")
        assert str(caught.value) in (
            "[Errno 2] the path does not exist; check it: 'nope'",
            "[Errno 2] there is no such index: 'nope'",
        )
    with pytest.raises(FileNotFoundError) as caught:
        bathyal.build("nope.fbin", "index")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "nope.fbin")
    assert str(caught.value) == "[Errno 2] cannot find the file: No such file or directory: 'nope.fbin'"
    with pytest.raises(FileNotFoundError) as caught:
        bathyal.open("memory://nope")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "memory://nope")


def test_existing_targets(tmp_path):
    bathyal.build(ROWS, tmp_path / "i").close()
    with pytest.raises(FileExistsError) as caught:
        bathyal.build(ROWS, tmp_path / "i")
    assert (caught.value.errno, caught.value.filename) == (errno.EEXIST, str(tmp_path / "i"))
    assert "overwrite=True" in str(caught.value) and "--" not in str(caught.value)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(bathyal.Error, match="overwrite=True will not delete it") as other:
        bathyal.build(ROWS, tmp_path / "mine", overwrite=True)
    assert "--" not in str(other.value)


def test_an_index_that_another_handle_changes(tmp_path):
    bathyal.build(ROWS, tmp_path / "i", family="lsh").close()
    with bathyal.open(tmp_path / "i") as one, bathyal.open(tmp_path / "i") as other:
        one.delete([0])
        with pytest.raises(BlockingIOError) as caught:
            other.delete([1])
    assert caught.value.errno == errno.EAGAIN and "another writer" in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be nobody for a while")
def test_files_without_permission(tmp_path):
    file = tmp_path / "v.fbin"
    bathyal.write_vectors(file, ROWS)
    file.chmod(0)
    tmp_path.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError) as caught:
            bathyal.read_vectors(file)
    except FileNotFoundError:
        pytest.skip("nobody may not look into the folder of the tests")
    finally:
        os.seteuid(0)
    assert (caught.value.errno, caught.value.filename) == (errno.EACCES, str(file))


def test_messages_of_damage_name_python_functions(tmp_path):
    bathyal.build(ROWS, tmp_path / "i", family="flat").close()
    file = next(path for path in (tmp_path / "i").iterdir() if path.name == "vectors.bin")
    file.write_bytes(bytes(len(file.read_bytes())))
    with bathyal.open(tmp_path / "i") as index, pytest.raises(bathyal.DamagedIndexError) as caught:
        index.search(ROWS)
    assert "call bathyal.verify()" in str(caught.value) and "`" not in str(caught.value)


def strings():
    """Yields the string literals in the sources of the library, with continued lines joined."""
    for crate in LIBRARIES:
        for file in (SOURCES / crate / "src").rglob("*.rs"):
            text = file.read_text().split("#[cfg(test)]")[0]
            text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
            for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL):
                yield file, re.sub(r"\\\n\s*", "", quoted)


@pytest.mark.skipif(not SOURCES.is_dir(), reason="the package without its sources")
def test_no_message_names_options_of_the_command():
    found = 0
    for file, message in strings():
        if (
            not re.search(r"(?<![\w-])--[a-z]|`bathyal |(?<!\w)-k\b", message)
            or "larger --capacity" in message
        ):
            continue
        found += 1
        translated = _bathyal.message_in_python(message)
        typed = re.findall(r"`bathyal ([a-z-]+)[^`]*`", translated)
        assert set(typed) <= COMMANDS, f"{file.name}: {translated}"
        rest = re.sub(r"`[^`]*`", "", translated)
        assert not re.search(r"(?<![\w-])--[a-z]|(?<!\w)-k\b", rest), f"{file.name}: {translated}"
    assert found > 10, "the library has such messages"


def test_other_messages_are_not_changed():
    for message in ("a--b: no such file", "/data/x --y/v.fbin: row 3 is NaN", "-1 is below 0"):
        assert _bathyal.message_in_python(message) == message
