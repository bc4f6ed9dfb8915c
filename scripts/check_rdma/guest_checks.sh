# The checks in the guest. The host reads the names from the lines that begin with "check", and expects a
# verdict for each.

. /data/verdicts.sh
. /data/searches.sh
set -o pipefail
# Registering memory with a device locks it.
ulimit -l unlimited

indexes="cluster graph partitioned"
method="RDMA by rxe0 (::ffff:10.9.9.1)"

network_is_up() {
    modprobe -a ib_uverbs crc32_generic rdma_rxe dummy && ifconfig lo 127.0.0.1 up || return
    ifconfig dummy0 10.9.9.1 netmask 255.255.255.0 up
}

# Without a device, verbs fail with the reason and another transport is chosen. The second search is by
# another user, who cannot map the node's memory.
without_a_device_tcp_is_taken() {
    start_node $indexes || return
    fails_saying "RDMA on this machine: there is no device" search cluster "$remote" /run/none.ibin $by_verbs || return
    method="shared memory of this machine"
    same_as_dram cluster || return
    su reader -c ". /data/searches.sh; method=TCP; same_as_dram cluster"
}

soft_roce_is_a_device() {
    rdma link add rxe0 type rxe netdev dummy0 && await /dev/infiniband/uverbs0 || return
    rdma link
    resources | tee /run/resources
}

refused_accesses_are_refused_by_the_device() {
    BATHYAL_REQUIRE_RDMA=1 TMPDIR=/run unit-tests --test-threads 2 fabric:: verbs::
}

queues_keep_the_contract() {
    BATHYAL_REQUIRE_RDMA=1 TMPDIR=/run node-tests --test-threads 1 rdma::
}

dram_answers() {
    for index in $indexes; do search "$index" /data "/run/$index.ibin" --tier dram || return; done
}

verbs_answer_like_dram() {
    for index in $indexes; do same_as_dram "$index" $by_verbs || return; done
}

# Tests one operation per doorbell, several, and all operations of a queue.
doorbells_answer_alike() {
    for doorbell in 1 5 1024; do
        same_as_dram graph $by_verbs --store-option "doorbell=$doorbell" || return
    done
    fails_saying "doorbell: requires transport=verbs" same_as_dram graph --store-option doorbell=5
}

# Another user cannot map the node's memory.
auto_takes_verbs_where_memory_is_not_shared() {
    su reader -c ". /data/searches.sh; method='$method'; same_as_dram cluster && same_as_dram graph"
}

# Each read locks its own memory. If the limit is too low for all concurrent reads, some wait for others. If
# it is too low for any read, the error says so, and another transport is chosen.
little_locked_memory_is_enough() {
    su reader -c "ulimit -l 8192; BATHYAL_REQUIRE_RDMA=1 TMPDIR=/run node-tests --test-threads 1 --exact rdma::conformance" \
        || return
    su reader -c ". /data/searches.sh; method='$method'; ulimit -l 2200; same_as_dram cluster && same_as_dram graph" || return
    su reader -c ". /data/searches.sh; method=TCP; ulimit -l 1024; same_as_dram cluster" || return
    fails_saying "may not lock enough memory: raise .ulimit -l" \
        su reader -c ". /data/searches.sh; ulimit -l 1024; search cluster $remote /run/none.ibin $by_verbs"
}

two_processes_at_once() {
    same_as_dram graph $by_verbs > /run/first 2>&1 &
    first=$!
    same_as_dram cluster $by_verbs
    second=$?
    wait "$first"
    first=$?
    cat /run/first
    [ "$first" = 0 ] && [ "$second" = 0 ]
}

indexes_are_pushed_by_verbs() {
    bathyal copy /data/graph.index "$remote/pushed.index" $by_verbs --store-option scratch=/run/scratch || return
    bathyal verify "$remote/pushed.index" $by_verbs || return
    cp /run/graph.ibin /run/pushed.ibin
    same_as_dram pushed $by_verbs
}

indexes_are_built_by_verbs() {
    bathyal build /data/base.f16bin "$remote/built.index" --metric cosine $by_verbs --store-option scratch=/run/scratch || return
    bathyal verify "$remote/built.index" $by_verbs && bathyal copy "$remote/built.index" /run/built.index \
        --from-store-option transport=verbs || return
    search built /run /run/built.ibin --tier dram && same_as_dram built $by_verbs
}

