# Sourced by the run.sh of a check that boots a guest. run.sh sets before sourcing:
#   check     name of the check; all fetched, built and logged files are in target/$check
#   here      folder of the check, with guest_checks.sh; the working directory is the root of the repository
# and before run_check:
#   guest_packages, guest_modules   (see system.sh)     guest_programs    (see initramfs.sh)
#   qemu_options   devices of the guest's machine; qemu_processor, if not the best emulated processor
#   build_programs, make_data, add_own   functions that build programs, make data, and add files to the guest
# If a prerequisite is missing, the check is skipped with the reason; STRICT=1 makes that a failure.

guest=scripts/guest
work=$PWD/target/$check
mkdir -p "$work"
# A guest that takes longer is considered hung.
boot_limit_s=${BOOT_LIMIT_S:-300}
# Enough rows for several groups and pages, and few enough for emulated devices.
rows=6000
query_rows=40
qemu_processor=max

say() { printf '%s: %s\n' "$check" "$*"; }

skip() {
    say "SKIPPED: $*"
    [ "${STRICT:-0}" != 1 ] || exit 1
    exit 0
}

fail() {
    tail -n 20 "$2"
    say "FAILED: $1; full log: $2"
    exit 1
}

. "$guest/system.sh"
. "$guest/initramfs.sh"

# take_rows SOURCE FIRST COUNT: prints an .f16bin file with COUNT rows of SOURCE, from row FIRST on.
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

# Makes vectors, queries, exact answers, and an index of each of two families.
make_indexes() {
    local words=testdata/glove-words/vectors.f16bin data=$work/data
    rm -rf "$data"
    mkdir -p "$data"
    # Joined by &&, since a failure here does not end the script; the caller reports it.
    take_rows "$words" 0 "$rows" > "$work/base.f16bin" \
        && take_rows "$words" "$rows" "$query_rows" > "$data/queries.f16bin" \
        && "$binary" groundtruth "$work/base.f16bin" "$data/queries.f16bin" "$data/truth.ibin" -k 10 --metric cosine \
        && "$binary" build "$work/base.f16bin" "$data/cluster.index" --metric cosine \
        && "$binary" build "$work/base.f16bin" "$data/graph.index" --metric cosine --family graph
}

# Boots the guest and waits until it powers off.
boot() {
    rm -f "$work/console.log" "$work/verdicts.log"
    timeout "$boot_limit_s" "$loader" --library-path "$libraries" "$work/system/usr/bin/qemu-system-x86_64" \
        -L "$work/system/usr/share/qemu" -L "$work/system/usr/share/seabios" \
        -accel tcg,thread=multi -cpu "$qemu_processor" -smp 2 \
        -nographic -nodefaults -no-reboot -serial "file:$work/console.log" -serial "file:$work/verdicts.log" \
        -kernel "$(echo "$work"/system/boot/vmlinuz*)" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 loglevel=4 panic=-1 memhp_default_state=online_movable" \
        "${qemu_options[@]}" < /dev/null > "$work/qemu.log" 2>&1
}

# Prints the guest's verdicts. Succeeds if all expected verdicts are there and passed.
print_verdicts() {
    local name found uptime failed=0
    while read -r name; do
        read -r found uptime < <(sed -n "s/^\([a-z]*\) $name \([0-9.]*\)\$/\1 \2/p" "$work/verdicts.log") || true
        case ${found:-none} in
            pass) printf '  passed  %s (%s s after the boot began)\n' "$name" "$uptime" ;;
            none) failed=1; printf '  FAILED  %s: the guest did not finish it\n' "$name" ;;
            *)
                failed=1
                printf '  FAILED  %s\n' "$name"
                sed -n "/^begin $name\$/,/^end $name\$/s/^/            /p" "$work/console.log" ;;
        esac
    done < <(sed -n 's/^check \([a-z_]*\)$/\1/p' "$here/guest_checks.sh")
    return "$failed"
}

# Runs the whole check.
run_check() {
    local began ended=0 verdict=passed
    prepare_system
    loader=$work/system/usr/lib64/ld-linux-x86-64.so.2
    libraries=$work/system/usr/lib/x86_64-linux-gnu
    busybox=$work/system/usr/bin/busybox
    say "building the programs"
    build_programs > "$work/build.log" 2>&1 || fail "the programs could not be built" "$work/build.log"
    make_data > "$work/data.log" 2>&1 || fail "the indexes could not be built" "$work/data.log"
    pack_initramfs
    say "booting the guest (a minute or two, at most $boot_limit_s s); its console: $work/console.log"
    began=$SECONDS
    boot || ended=$?
    # The guest's ports are terminals, which end lines with CR LF.
    touch "$work/console.log" "$work/verdicts.log"
    sed -i 's/\r//g' "$work/console.log" "$work/verdicts.log"
    case $ended in
        0) ;;
        124) say "the guest did not end within $boot_limit_s s" ;;
        *) say "QEMU ended with $ended: $(tail -n 1 "$work/qemu.log")" ;;
    esac
    print_verdicts && [ "$ended" = 0 ] || verdict=FAILED
    say "$verdict in $((SECONDS - began)) s of guest"
    [ "$verdict" = passed ]
}
