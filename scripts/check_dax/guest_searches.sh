# Searches in the guest: what its checks are made of.

queries=/data/queries.f16bin
# A fixed effort: one that is derived from a recall depends on what reads cost on the tier.
search_list=40

# Searches an index on a tier; the answers go to the file named last.
search() {
    echo "$1 on $2"
    bathyal search "/data/$1.index" "$queries" -k 10 --search-list "$search_list" \
        --groundtruth /data/truth.ibin --tier "$2" --output "$3"
}

# The same, and the answers, with their distances, have to be those of the DRAM tier to the bit.
same_as_dram() {
    found=$(mktemp -p /run)
    search "$1" "$2" "$found.ibin" && cmp "$found.ibin" "/run/$1.ibin"
    same=$?
    rm -f "$found" "$found.ibin"
    return "$same"
}

# Takes the memory at a path away, by the command that follows, from a search that goes on for as long as nothing ends
# it. It has to end with the error that says so.
fails_when_taken() {
    path=$1
    shift
    same_as_dram cluster "mapped:$path" || return
    bathyal bench /data/cluster.index "$queries" --groundtruth /data/truth.ibin --search-lists "$search_list" \
        --repeats 1000 --tier "mapped:$path" --output /run/bench > /run/bench.said 2>&1 &
    bench=$!
    for _ in $(seq 200); do
        ! grep -q "$path" "/proc/$bench/maps" || break
        usleep 100000
    done
    # Past the opening, which would fail in another way.
    sleep 3
    "$@"
    wait "$bench"
    ended=$?
    cat /run/bench.said
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] && grep -q "$path.*the mapped bytes are gone" /run/bench.said \
        || { echo "ended with $ended"; return 1; }
}
