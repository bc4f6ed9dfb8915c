#!/usr/bin/env bash
# Fuzzes every reader, or those named, on stable Rust:
#   fuzz/run.sh [vector_files ids manifest journal graph_page packed_record codec code_blocks group_page centroids
#       lists wire partitions collection_log segment filters rows_files]
# Without more, each is searched at random for SECONDS_EACH seconds (10), from what was found before (fuzz/corpus).
# With RUNS_EACH=N each is given N inputs (rows_files a twentieth of that: it writes files) that are the same every time, however
# fast the machine is.
# An input that breaks a promise is left in fuzz/artifacts; run a target with that file to see it again, and add it,
# without its first byte, to crates/index/tests/mutations/found/READER or crates/collection/tests/found/READER, which the
# tests and all fuzzing begin with.
set -euo pipefail
cd "$(dirname "$0")"

# What `cargo fuzz run --sanitizer none` sets: coverage counters and traced comparisons, which stable has.
# Address checks need nightly and would find little here: the readers are safe code.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"

targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
    targets=(vector_files ids manifest journal graph_page packed_record codec code_blocks group_page centroids lists
        wire partitions collection_log segment filters rows_files)

# A folder of its own, so that these flags do not rebuild everything else; and with --target they do not
# reach build scripts.
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
        # No folder that is read in any order, and no comparisons remembered: addresses, which differ from run to
        # run, are compared too.
        find "target/seeds/$name" -type f | LC_ALL=C sort | paste -s -d , | tr -d '\n' > "target/seeds/$name.list"
        runs=$RUNS_EACH
        # Each input becomes files, some of several kinds.
        [ "$name" != rows_files ] || runs=$((RUNS_EACH / 20))
        what=("-seed_inputs=@target/seeds/$name.list" -seed=1 "-runs=$runs" -use_cmp=0)
    else
        mkdir -p "corpus/$name"
        what=("corpus/$name" "-max_total_time=${SECONDS_EACH:-10}")
    fi
    "target/coverage/$host/release/$name" "${what[@]}" -artifact_prefix="artifacts/$name/" \
        -max_len=8192 -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1
done
