#!/usr/bin/env bash
# Runs the real `bathyal` in a guest with an NVDIMM and a CXL memory device, both emulated by QEMU:
#   scripts/check_dax/run.sh          or: make check-dax
# If a prerequisite is missing, the check is skipped with the reason; STRICT=1 makes that a failure. All
# fetched, built and logged files are in target/check-dax. docs/check-dax.md explains what a pass proves.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
check=check-dax
. scripts/guest/host.sh

guest_packages=(ndctl daxctl cxl)
guest_modules=('*/drivers/acpi/*' '*/drivers/cxl/*' '*/drivers/dax/*' '*/drivers/nvdimm/*' '*/fs/ext4/*' '*/fs/jbd2/*'
    '*/fs/mbcache*')
guest_programs=(bin/ndctl bin/daxctl bin/cxl)
# The label area takes 2 MiB of an NVDIMM, and the rest must be a multiple of 16 MiB.
nvdimm_size=514M
# Linux refuses to create a CXL region if it detects a hypervisor.
qemu_processor=max,-hypervisor
qemu_options=(
    -m "1536M,slots=4,maxmem=16G" -machine "q35,cxl=on,nvdimm=on"
    -object "memory-backend-ram,id=dram,size=1536M" -numa "node,nodeid=0,cpus=0-1,memdev=dram"
    -object "memory-backend-file,id=nvdimm,share=on,mem-path=$work/nvdimm.img,size=$nvdimm_size,align=2M"
    -device "nvdimm,memdev=nvdimm,label-size=2M"
    -object "memory-backend-ram,id=cxl,size=512M,share=on"
    -device "pxb-cxl,bus_nr=12,bus=pcie.0,id=host_bridge"
    -device "cxl-rp,port=0,bus=host_bridge,id=root_port,chassis=0,slot=2"
    -device "cxl-type3,bus=root_port,volatile-memdev=cxl,id=cxl_memory"
    -M "cxl-fmw.0.targets.0=host_bridge,cxl-fmw.0.size=4G"
)

# Builds the binary for the guest, statically linked since the guest does not have this machine's libraries.
build_programs() {
    local target=x86_64-unknown-linux-gnu
    RUSTFLAGS="-C target-feature=+crt-static" ${CARGO:-cargo} build --quiet --release --locked -p bathyal-cli \
        --target "$target" --target-dir "$work/build" || return
    binary=$work/build/$target/release/bathyal
}

# Builds indexes of both families, the graph in its layouts for files and for memory.
make_data() {
    rm -f "$work/nvdimm.img"
    truncate -s "$nvdimm_size" "$work/nvdimm.img" && make_indexes \
        && "$binary" build "$work/base.f16bin" "$work/data/csr.index" --metric cosine --family graph --layout csr
}

add_own() { cp "$here/guest_searches.sh" "$1/data/searches.sh"; }

run_check