# Two processes insert at once. Afterwards the index must answer like a copy of it in DRAM.
indexes_take_inserts_by_verbs() {
    bathyal build /data/base.f16bin "$remote/grown.index" --metric cosine --family partitioned --partition-vectors 100 \
        --growth 2 --overflow-vectors 20 $by_verbs --store-option scratch=/run/scratch || return
    bathyal insert "$remote/grown.index" /data/base.f16bin $by_verbs > /run/inserting 2>&1 &
    inserting=$!
    bathyal insert "$remote/grown.index" "$queries" $by_verbs
    second=$?
    wait "$inserting"
    first=$?
    cat /run/inserting
    [ "$first" = 0 ] && [ "$second" = 0 ] || return
    bathyal delete "$remote/grown.index" --ids 0,1,2,3 $by_verbs || return
    bathyal verify "$remote/grown.index" $by_verbs \
        && bathyal copy "$remote/grown.index" /run/grown.index --from-store-option transport=verbs \
        && search grown /run /run/grown.ibin --tier dram && same_as_dram grown $by_verbs
}

# Ended sessions must leave no resources in the kernel.
ended_sessions_leave_nothing() {
    for _ in $(seq 100); do
        [ "$(resources)" != "$(cat /run/resources)" ] || break
        usleep 100000
    done
    resources
    [ "$(resources)" = "$(cat /run/resources)" ]
}

# fails_when COMMAND: runs COMMAND, which disables the node, during an endless search. The search must end
# with an error about the node.
fails_when() {
    bathyal bench "$remote/graph.index" "$queries" --groundtruth /data/truth.ibin --search-lists "$search_list" \
        --repeats 1000 $by_verbs --store-option timeout=3 --output /run/bench > /run/bench.log 2>&1 &
    bench=$!
    for _ in $(seq 200); do
        [ "$(resources)" = "$(cat /run/resources)" ] || break
        usleep 100000
    done
    # Waits until the index is open, since opening would fail in another way.
    sleep 3
    resources
    "$@"
    began=$(cut -d . -f 1 /proc/uptime)
    wait "$bench"
    ended=$?
    cat /run/bench.log
    echo "ended with $ended, $(($(cut -d . -f 1 /proc/uptime) - began)) s later"
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] && grep -q "the other side does not answer" /run/bench.log
}

# The node disappears without a message, as if a cable were unplugged.
silent_network_is_an_error() {
    fails_when ifconfig dummy0 down
    failed=$?
    ifconfig dummy0 up
    return "$failed"
}

killed_node_is_an_error() { fails_when kill -KILL "$(cat /run/node.pid)"; }

# The library is missing on both sides, then only on the node.
missing_library_is_an_error() {
    mkdir -p /run/verbs && mv /lib/libibverbs.so.1 /run/verbs/ || return
    start_node cluster && fails_saying "RDMA on this machine: libibverbs cannot be opened.*install libibverbs1" \
        search cluster "$remote" /run/none.ibin $by_verbs && export LD_LIBRARY_PATH=/lib:/run/verbs \
        && fails_saying "RDMA on the node's machine: libibverbs cannot be opened.*install libibverbs1" \
        search cluster "$remote" /run/none.ibin $by_verbs \
        && su reader -c ". /data/searches.sh; method=TCP; same_as_dram cluster"
    status=$?
    mv /run/verbs/libibverbs.so.1 /lib/
    return "$status"
}

device_that_is_gone_is_an_error() {
    rdma link delete rxe0
    fails_saying "RDMA on this machine: there is no device" search cluster "$remote" /run/none.ibin $by_verbs && stop_node
}

check network_is_up
check dram_answers
check without_a_device_tcp_is_taken
check soft_roce_is_a_device
check refused_accesses_are_refused_by_the_device
check queues_keep_the_contract
check verbs_answer_like_dram
check doorbells_answer_alike
check auto_takes_verbs_where_memory_is_not_shared
check little_locked_memory_is_enough
check two_processes_at_once
check indexes_are_pushed_by_verbs
check indexes_are_built_by_verbs
check indexes_take_inserts_by_verbs
check ended_sessions_leave_nothing
check silent_network_is_an_error
check killed_node_is_an_error
check missing_library_is_an_error
check device_that_is_gone_is_an_error
