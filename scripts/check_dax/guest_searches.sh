# Searches in the guest: what its checks are made of.

queries=/data/queries.f16bin
# A fixed effort: one that is derived from a recall depends on what reads cost on the tier.
search_list=40

# Searches the index of a family on a tier; the answers go to the file named last.
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

# Runs a command that has to end with an error, not with a crash, and to say on one line what the pattern describes.
fails_saying() {
    pattern=$1
    shift
    said=$("$@" 2>&1)
    ended=$?
    echo "$said"
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] || { echo "ended with $ended"; return 1; }
    echo "$said" | grep -q -e "$pattern" || { echo "does not say '$pattern'"; return 1; }
}
