#!/usr/bin/env bash
# Lists missing tools before anything is compiled: `check_tools.sh build` for the package, `check_tools.sh
# test` for the tests, which also compile C++. PYTHON, CARGO, CC and CXX override the default tools.
set -uo pipefail

python=${PYTHON:-python3} cargo=${CARGO:-cargo} cc=${CC:-cc} cxx=${CXX:-c++}
# The minimum version of Rust: `rust-version` in Cargo.toml.
rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
missing=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

report_missing() {
    printf 'missing: %s\n' "$1" >&2
    missing=1
}

# compiles COMPILER LANGUAGE: succeeds if the compiler makes a program that runs, which needs the headers of
# the C library.
compiles() {
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$work/program.c"
    "$1" -x "$2" "$work/program.c" -o "$work/program" 2>"$work/errors" && "$work/program"
}

version=$("$cargo" --version 2>/dev/null | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
if [ -z "$version" ]; then
    report_missing "Rust $rust or later ($cargo --version fails): https://rustup.rs installs it"
elif [ "$(printf '%s\n%s\n' "$rust" "$version" | sort -V | head -n 1)" != "$rust" ]; then
    report_missing "Rust $rust or later ($cargo has version $version): \`rustup update\`, or https://rustup.rs instead of the system's package"
fi
compiles "$cc" c || report_missing "a working C compiler ($cc fails)"
if [ "${1:-build}" = test ]; then
    compiles "$cxx" c++ || report_missing "a working C++ compiler for the tests ($cxx fails)"
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    report_missing "Python 3.10 or later ($python is not): choose another with \`make PYTHON=python3.12 ...\`"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    report_missing "Python's venv ($python -c 'import venv, ensurepip' fails)"
fi

if [ $missing = 1 ]; then
    cat >&2 <<'END'
Debian, Ubuntu:  sudo apt install make g++ python3-venv curl
Fedora:          sudo dnf install make gcc-c++ python3 curl
Rust:            curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh
END
    exit 1
fi
