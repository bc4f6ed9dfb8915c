"""Counts that show how the code is divided: run it before and after a restructuring.

    python scripts/count_structure.py            # a table
    python scripts/count_structure.py --json     # the same for programs
    python scripts/count_structure.py --list     # the places of types and tuples

It counts lines of each crate, methods and defaults of the contract between the families and the open index, the
fields of `Index`, type names that stand for more than two things, tuples of more than two in signatures, and the
lines that the strict checks of `crates/tidy` refuse.
"""

import argparse
import collections
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = {
    "Stored": "crates/index/src/family/mod.rs",
    "Searcher": "crates/index/src/family/loaded.rs",
    "Opened": "crates/index/src/family/loaded.rs",
}
VAGUE_OPENING = re.compile(r"\s*//[/!] (What|Whether|Whoever|Nobody|So many|That which|How many)\b")
# Type names that sibling modules share on purpose.
SAME_ROLE = {
    "Float": "one per instruction set, same role",
    "FloatLanes": "one per instruction set, same role",
    "Integer": "one per instruction set, same role",
}
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union) (\w+)", re.MULTILINE)
TRIPLE = re.compile(r"\((?:[^()]+, ){2,}[^()]+\)")


def body(text: str, opening: str) -> str:
    """Returns the text between the braces after `opening`, or nothing."""
    start = text.find(opening)
    if start < 0:
        return ""
    begin = text.index("{", start)
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin + 1 : at]
    return ""


def methods(trait: str, path: str) -> dict[str, int]:
    """Returns the number of methods of a trait, and of those with a default."""
    inside = body((ROOT / path).read_text(), f"trait {trait}")
    starts = [match.start() for match in re.finditer(r"^    (?:async )?fn ", inside, re.MULTILINE)]
    defaults = 0
    for start in starts:
        end = min(at for at in (inside.find(";", start), inside.find("{", start), len(inside)) if at >= 0)
        defaults += end < len(inside) and inside[end] == "{"
    return {"methods": len(starts), "defaults": defaults}


def signature_tuples(name: str, text: str) -> list[str]:
    """Returns the places of tuples of more than two in the signatures of functions."""
    places = []
    for match in re.finditer(r"\bfn (\w+)[^;{]*", text):
        signature = match[0]
        parts = [signature.partition("->")[2], *re.findall(r": (&?\([^()]*\))", signature)]
        line = text.count("\n", 0, match.start()) + 1
        for found in (found for part in parts for found in TRIPLE.findall(part)):
            places.append(f"{name}:{line} {match[1]}: {' '.join(found.split())}")
    return places


def count() -> tuple[dict[str, object], list[str]]:
    """Returns all counts, and the places of shared type names and of tuples."""
    names = subprocess.run(
        ["git", "ls-files", "*.rs"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    lines: collections.Counter[str] = collections.Counter()
    types: dict[str, list[str]] = collections.defaultdict(list)
    tuples: list[str] = []
    wide = vague = 0
    for name in names:
        text = (ROOT / name).read_text()
        if name.startswith("crates/"):
            lines[name.split("/")[1]] += text.count("\n")
        if "/tests/" not in name:
            for found in TYPE.findall(text):
                types[found].append(name)
            tuples += signature_tuples(name, text)
        wide += sum(len(line) > 110 for line in text.splitlines())
        vague += sum(bool(VAGUE_OPENING.match(line)) for line in text.splitlines())
    index = body((ROOT / "crates/index/src/open/mod.rs").read_text(), "pub struct Index ")
    shared = {
        name: places for name, places in sorted(types.items()) if len(places) > 2 and name not in SAME_ROLE
    }
    counts: dict[str, object] = {
        "lines": dict(sorted(lines.items())),
        "contract": {trait: methods(trait, path) for trait, path in CONTRACT.items()},
        "fields of Index": len(re.findall(r"^    (?:pub(?:\([^)]*\))? )?\w+:", index, re.MULTILINE)),
        "type names of more than two types": {name: len(places) for name, places in shared.items()},
        "exceptions to that": SAME_ROLE,
        "tuples of more than two in signatures": len(tuples),
        "lines over 110 columns": wide,
        "doc comments with a vague opening": vague,
    }
    return counts, [f"{name}: {place}" for name, places in shared.items() for place in places] + tuples


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description="Count how the code is divided.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="print the places of types and tuples")
    arguments = parser.parse_args()
    counts, places = count()
    if arguments.json:
        print(json.dumps(counts, indent=2))
        return
    if arguments.list:
        print("\n".join(places))
        return
    for title, value in counts.items():
        if isinstance(value, dict):
            print(f"{title} ({len(value)}):")
            for name, number in value.items():
                print(f"  {name:<20} {number}")
        else:
            print(f"{title}: {value}")


if __name__ == "__main__":
    main()
