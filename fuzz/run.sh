#!/usr/bin/env bash
# Fuzzes every reader, or those named, for SECONDS_EACH seconds each (10) on stable Rust:
#   fuzz/run.sh [vector_files ids manifest graph_page codec group_page centroids]
# An input that breaks a promise is left in fuzz/artifacts; run a target with that file to see it again.
set -euo pipefail
cd "$(dirname "$0")"

# What `cargo fuzz run --sanitizer none` sets: coverage counters and traced comparisons, which stable has.
# Address checks need nightly and would find little here: the readers are safe code.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(vector_files ids manifest graph_page codec group_page centroids)

# A folder of its own, so that these flags do not rebuild everything else; and with --target they do not
# reach build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo run --quiet --release --bin write_seeds -- corpus
RUSTFLAGS="$coverage" cargo build --quiet --release --target "$host" --target-dir target/coverage \
    "${targets[@]/#/--bin=}"

for name in "${targets[@]}"; do
    mkdir -p "corpus/$name" "artifacts/$name"
    printf '== %s\n' "$name"
    "target/coverage/$host/release/$name" "corpus/$name" -artifact_prefix="artifacts/$name/" \
        -max_total_time="${SECONDS_EACH:-10}" -max_len=8192 -rss_limit_mb=1024 -malloc_limit_mb=64 \
        -print_final_stats=1
done
