#!/usr/bin/env bash
# Fuzzes all targets, or the named ones, on stable Rust:
#   fuzz/run.sh [vector_files ids manifest journal graph_page packed_record codec code_blocks group_page
# centroids
#       lists wire partitions collection_log segment filters requests rows_files]
# By default each target runs random inputs for SECONDS_EACH seconds (10), starting from the corpus of earlier
# runs (fuzz/corpus). With RUNS_EACH=N each target runs N inputs that are the same on every machine
# (rows_files N / 20, since it writes files). An input that breaks a reader is saved in fuzz/artifacts. To
# reproduce the failure, run the target with that file. Then add the file, without its first byte, to
# crates/index/tests/mutations/found/READER or crates/collection/tests/found/READER, whose files the tests and
# all fuzzing start from.
set -euo pipefail
cd "$(dirname "$0")"

# The flags of `cargo fuzz run --sanitizer none`: coverage counters and traced comparisons, which stable Rust
# has. Address sanitizers need nightly, and would find little, since the readers are safe code.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"

targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
    targets=(vector_files ids manifest journal graph_page packed_record codec code_blocks group_page centroids lists
        wire partitions collection_log segment filters requests rows_files)

# A separate target folder, so that these flags do not cause rebuilds of everything else. With --target they
# do not apply to build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="$coverage" cargo build --quiet --release --target "$host" --target-dir target/coverage \
    --bin=write_seeds "${targets[@]/#/--bin=}"
if [ -n "${RUNS_EACH:-}" ]; then
    rm -rf target/seeds
    "target/coverage/$host/release/write_seeds" target/seeds
else
    "target/coverage/$host/release/write_seeds" corpus
fi

for name in "${targets[@]}"; do
    mkdir -p "artifacts/$name"
    printf '== %s\n' "$name"
    if [ -n "${RUNS_EACH:-}" ]; then
        # Seeds come from a sorted list, since the order of a folder may differ. And comparisons are not
        # recorded, since addresses, which differ between runs, are compared as well.
        find "target/seeds/$name" -type f | LC_ALL=C sort | paste -s -d , | tr -d '\n' > "target/seeds/$name.list"
        runs=$RUNS_EACH
        # Each input is written as files, some of several kinds.
        [ "$name" != rows_files ] || runs=$((RUNS_EACH / 20))
        options=("-seed_inputs=@target/seeds/$name.list" -seed=1 "-runs=$runs" -use_cmp=0)
    else
        mkdir -p "corpus/$name"
        options=("corpus/$name" "-max_total_time=${SECONDS_EACH:-10}")
    fi
    "target/coverage/$host/release/$name" "${options[@]}" -artifact_prefix="artifacts/$name/" \
        -max_len=8192 -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1
done
