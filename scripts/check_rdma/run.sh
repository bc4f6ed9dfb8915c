#!/usr/bin/env bash
# Runs the real `bathyal` and the tests of its memory node in a guest with an RDMA device, which Linux
# emulates (soft RoCE):
#   scripts/check_rdma/run.sh          or: make check-rdma
# If a prerequisite is missing, the check is skipped with the reason; STRICT=1 makes that a failure. All
# fetched, built and logged files are in target/check-rdma. docs/check-rdma.md explains what a pass proves.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
check=check-rdma
. scripts/guest/host.sh
# It took 67 to 174 s on two busy cores, mostly for the tests of tiers.
boot_limit_s=${BOOT_LIMIT_S:-600}

# The library, its provider for soft RoCE, and the command that creates the device.
guest_packages=(libibverbs1 ibverbs-providers iproute2)
guest_modules=('*/drivers/infiniband/core/*' '*/drivers/infiniband/sw/rxe/*' '*/net/ipv4/udp_tunnel*'
    '*/net/ipv6/ip6_udp_tunnel*' '*/drivers/net/dummy*' '*/kernel/crypto/crc32_generic*')
guest_programs=(bin/rdma)
qemu_options=(-m 2G -machine q35)

# Builds dynamically linked programs, since they open libraries at run time. They use the guest's libraries.
build_programs() {
    local build=(--quiet --release --locked --target-dir "$work/build")
    ${CARGO:-cargo} build "${build[@]}" -p bathyal-cli || return
    binary=$work/build/release/bathyal
    ${CARGO:-cargo} test "${build[@]}" --no-run -p bathyal-remote --lib --test node --message-format json \
        > "$work/tests.json" || return
    unit_tests=$(test_program lib) && node_tests=$(test_program test)
}

# test_program KIND: prints the path of the test program of this kind that cargo has built.
test_program() {
    grep -F "\"kind\":[\"$1\"]" "$work/tests.json" | grep -o '"executable":"[^"]*"' | cut -d '"' -f 4 | grep .
}

# Also builds an index with long reads.
make_data() {
    make_indexes \
        && "$binary" build "$work/base.f16bin" "$work/data/partitioned.index" --metric cosine --family partitioned \
            --partition-vectors 300 \
        && cp "$work/base.f16bin" "$work/data/"
}

add_own() {
    local root=$1 provider library=$libraries/libibverbs.so.1
    cp "$here/guest_searches.sh" "$root/data/searches.sh"
    cp "$unit_tests" "$root/bin/unit-tests"
    cp "$node_tests" "$root/bin/node-tests"
    for program in bathyal unit-tests node-tests; do add_libraries "$root" "$root/bin/$program"; done
    # The library opens its provider from a path chosen at its build, by a configuration file in /etc.
    cp -L "$library" "$root/lib/"
    add_libraries "$root" "$library"
    mkdir -p "$root/lib/x86_64-linux-gnu/libibverbs" "$root/etc/libibverbs.d"
    for provider in "$libraries"/libibverbs/librxe-*.so; do
        cp -L "$provider" "$root/lib/x86_64-linux-gnu/libibverbs/"
        add_libraries "$root" "$provider"
    done
    cp "$work/system/etc/libibverbs.d/rxe.driver" "$root/etc/libibverbs.d/"
}

run_check
