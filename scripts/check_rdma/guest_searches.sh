# A memory node in the guest and searches of its indexes, for the checks.

queries=/data/queries.f16bin
# A fixed effort, since an effort derived from a recall depends on the cost of reads.
search_list=40
address=10.9.9.1:7730
remote=remote://$address
export BATHYAL_NODE_KEYS=/run/keys/client.json

# start_node INDEX...: starts a node that loads these indexes, and waits until it holds them.
start_node() {
    loads=
    for index in "$@"; do loads="$loads --load /data/$index.index"; done
    bathyal memory-node --capacity 300MB --listen "$address" --keys /run/keys $loads > /run/node.log 2>&1 &
    # The id is in a file, since checks run in subshells.
    echo $! > /run/node.pid
    for _ in $(seq 300); do
        [ "$(grep -c '^memory node: ' /run/node.log)" -le $# ] || break
        usleep 100000
    done
    cat /run/node.log
    [ "$(grep -c '^memory node: ' /run/node.log)" -gt $# ] && chmod 755 /run/keys && chmod 644 /run/keys/client.json
}

# Ends the node with SIGTERM, and waits for its end.
stop_node() {
    kill -TERM "$(cat /run/node.pid)"
    for _ in $(seq 100); do
        ! grep 'stopped after' /run/node.log || return 0
        usleep 100000
    done
    echo "the node did not stop"
    return 1
}

# search INDEX FOLDER OUTPUT ARGUMENT...: searches an index in a folder or node, and writes the answers to
# OUTPUT.
search() {
    index=$1 folder=$2 answers=$3
    shift 3
    echo "$index in $folder $*"
    bathyal search "$folder/$index.index" "$queries" -k 10 --search-list "$search_list" --groundtruth /data/truth.ibin \
        --output "$answers" "$@"
}

# same_as_dram INDEX ARGUMENT...: searches an index of the node. The output must name the transport $method,
# and ids and distances must equal those of the DRAM tier bit by bit.
same_as_dram() {
    index=$1
    shift
    found=$(mktemp -p /run)
    search "$index" "$remote" "$found.ibin" "$@" > "$found" 2>&1 && cmp "$found.ibin" "/run/$index.ibin" \
        && grep -q "$method" "$found"
    same=$?
    cat "$found"
    rm -f "$found" "$found.ibin"
    return "$same"
}

# Prints the kernel's resources of the device, such as connections and registrations.
resources() { rdma resource show | grep rxe0; }

by_verbs="--store-option transport=verbs"
