"""Checks that the sources agree on the version, and prints the notes of a release.

    python scripts/release.py check                 checks that the version is the same everywhere
    python scripts/release.py check --tag v0.2.0    also checks that this tag may be released
    python scripts/release.py notes                 prints the section of CHANGELOG.md on this version

The version is in Cargo.toml (``workspace.package``); other files repeat it only if they must.
"""

import argparse
import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
# Sections of Keep a Changelog, in its order.
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
HEADING = re.compile(
    r"## (?:\[?(?P<version>\d+\.\d+\.\d+)\]? - (?P<date>\d{4}-\d{2}-\d{2})|\[?Unreleased\]?)"
)


def read(root, name):
    return (root / name).read_text(encoding="utf-8")


def version(root=ROOT):
    """Returns the version of the workspace."""
    return tomllib.loads(read(root, "Cargo.toml"))["workspace"]["package"]["version"]


def disagreements(root=ROOT):
    """Returns a message for each file with another version than the workspace."""
    wanted, found = version(root), []
    cargo = tomllib.loads(read(root, "Cargo.toml"))
    for manifest in sorted(root.glob("crates/*/Cargo.toml")):
        package = tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]
        if package.get("version") != {"workspace": True}:
            found.append(f"{manifest.relative_to(root).as_posix()}: version.workspace = true is missing")
        depended = cargo["workspace"]["dependencies"].get(package["name"])
        # Unpublished crates are used by path, without a version.
        if depended is None or package.get("publish") is False:
            continue
        if depended.get("version") != wanted:
            found.append(
                f"Cargo.toml: {package['name']} should have version {wanted}, but has {depended.get('version')}"
            )
    project = tomllib.loads(read(root, "pyproject.toml"))["project"]
    if "version" in project or "version" not in project["dynamic"]:
        found.append("pyproject.toml: the version should be dynamic, taken from crates/py")
    locked = {
        package["name"]: package["version"]
        for package in tomllib.loads(read(root, "Cargo.lock"))["package"]
        if package["name"].startswith("bathyal") and "source" not in package
    }
    found += [
        f"Cargo.lock: {name} is {one}; run cargo check" for name, one in locked.items() if one != wanted
    ]
    cited = re.search(r"^version: (.*)$", read(root, "CITATION.cff"), re.MULTILINE)
    if cited is None or cited[1].strip("\"'") != wanted:
        found.append(f"CITATION.cff: version is {cited and cited[1]}, but should be {wanted}")
    return found + changelog_errors(read(root, "CHANGELOG.md"))


def changelog_errors(text):
    """Returns a message for each violation of the format of Keep a Changelog."""
    found, sections, headings = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            headings.append(line)
            sections = []
            if not HEADING.fullmatch(line):
                found.append(
                    f"CHANGELOG.md:{number}: expected '## 1.2.3 - 2026-01-31' or '## Unreleased', found: {line}"
                )
        elif line.startswith("### "):
            name = line.removeprefix("### ")
            if name not in SECTIONS:
                found.append(f"CHANGELOG.md:{number}: no section of Keep a Changelog: {name}")
            elif name in sections or (sections and SECTIONS.index(name) < SECTIONS.index(sections[-1])):
                found.append(
                    f"CHANGELOG.md:{number}: expected sections in the order {', '.join(SECTIONS)}, "
                    f"each once per version: {name}"
                )
            else:
                sections.append(name)
    if not headings or "Unreleased" not in headings[0]:
        found.append("CHANGELOG.md: '## Unreleased' should come first")
    return found


def notes(text, wanted):
    """Returns the section on a version, or None if there is no such section."""
    parts = re.split(r"^(## .*)$", text, flags=re.MULTILINE)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        match = HEADING.fullmatch(heading)
        if match and match["version"] == wanted:
            return body.strip()
    return None


def tag_errors(tag, root=ROOT):
    """Returns the reasons against a release of this tag."""
    wanted = version(root)
    if tag != f"v{wanted}":
        return [f"the tag is {tag}, but Cargo.toml has {wanted}: tag v{wanted}, or change the version first"]
    if not notes(read(root, "CHANGELOG.md"), wanted):
        return [
            f"CHANGELOG.md says nothing about {wanted}: rename '## Unreleased' to '## {wanted} - YYYY-MM-DD'"
        ]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["check", "notes"])
    parser.add_argument("--tag", help="tag to release")
    arguments = parser.parse_args()
    if arguments.what == "notes":
        section = notes(read(ROOT, "CHANGELOG.md"), version())
        if not section:
            sys.exit(f"CHANGELOG.md says nothing about {version()}")
        print(section)
        return
    found = disagreements()
    if arguments.tag is not None:
        found += tag_errors(arguments.tag)
    if found:
        sys.exit("\n".join(found))
    print(f"all files have version {version()}")


if __name__ == "__main__":
    main()
