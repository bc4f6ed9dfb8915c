# Searches in the guest, for its checks.

queries=/data/queries.f16bin
# A fixed effort, since an effort derived from a recall depends on the cost of reads on the tier.
search_list=40

# search INDEX TIER OUTPUT: searches an index on a tier, and writes the answers to OUTPUT.
search() {
    echo "$1 on $2"
    bathyal search "/data/$1.index" "$queries" -k 10 --search-list "$search_list" \
        --groundtruth /data/truth.ibin --tier "$2" --output "$3"
}

# same_as_dram INDEX TIER: searches, and compares ids and distances bit by bit with those of the DRAM tier.
same_as_dram() {
    found=$(mktemp -p /run)
    search "$1" "$2" "$found.ibin" && cmp "$found.ibin" "/run/$1.ibin"
    same=$?
    rm -f "$found" "$found.ibin"
    return "$same"
}

# fails_when_removed PATH COMMAND: runs COMMAND, which removes the memory at PATH, during an endless search.
# The search must end with an error about the removed memory.
fails_when_removed() {
    path=$1
    shift
    same_as_dram cluster "mapped:$path" || return
    bathyal bench /data/cluster.index "$queries" --groundtruth /data/truth.ibin --search-lists "$search_list" \
        --repeats 1000 --tier "mapped:$path" --output /run/bench > /run/bench.log 2>&1 &
    bench=$!
    for _ in $(seq 200); do
        ! grep -q "$path" "/proc/$bench/maps" || break
        usleep 100000
    done
    # Waits until the index is open, since opening would fail in another way.
    sleep 3
    "$@"
    wait "$bench"
    ended=$?
    cat /run/bench.log
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] && grep -q "$path.*the mapped bytes are gone" /run/bench.log \
        || { echo "ended with $ended"; return 1; }
}
