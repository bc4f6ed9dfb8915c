# The checks in the guest. The host reads the names from the lines that begin with "check", and expects a
# verdict for each.

. /data/verdicts.sh
. /data/searches.sh
set -o pipefail

indexes="cluster graph csr"
nvdimm=/dev/dax0.0
cxl_rest=dax1.0
cxl_small=dax1.1
# The smallest size of a DAX device: too small for the pages of the graph, enough for those of the cluster
# index.
small_bytes=2097152

modules_load() {
    modprobe -a nfit nd_pmem dax_pmem device_dax cxl_acpi cxl_pci cxl_mem cxl_port dax_cxl
}

nvdimm_is_a_dax_device() {
    ndctl create-namespace -f -e namespace0.0 -m devdax && await "$nvdimm"
}

# Splits the CXL memory into two DAX devices: a small one, and the rest, which later becomes a node.
cxl_memory_is_two_dax_devices() {
    cxl create-region -t ram -m -d decoder0.0 mem0 && await "/sys/bus/dax/devices/$cxl_rest" || return
    # A new device has a driver, and cannot be resized while it has one.
    daxctl disable-device "$cxl_rest" && daxctl reconfigure-device -s 256M "$cxl_rest" || return
    region=$(basename "$(dirname "$(readlink -f "/sys/bus/dax/devices/$cxl_rest")")")
    daxctl create-device -r "${region#dax_region}" -s "$small_bytes" && await "/dev/$cxl_small" || return
    size=$(cat "/sys/bus/dax/devices/$cxl_small/size")
    [ "$size" = "$small_bytes" ] || { echo "$cxl_small has $size bytes"; return 1; }
}

cxl_node() { cat "/sys/bus/dax/devices/$cxl_rest/target_node"; }

# When the module is loaded it takes the device without a driver, whose blocks come online one by one.
cxl_memory_is_a_node_without_processors() {
    modprobe kmem || return
    about=/sys/devices/system/node/node$(cxl_node)
    await "$about/meminfo" || return
    for _ in $(seq 200); do
        grep -q 'MemTotal: *0 kB' "$about/meminfo" || break
        usleep 100000
    done
    head -n 2 "$about/meminfo"
    echo "processors: '$(cat "$about/cpulist")'"
    ! grep -q 'MemTotal: *0 kB' "$about/meminfo" && [ -z "$(cat "$about/cpulist")" ]
}

dram_answers() {
    for index in $indexes; do search "$index" dram "/run/$index.ibin" || return; done
}

files_answer_like_dram() {
    for index in $indexes; do same_as_dram "$index" file || return; done
}

# Searches each index twice: first it is loaded over the previous contents, then it is found there.
devdax_answers_like_dram() {
    for index in $indexes; do
        same_as_dram "$index" "mapped:$nvdimm" && same_as_dram "$index" "mapped:$nvdimm,verify" || return
    done
}

# A process with read access only finds the index that another process has loaded, and cannot load another
# index.
devdax_is_loaded_once() {
    same_as_dram cluster "mapped:$nvdimm" || return
    chmod 644 "$nvdimm"
    su reader -c ". /data/searches.sh; same_as_dram cluster mapped:$nvdimm" || return
    fails_saying "$nvdimm: the index is not loaded there" \
        su reader -c ". /data/searches.sh; search graph mapped:$nvdimm /run/none.ibin"
}

# A probe only reads, so a process with read access only still finds the index.
devdax_probe_leaves_what_is_there() {
    same_as_dram cluster "mapped:$nvdimm" || return
    bathyal probe --tier "mapped:$nvdimm" --size 16MB || return
    su reader -c ". /data/searches.sh; same_as_dram cluster mapped:$nvdimm"
}

# Two processes need different indexes: one loads its index, the other waits for it.
devdax_is_shared_by_two_processes() {
    same_as_dram cluster "mapped:$nvdimm" || return
    same_as_dram graph "mapped:$nvdimm" > /run/first 2>&1 &
    same_as_dram graph "mapped:$nvdimm"
    second=$?
    wait $!
    first=$?
    cat /run/first
    [ "$first" = 0 ] && [ "$second" = 0 ]
}

# CXL memory as a device that is just large enough.
cxl_devdax_answers_like_dram() {
    same_as_dram cluster "mapped:/dev/$cxl_small" && same_as_dram cluster "mapped:/dev/$cxl_small"
}

# Prints the number of pages that the node has allocated.
pages_allocated() { sed -n 's/^numa_hit //p' "/sys/devices/system/node/node$(cxl_node)/numastat"; }

cxl_node_answers_like_dram() {
    for index in $indexes; do
        before=$(pages_allocated)
        same_as_dram "$index" "mapped:node=$(cxl_node)" || return
        allocated=$(($(pages_allocated) - before))
        echo "the node allocated $allocated pages"
        [ "$allocated" -gt 0 ] || return
    done
}

cxl_node_is_probed() { bathyal probe --tier "mapped:node=$(cxl_node)" --size 2MB; }

# Uses the NVDIMM as a block device. busybox creates ext2, which the ext4 driver mounts.
dax_file_system_answers_like_dram() {
    ndctl create-namespace -f -e namespace0.0 -m fsdax && await /dev/pmem0 || return
    modprobe -a crc32c_generic ext4 && mke2fs -b 4096 /dev/pmem0 > /run/mke2fs && mkdir -p /run/pmem || return
    mount -t ext4 -o dax=always /dev/pmem0 /run/pmem || return
    for index in $indexes $indexes; do
        same_as_dram "$index" mapped:/run/pmem > /run/output || { cat /run/output; return 1; }
        cat /run/output
        grep -q "DAX file system, MAP_SYNC" /run/output || return
    done
    # There is one file per index, named by its content.
    [ "$(find /run/pmem -type f | wc -l)" = "$(echo "$indexes" | wc -w)" ]
}

truncated_dax_file_is_an_error() {
    fails_when_removed /run/pmem/removed truncate -s 4096 /run/pmem/removed
}

missing_node_is_an_error() {
    fails_saying "no NUMA node 7" search cluster mapped:node=7 /run/none.ibin
}

# Now the NVDIMM is a block device and the larger CXL device a node, so only the small device is left.
missing_device_is_an_error() {
    fails_saying "/dev/dax7.0: there is no such device; DAX devices here: /dev/$cxl_small (" \
        search cluster mapped:/dev/dax7.0 /run/none.ibin && [ ! -e /dev/dax7.0 ]
}

small_device_is_an_error() {
    fails_saying "/dev/$cxl_small: the device has $small_bytes bytes" \
        search graph "mapped:/dev/$cxl_small" /run/none.ibin
}

removed_device_is_an_error() {
    fails_when_removed "/dev/$cxl_small" daxctl disable-device "$cxl_small"
}

check modules_load
check nvdimm_is_a_dax_device
check cxl_memory_is_two_dax_devices
check cxl_memory_is_a_node_without_processors
check dram_answers
check files_answer_like_dram
check devdax_answers_like_dram
check devdax_is_loaded_once
check devdax_probe_leaves_what_is_there
check devdax_is_shared_by_two_processes
check cxl_devdax_answers_like_dram
check cxl_node_answers_like_dram
check cxl_node_is_probed
check dax_file_system_answers_like_dram
check truncated_dax_file_is_an_error
check missing_node_is_an_error
check missing_device_is_an_error
check small_device_is_an_error
check removed_device_is_an_error
