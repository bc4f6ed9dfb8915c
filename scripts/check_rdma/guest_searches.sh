# A memory node in the guest and searches of what it holds: what its checks are made of.

queries=/data/queries.f16bin
# A fixed effort: one that is derived from a recall depends on what reads cost.
search_list=40
address=10.9.9.1:7730
remote=remote://$address
export BATHYAL_NODE_KEYS=/run/keys/client.json

# Starts a node that begins with the indexes named, and waits until it holds them.
start_node() {
    loads=
    for index in "$@"; do loads="$loads --load /data/$index.index"; done
    bathyal memory-node --capacity 300MB --listen "$address" --keys /run/keys $loads > /run/node.said 2>&1 &
    # In a file: checks are subshells.
    echo $! > /run/node.pid
    for _ in $(seq 300); do
        [ "$(grep -c '^memory node: ' /run/node.said)" -le $# ] || break
        usleep 100000
    done
    cat /run/node.said
    [ "$(grep -c '^memory node: ' /run/node.said)" -gt $# ] && chmod 755 /run/keys && chmod 644 /run/keys/client.json
}

# Ends the node as SIGTERM does.
stop_node() {
    kill -TERM "$(cat /run/node.pid)"
    for _ in $(seq 100); do
        ! grep 'stopped after' /run/node.said || return 0
        usleep 100000
    done
    echo "the node does not stop"
    return 1
}

# Searches an index in a place with more arguments; the answers go to the file named third.
search() {
    index=$1 place=$2 answers=$3
    shift 3
    echo "$index in $place $*"
    bathyal search "$place/$index.index" "$queries" -k 10 --search-list "$search_list" --groundtruth /data/truth.ibin \
        --output "$answers" "$@"
}

# Searches a node's index by a transport. It has to say that it did so by $method, and the answers, with their distances, have to
# be those of the DRAM tier to the bit.
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

# What the kernel has of the device's: connections, registrations and the like.
resources() { rdma resource show | grep rxe0; }

by_verbs="--store-option transport=verbs"
