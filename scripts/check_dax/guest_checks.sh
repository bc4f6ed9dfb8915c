# What the guest checks. The host reads the names of the lines that begin with "check" and wants a verdict of each.

families="cluster graph"
queries=/data/queries.f16bin
# A fixed effort: one that is derived from a recall depends on what reads cost on the tier.
search_list=40
nvdimm=/dev/dax0.0
cxl_rest=dax1.0
cxl_small=dax1.1
# The least that a DAX device can have, and with its header less than any of the indexes.
small_bytes=2097152

# Runs a function and tells the host how it went: one line on a port of its own, where the kernel writes nothing.
check() {
    echo "begin $1"
    if "$@" > /run/output 2>&1; then verdict=pass; else verdict=fail; fi
    cat /run/output
    echo "end $1"
    echo "$verdict $1 $(cut -d ' ' -f 1 /proc/uptime)" > /dev/ttyS1
}

# Polls for a file, since devices appear some time after the command that makes them; gives up after 20 s.
await() {
    for _ in $(seq 200); do
        [ ! -e "$1" ] || return 0
        usleep 100000
    done
    echo "$1 does not appear"
    return 1
}

# Searches the index of a family on a tier; the answers go to the file named last.
search() {
    bathyal search "/data/$1.index" "$queries" -k 10 --search-list "$search_list" \
        --groundtruth /data/truth.ibin --tier "$2" --output "$3"
}

# The same, and the answers, with their distances, have to be those of the DRAM tier to the bit.
same_as_dram() {
    search "$1" "$2" /run/found.ibin && cmp /run/found.ibin "/run/$1.ibin"
}

# Runs a command that has to end with an error, not with a crash, and to say all of the given words.
fails_saying() {
    words=$1
    shift
    "$@" > /run/said 2>&1
    ended=$?
    cat /run/said
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] || { echo "ended with $ended"; return 1; }
    for word in $words; do
        grep -qF -- "$word" /run/said || { echo "does not say $word"; return 1; }
    done
}

modules_load() {
    modprobe -a nfit nd_pmem dax_pmem device_dax cxl_acpi cxl_pci cxl_mem cxl_port dax_cxl
}

nvdimm_is_a_dax_device() {
    ndctl create-namespace -f -e namespace0.0 -m devdax && await "$nvdimm"
}

# The CXL memory as two DAX devices: a small one that stays one, and the rest, which becomes a node.
cxl_memory_is_two_dax_devices() {
    cxl create-region -t ram -m -d decoder0.0 mem0 && await "/sys/bus/dax/devices/$cxl_rest" || return
    # A device is born with a driver, and cannot be resized while it has one.
    daxctl disable-device "$cxl_rest" && daxctl reconfigure-device -s 256M "$cxl_rest" || return
    region=$(basename "$(dirname "$(readlink -f "/sys/bus/dax/devices/$cxl_rest")")")
    daxctl create-device -r "${region#dax_region}" -s "$small_bytes" && await "/dev/$cxl_small" || return
    size=$(cat "/sys/bus/dax/devices/$cxl_small/size")
    [ "$size" = "$small_bytes" ] || { echo "$cxl_small has $size bytes"; return 1; }
}

# The module takes the device without a driver as it is loaded.
cxl_memory_is_a_node_without_processors() {
    modprobe kmem || return
    node=$(cat "/sys/bus/dax/devices/$cxl_rest/target_node")
    about=/sys/devices/system/node/node$node
    await "$about/meminfo" || return
    echo "processors of node $node: '$(cat "$about/cpulist")'"
    for _ in $(seq 200); do
        [ "$(sed -n 's/.*MemTotal: *\([0-9]*\) kB/\1/p' "$about/meminfo")" -eq 0 ] || break
        usleep 100000
    done
    head -n 2 "$about/meminfo"
    [ -z "$(cat "$about/cpulist")" ] && ! grep -q 'MemTotal: *0 kB' "$about/meminfo"
}

dram_answers() {
    for family in $families; do search "$family" dram "/run/$family.ibin" || return; done
}

files_answer_like_dram() {
    for family in $families; do same_as_dram "$family" file || return; done
}

check modules_load
check nvdimm_is_a_dax_device
check cxl_memory_is_two_dax_devices
check cxl_memory_is_a_node_without_processors
check dram_answers
check files_answer_like_dram
