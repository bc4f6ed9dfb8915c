#!/usr/bin/env bash
# Packs the command, its licence and the changelog into an archive, and writes a checksum file:
#   scripts/archive.sh target/release/bathyal x86_64-unknown-linux-gnu dist
set -euo pipefail
binary=$1 target=$2 out=$3
here=$(cd "$(dirname "$0")/.." && pwd)

[ -f "$binary" ] || { echo "$binary: not found; build it with cargo build --release -p bathyal-cli" >&2; exit 1; }
version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/Cargo.toml")
name=bathyal-$version-$target
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/$name"
cp "$binary" "$here/LICENSE" "$here/README.md" "$here/CHANGELOG.md" "$work/$name/"
tar -C "$work" -czf "$out/$name.tar.gz" "$name"
# macOS has shasum in place of sha256sum.
cd "$out"
if command -v sha256sum >/dev/null; then
    sha256sum "$name.tar.gz"
else
    shasum -a 256 "$name.tar.gz"
fi > "$name.tar.gz.sha256"
cat "$name.tar.gz.sha256"
