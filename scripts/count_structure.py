"""Counts that show how the code is divided: run it before and after a restructuring.

    python scripts/count_structure.py            # a table
    python scripts/count_structure.py --json     # the same for programs

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


def signature_tuples(text: str) -> int:
    """Counts tuples of more than two in the signatures of functions."""
    signatures = re.findall(r"\bfn \w+[^;{]*", text)
    return sum(
        len(TRIPLE.findall(part))
        for signature in signatures
        for part in [signature.partition("->")[2], *re.findall(r": (&?\([^()]*\))", signature)]
    )


def count() -> dict[str, object]:
    """Returns all counts."""
    names = subprocess.run(
        ["git", "ls-files", "*.rs"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    lines: collections.Counter[str] = collections.Counter()
    types: dict[str, list[str]] = collections.defaultdict(list)
    tuples = wide = vague = 0
    for name in names:
        text = (ROOT / name).read_text()
        if name.startswith("crates/"):
            lines[name.split("/")[1]] += text.count("\n")
        if "/tests/" not in name:
            for found in TYPE.findall(text):
                types[found].append(name)
            tuples += signature_tuples(text)
        wide += sum(len(line) > 110 for line in text.splitlines())
        vague += sum(bool(VAGUE_OPENING.match(line)) for line in text.splitlines())
    index = body((ROOT / "crates/index/src/open/mod.rs").read_text(), "pub struct Index ")
    return {
        "lines": dict(sorted(lines.items())),
        "contract": {trait: methods(trait, path) for trait, path in CONTRACT.items()},
        "fields of Index": len(re.findall(r"^    (?:pub(?:\([^)]*\))? )?\w+:", index, re.MULTILINE)),
        "type names of more than two types": {
            name: len(places) for name, places in sorted(types.items()) if len(places) > 2
        },
        "tuples of more than two in signatures": tuples,
        "lines over 110 columns": wide,
        "doc comments with a vague opening": vague,
    }


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description="Count how the code is divided.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    counts = count()
    if parser.parse_args().json:
        print(json.dumps(counts, indent=2))
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
