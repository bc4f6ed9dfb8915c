#!/usr/bin/env bash
# Builds the image of packaging/Containerfile and uses it: makes a collection, restarts the container, and searches.
# Needs docker or podman, and curl. ENGINE names the command with its options, BUILD_OPTIONS and RUN_OPTIONS add some. RUST and
# SYSTEM name other base images, LOCAL=1 takes target/release/bathyal.
set -euo pipefail
cd "$(dirname "$0")/.."

read -r -a engine <<< "${ENGINE:-$(command -v docker || command -v podman || true)}"
if [ "${#engine[@]}" = 0 ]; then
    echo "check_container.sh: neither docker nor podman is installed" >&2
    exit 1
fi
name=bathyal-check-$$
arguments=()
for argument in RUST SYSTEM LOCAL; do
    [ -z "${!argument:-}" ] || arguments+=(--build-arg "$argument=${!argument}")
done
read -r -a build_options <<< "${BUILD_OPTIONS:-}"
read -r -a run_options <<< "${RUN_OPTIONS:-}"

finish() {
    "${engine[@]}" rm -f "$name" > /dev/null 2>&1 || true
    "${engine[@]}" volume rm "$name" > /dev/null 2>&1 || true
}
trap finish EXIT

"${engine[@]}" build "${build_options[@]}" "${arguments[@]}" -t "$name" -f packaging/Containerfile .
"${engine[@]}" run -d --name "$name" -p 127.0.0.1:7799:7700 -v "$name:/var/lib/bathyal" "${run_options[@]}" "$name" > /dev/null

wait_until_ready() {
    for _ in $(seq 100); do
        curl --silent --fail http://127.0.0.1:7799/health/ready > /dev/null && return
        sleep 0.1
    done
    "${engine[@]}" logs "$name"
    exit 1
}

send() {
    curl --silent --show-error --fail-with-body -H "Authorization: Bearer $key" --json "$2" "http://127.0.0.1:7799/v1/$1"
    echo
}

wait_until_ready
key=$("${engine[@]}" exec "$name" sed -n 's/^secret = "\(.*\)"$/\1/p' /var/lib/bathyal/keys.toml)
send collections '{"name": "words", "schema": {"id": "u64", "vectors": [{"name": "v", "dim": 2, "element": "f32", "metric": "l2"}], "columns": []}}'
send collections/words/add '{"rows": [{"id": 1, "v": [0, 1]}, {"id": 2, "v": [1, 0]}]}'
"${engine[@]}" stop --time 30 "$name" > /dev/null
code=$("${engine[@]}" inspect --format '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || { echo "check_container.sh: the server ended with $code" >&2; exit 1; }
"${engine[@]}" start "$name" > /dev/null
wait_until_ready
found=$(send collections/words/search '{"vector": [0, 0.9], "k": 1}')
case $found in
*'"id":1'*) echo "the container keeps its rows, and ends with 0" ;;
*) echo "check_container.sh: found $found" >&2; exit 1 ;;
esac
