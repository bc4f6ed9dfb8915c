#!/bin/sh
# Builds the small indexes of what was added later to a version of the format that older indexes go on to have, and of
# format version 4: make_later.sh COMMAND. The folders of disks are named by the index, so they are the same everywhere.
set -eu
bathyal=$1
cd "$(dirname "$0")"

later() {
    name=$1
    shift
    "$bathyal" build wide.fbin "version_2_later/$name" --threads 1 --seed 7 --code-bytes 16 "$@"
}

striped() {
    name=$1
    shift
    "$bathyal" build base.fbin "version_4/$name" --threads 1 --seed 7 --code-bytes 8 --metric l2 \
        --stripe /mnt/a,/mnt/b --stripe-unit 4KiB "$@"
    mkdir -p "version_4/$name.parts"
    mv /mnt/a/"$name"-* /mnt/b/"$name"-* "version_4/$name.parts"
}

mkdir -p version_2_later version_4 /mnt/a /mnt/b
# Codecs of version 2 (a rotation by bytes), shorter codes and efforts by query.
later cluster --metric l2 --group-vectors 20
later cluster_cosine --metric cosine --group-vectors 20
later flat_codes --metric l2 --family flat --code-kind axes
later lsh --metric cosine --family lsh --tables 4 --code-kind axes
later spann_codes --metric l2 --family spann --layout coupled --code-kind axes
# Parts on two disks.
striped cluster --group-vectors 20
striped flat --family flat --code-kind axes
striped graph_padded --family graph --layout padded --max-degree 8 --search-list 30
striped spann_grouped --family spann --layout grouped --replicas 4
rmdir /mnt/a /mnt/b
