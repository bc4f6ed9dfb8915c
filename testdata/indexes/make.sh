#!/bin/sh
# Builds the small indexes of one format version from base.fbin: make.sh COMMAND FOLDER, with the command `bathyal` of
# that version. A later version does not make them again: what it makes goes into a folder of its own.
set -eu
# Version 3 is what is written of vectors that are stored as something smaller: make.sh COMMAND FOLDER f16
store_as=${3:+--store-as $3}
bathyal=$1
folder=$2
base=$(dirname "$0")/base.fbin
mkdir -p "$folder"

make() {
    name=$1
    shift
    # shellcheck disable=SC2086 # None, or an option and its value.
    "$bathyal" build "$base" "$folder/$name" --threads 1 --seed 7 --code-bytes 8 $store_as "$@"
}

make cluster --metric l2 --group-vectors 20
make cluster_cosine --metric cosine --group-vectors 20
# shellcheck disable=SC2086
"$bathyal" build "$base" "$folder/flat" --threads 1 --seed 7 $store_as --metric cosine --family flat
make flat_codes --metric l2 --family flat --code-kind axes
make graph_padded --metric l2 --family graph --layout padded --max-degree 8 --search-list 30
make graph_page_local --metric l2 --family graph --layout page_local --max-degree 8 --search-list 30
make graph_csr --metric ip --family graph --layout csr --max-degree 8 --search-list 30
make spann_coupled --metric l2 --family spann --layout coupled
make spann_codes --metric l2 --family spann --layout coupled --code-kind axes
make spann_decoupled --metric cosine --family spann --layout decoupled --replicas 4
make spann_grouped --metric ip --family spann --layout grouped --replicas 4
