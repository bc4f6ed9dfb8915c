"""Says whether the sources agree on the version, and what a release of it says.

    python scripts/release.py check                 the version is the same everywhere
    python scripts/release.py check --tag v0.2.0    and this tag may be released
    python scripts/release.py notes                 what CHANGELOG.md says of this version

The version stands in Cargo.toml (``workspace.package``), and nowhere else that can be avoided.
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
    """The version of the workspace."""
    return tomllib.loads(read(root, "Cargo.toml"))["workspace"]["package"]["version"]


def disagreements(root=ROOT):
    """What names another version than the workspace, in sentences."""
    wanted, found = version(root), []
    cargo = tomllib.loads(read(root, "Cargo.toml"))
    for manifest in sorted(root.glob("crates/*/Cargo.toml")):
        package = tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]
        if package.get("version") != {"workspace": True}:
            found.append(f"{manifest.relative_to(root).as_posix()}: version.workspace = true is missing")
        depended = cargo["workspace"]["dependencies"].get(package["name"])
        # What is not published is taken by its path alone.
        if depended is None or package.get("publish") is False:
            continue
        if depended.get("version") != wanted:
            found.append(
                f"Cargo.toml: {package['name']} should be of version {wanted}, it is of {depended.get('version')}"
            )
    project = tomllib.loads(read(root, "pyproject.toml"))["project"]
    if "version" in project or "version" not in project["dynamic"]:
        found.append("pyproject.toml: the version should be dynamic, that of crates/py")
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
        found.append(f"CITATION.cff: version is {cited and cited[1]}, it should be {wanted}")
    return found + changelog_complaints(read(root, "CHANGELOG.md"))


def changelog_complaints(text):
    """What is not as Keep a Changelog has it."""
    found, sections, headings = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            headings.append(line)
            sections = []
            if not HEADING.fullmatch(line):
                found.append(
                    f"CHANGELOG.md:{number}: a version is '## 1.2.3 - 2026-01-31' or '## Unreleased': {line}"
                )
        elif line.startswith("### "):
            name = line.removeprefix("### ")
            if name not in SECTIONS:
                found.append(f"CHANGELOG.md:{number}: no section of Keep a Changelog: {name}")
            elif name in sections or (sections and SECTIONS.index(name) < SECTIONS.index(sections[-1])):
                found.append(
                    f"CHANGELOG.md:{number}: sections go {', '.join(SECTIONS)}, each once a version: {name}"
                )
            else:
                sections.append(name)
    if not headings or "Unreleased" not in headings[0]:
        found.append("CHANGELOG.md: '## Unreleased' should come first")
    return found


def notes(text, wanted):
    """What is said of a version; None where it has no heading."""
    parts = re.split(r"^(## .*)$", text, flags=re.MULTILINE)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        match = HEADING.fullmatch(heading)
        if match and match["version"] == wanted:
            return body.strip()
    return None


def tag_complaints(tag, root=ROOT):
    """Why this tag is not to be released."""
    wanted = version(root)
    if tag != f"v{wanted}":
        return [f"the tag is {tag}, Cargo.toml has {wanted}: tag v{wanted}, or change the version first"]
    if not notes(read(root, "CHANGELOG.md"), wanted):
        return [f"CHANGELOG.md says nothing of {wanted}: give '## {wanted} - YYYY-MM-DD' what was Unreleased"]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["check", "notes"])
    parser.add_argument("--tag", help="the tag that is to be released")
    arguments = parser.parse_args()
    if arguments.what == "notes":
        said = notes(read(ROOT, "CHANGELOG.md"), version())
        if not said:
            sys.exit(f"CHANGELOG.md says nothing of {version()}")
        print(said)
        return
    found = disagreements()
    if arguments.tag is not None:
        found += tag_complaints(arguments.tag)
    if found:
        sys.exit("\n".join(found))
    print(f"everything says {version()}")


if __name__ == "__main__":
    main()
