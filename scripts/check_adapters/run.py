"""Runs the adapters in bench/ann_benchmarks with their programs, over small generated sets.

Fetches ann-benchmarks and big-ann-benchmarks at the commits below into the work folder, copies the adapters
into them, and generates sets in place of the real ones. The programs then run every configuration outside
Docker; for the streaming and the filter track only those for small sets. Each run must write its result file,
with the name that the program gives it and a sufficient recall.

Needs Python with bathyal, PyYAML, numpy, h5py and the other imports of these programs (``make
check-adapters``).
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ADAPTERS = HERE.parents[1] / "bench/ann_benchmarks"
COMMITS = {
    "ann-benchmarks": "f402b2cc17b980d7cd45241ab5a7a4cc0f965e55",
    "big-ann-benchmarks": "452e508b72e98f1be6e7bca1a6c98dbf1bc5e967",
}
SOURCES = {
    "ann-benchmarks": "https://github.com/erikbern/ann-benchmarks",
    "big-ann-benchmarks": "https://github.com/harsha-simhadri/big-ann-benchmarks",
}
SCRIPTS = {
    "ann-benchmarks": ["run_ann.py"],
    "big-ann-benchmarks": ["run_big_ann.py", "run_big_ann_tracks.py"],
}
# Adapters, and their folders in the programs.
TARGETS = {
    "ann-benchmarks": {"bathyal": "ann_benchmarks/algorithms/bathyal"},
    "big-ann-benchmarks": {
        "bathyal": "neurips23/ood/bathyal",
        "streaming/bathyal": "neurips23/streaming/bathyal",
        "filter/bathyal": "neurips23/filter/bathyal",
    },
}
# Time limit of a script. The sets take seconds.
TIMEOUT_S = 900


def checkout(program, source, work):
    """Fetches the sources of ``program`` at its commit, copies the adapters into them, and returns the
    folder.
    """
    folder = work / program
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def git(*arguments):
        subprocess.run(["git", "-C", folder, *arguments], check=True)

    git("init", "--quiet")
    git("fetch", "--quiet", "--depth", "1", source, COMMITS[program])
    git("checkout", "--quiet", "FETCH_HEAD")
    for adapter, target in TARGETS[program].items():
        ignored = shutil.ignore_patterns("*.whl", "__pycache__")
        shutil.copytree(ADAPTERS / program / adapter, folder / target, ignore=ignored)
    return folder


def run(folder, *arguments):
    """Runs a script of this folder in ``folder``. Returns its result lines; exits with all output if it
    fails.
    """
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, timeout=TIMEOUT_S, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(command)} in {folder} failed with exit code {done.returncode}")
    return "\n".join(line for line in done.stdout.splitlines() if "configurations, recall" in line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("target/adapters"), help="folder of the checkouts")
    for program, source in SOURCES.items():
        parser.add_argument(f"--{program}", default=source, help="repository to fetch from")
    arguments = vars(parser.parse_args())
    work = arguments["work"].resolve()
    for program in SOURCES:
        folder = checkout(program, arguments[program.replace("-", "_")], work)
        for script in SCRIPTS[program]:
            print(run(folder, HERE / script), flush=True)


if __name__ == "__main__":
    main()
