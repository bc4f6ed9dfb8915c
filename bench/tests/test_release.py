"""The version is the same in all files, and releases with contradictions are refused."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import bathyal
import release

ROOT = Path(__file__).resolve().parents[2]


def test_all_files_have_the_same_version():
    assert release.disagreements() == []


def test_the_package_and_its_command_have_the_version_of_the_sources():
    command = shutil.which("bathyal", path=sysconfig.get_path("scripts"))
    output = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert bathyal.__version__ == release.version()
    assert output.split() == ["bathyal", release.version()]


def test_documents_do_not_name_a_version():
    """Documents would need an update with each version; users install the newest one."""
    named = re.compile(r"bathyal\s*(?:==|@|-)\s*v?(\d+\.\d+\.\d+)")
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert not named.search(document.read_text(encoding="utf-8")), document


@pytest.fixture
def copy(tmp_path):
    """A copy of the files that contain the version, for changes."""
    for name in ["Cargo.toml", "Cargo.lock", "pyproject.toml", "CITATION.cff", "CHANGELOG.md"]:
        shutil.copy(ROOT / name, tmp_path)
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        to = tmp_path / manifest.relative_to(ROOT)
        to.parent.mkdir(parents=True)
        shutil.copy(manifest, to)
    assert release.disagreements(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("name", "before", "after", "complaint"),
    [
        (
            "Cargo.toml",
            'bathyal-tier = { version = "0.1.0"',
            'bathyal-tier = { version = "0.0.9"',
            "bathyal-tier",
        ),
        ("Cargo.toml", '\nversion = "0.1.0"', '\nversion = "0.2.0"', "CITATION.cff"),
        ("Cargo.toml", '\nversion = "0.1.0"', '\nversion = "0.2.0"', "Cargo.lock"),
        ("crates/py/Cargo.toml", "version.workspace = true", 'version = "0.1.0"', "crates/py/Cargo.toml"),
        ("pyproject.toml", 'dynamic = ["version"]', 'version = "0.1.0"\ndynamic = []', "pyproject.toml"),
        ("CITATION.cff", "version: 0.1.0", "version: 0.1.1", "CITATION.cff"),
        ("CHANGELOG.md", "### Fixed", "### Mended", "no section"),
        ("CHANGELOG.md", "### Fixed", "### Added", "each once"),
        ("CHANGELOG.md", "## Unreleased", "## Soon", "Unreleased"),
    ],
)
def test_disagreements_are_found(copy, name, before, after, complaint):
    before, after = (text.replace("0.1.0", release.version(copy)) for text in (before, after))
    text = (copy / name).read_text(encoding="utf-8")
    assert before in text
    (copy / name).write_text(text.replace(before, after, 1), encoding="utf-8")
    assert complaint in "\n".join(release.disagreements(copy))


def test_a_tag_is_released_only_with_notes(copy):
    version = release.version(copy)
    assert "says nothing" in release.tag_errors(f"v{version}", copy)[0]
    log = copy / "CHANGELOG.md"
    text = log.read_text(encoding="utf-8").replace(
        "## Unreleased\n", f"## Unreleased\n\n## {version} - 2026-01-31\n", 1
    )
    log.write_text(text, encoding="utf-8")
    assert release.disagreements(copy) == []
    assert release.tag_errors(f"v{version}", copy) == []
    assert release.notes(text, version).startswith("### Added")
    for tag in ("v9.9.9", version, f"v{version}-rc1", ""):
        assert "the tag is" in release.tag_errors(tag, copy)[0]
