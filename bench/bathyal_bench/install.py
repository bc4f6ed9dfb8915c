"""Installs the packages of the systems one by one; records the reason for each that cannot be installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bathyal_bench.peers import PEERS, peer_class

# File in the virtual environment with the packages that could not be installed, and the reasons.
FAILURES = "peers-not-installed.json"


def requirements() -> list[str]:
    """Returns the names of the packages, without Bathyal, which comes from this repository."""
    names = dict.fromkeys(peer_class(name).requirement for name in PEERS)
    return [name for name in names if name is not None and name != "bathyal"]


def main() -> int:
    failures = {}
    for name in requirements():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", name]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            print(f"{name}: installed")
            continue
        errors = [line for line in done.stderr.strip().splitlines() if line.startswith("ERROR")]
        failures[name] = (
            f"pip cannot install it: {(errors or ['no reason given'])[-1].removeprefix('ERROR: ')}"
        )
        print(f"{name}: {failures[name]}")
    (Path(sys.prefix) / FAILURES).write_text(json.dumps(failures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
