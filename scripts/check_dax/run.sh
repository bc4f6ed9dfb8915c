#!/usr/bin/env bash
# Runs the real `bathyal` in a guest with an NVDIMM and a CXL memory device, both emulated by QEMU:
#   scripts/check_dax/run.sh          or: make check-dax
# What cannot be had skips the check with its reason, and STRICT=1 makes that a failure. Everything that is
# fetched, built or logged lies in target/check-dax. docs/check-dax.md says what a pass proves.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
work=$PWD/target/check-dax
mkdir -p "$work"

# A guest that takes longer hangs: it took 82 to 134 s on two cores with other work on them.
boot_limit_s=${BOOT_LIMIT_S:-300}
# Enough for several groups and pages, and little enough for a device whose every load traps into QEMU.
rows=6000
query_rows=40
# A label area takes 2 MiB of an NVDIMM, and the rest has to be a multiple of 16 MiB.
nvdimm_size=514M

say() { printf 'check-dax: %s\n' "$*"; }

skip() {
    say "SKIPPED: $*"
    [ "${STRICT:-0}" != 1 ] || exit 1
    exit 0
}

fail() {
    tail -n 20 "$2"
    say "FAILED: $1; all of it: $2"
    exit 1
}

. "$here/system.sh"
. "$here/initramfs.sh"

# The binary for the guest, which has none of this machine's libraries.
build_binary() {
    local target=x86_64-unknown-linux-gnu
    RUSTFLAGS="-C target-feature=+crt-static" ${CARGO:-cargo} build --quiet --release --locked -p bathyal-cli \
        --target "$target" --target-dir "$work/build" || return
    binary=$work/build/$target/release/bathyal
}

# Writes `count` rows of an .f16bin file from row `first` on as a file of their own.
take_rows() {
    local source=$1 first=$2 count=$3 dim
    dim=$(od -A n -t u4 -j 4 -N 4 "$source" | tr -d ' ')
    for number in "$count" "$dim"; do
        printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((number & 255)) $((number >> 8 & 255)) \
            $((number >> 16 & 255)) $((number >> 24)))"
    done
    dd if="$source" bs=$((2 * dim)) iflag=skip_bytes,count_bytes,fullblock status=none \
        skip=$((8 + 2 * dim * first)) count=$((2 * dim * count))
}

# Indexes of both families, the graph in its layout for files and in that for memory; queries; the exact answers.
make_data() {
    local words=testdata/glove-words/vectors.f16bin data=$work/data
    rm -rf "$data"
    mkdir -p "$data"
    # Joined, since a failure here does not end the script by itself: the caller reports it.
    take_rows "$words" 0 "$rows" > "$work/base.f16bin" \
        && take_rows "$words" "$rows" "$query_rows" > "$data/queries.f16bin" \
        && "$binary" groundtruth "$work/base.f16bin" "$data/queries.f16bin" "$data/truth.ibin" -k 10 --metric cosine \
        && "$binary" build "$work/base.f16bin" "$data/cluster.index" --metric cosine \
        && "$binary" build "$work/base.f16bin" "$data/graph.index" --metric cosine --family graph \
        && "$binary" build "$work/base.f16bin" "$data/csr.index" --metric cosine --family graph --layout csr
}

# Boots the guest and waits for it to turn itself off.
boot() {
    rm -f "$work/nvdimm.img" "$work/console.log" "$work/verdicts.log"
    truncate -s "$nvdimm_size" "$work/nvdimm.img"
    # Linux refuses to make a CXL region under a hypervisor that it knows of, hence -hypervisor.
    timeout "$boot_limit_s" "$loader" --library-path "$libraries" "$work/system/usr/bin/qemu-system-x86_64" \
        -L "$work/system/usr/share/qemu" -L "$work/system/usr/share/seabios" \
        -accel tcg,thread=multi -cpu max,-hypervisor -smp 2 -m 1536M,slots=4,maxmem=16G \
        -machine q35,cxl=on,nvdimm=on -nographic -nodefaults -no-reboot -serial "file:$work/console.log" \
        -serial "file:$work/verdicts.log" \
        -kernel "$(echo "$work"/system/boot/vmlinuz*)" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 loglevel=4 panic=-1 memhp_default_state=online_movable" \
        -object memory-backend-ram,id=dram,size=1536M -numa node,nodeid=0,cpus=0-1,memdev=dram \
        -object memory-backend-file,id=nvdimm,share=on,"mem-path=$work/nvdimm.img,size=$nvdimm_size,align=2M" \
        -device nvdimm,memdev=nvdimm,label-size=2M \
        -object memory-backend-ram,id=cxl,size=512M,share=on \
        -device pxb-cxl,bus_nr=12,bus=pcie.0,id=host_bridge \
        -device cxl-rp,port=0,bus=host_bridge,id=root_port,chassis=0,slot=2 \
        -device cxl-type3,bus=root_port,volatile-memdev=cxl,id=cxl_memory \
        -M cxl-fmw.0.targets.0=host_bridge,cxl-fmw.0.size=4G \
        < /dev/null > "$work/qemu.log" 2>&1
}

# Prints the guest's verdicts and returns whether all that were due came and were good.
judge() {
    local name found uptime failed=0
    while read -r name; do
        read -r found uptime < <(sed -n "s/^\([a-z]*\) $name \([0-9.]*\)\$/\1 \2/p" "$work/verdicts.log") || true
        case ${found:-none} in
            pass) printf '  passed  %s (%s s after the boot began)\n' "$name" "$uptime" ;;
            none) failed=1; printf '  FAILED  %s: the guest did not come to its end\n' "$name" ;;
            *)
                failed=1
                printf '  FAILED  %s\n' "$name"
                sed -n "/^begin $name\$/,/^end $name\$/s/^/            /p" "$work/console.log" ;;
        esac
    done < <(sed -n 's/^check \([a-z_]*\)$/\1/p' "$here/guest_checks.sh")
    return "$failed"
}

prepare_system
loader=$work/system/usr/lib64/ld-linux-x86-64.so.2
libraries=$work/system/usr/lib/x86_64-linux-gnu
busybox=$work/system/usr/bin/busybox
say "building the binary, static"
build_binary > "$work/build.log" 2>&1 || fail "the binary does not build" "$work/build.log"
make_data > "$work/data.log" 2>&1 || fail "the indexes do not build" "$work/data.log"
pack_initramfs
say "booting the guest (a minute or two, at most $boot_limit_s s); its console: $work/console.log"
began=$SECONDS
ended=0
boot || ended=$?
# The guest's ports are terminals, which end lines in their own way.
touch "$work/console.log" "$work/verdicts.log"
sed -i 's/\r//g' "$work/console.log" "$work/verdicts.log"
case $ended in
    0) ;;
    124) say "the guest did not end within $boot_limit_s s" ;;
    *) say "QEMU ended with $ended: $(tail -n 1 "$work/qemu.log")" ;;
esac
verdict=passed
judge && [ "$ended" = 0 ] || verdict=FAILED
say "$verdict in $((SECONDS - began)) s of guest"
[ "$verdict" = passed ]
