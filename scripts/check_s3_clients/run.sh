#!/usr/bin/env bash
# Runs clients of Amazon S3 Vectors, unmodified, against `bathyal serve`: the stores of LangChain (with its own
# suite) and LlamaIndex, the SDKs of AWS for JavaScript, Go and Java, and Mastra.
#   scripts/check_s3_clients/run.sh COMMAND FOLDER
# COMMAND is the command `bathyal`, FOLDER a place for packages. Needs a network; Node, Go and Maven where they
# are installed. A client whose language is missing is named and skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command=$1
mkdir -p "$2"
work=$(cd "$2" && pwd)

[ -x "$work/python/bin/python" ] || python3 -m venv "$work/python"
"$work/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"

rm -rf "$work/data" "$work/keys.toml"
"$command" serve "$work/data" --listen 127.0.0.1:0 --keys "$work/keys.toml" 2> "$work/server.log" &
server=$!
trap 'kill $server; wait $server || true' EXIT
until address=$(grep -m 1 -o 'http://[0-9.:]*' "$work/server.log"); do
    kill -0 $server
    sleep 0.1
done
export AWS_ENDPOINT_URL_S3VECTORS=$address AWS_REGION=local AWS_DEFAULT_REGION=local AWS_ACCESS_KEY_ID=admin
AWS_SECRET_ACCESS_KEY=$(sed -n 's/^secret = "\(.*\)"/\1/p' "$work/keys.toml")
export AWS_SECRET_ACCESS_KEY

printf '== LangChain and LlamaIndex\n'
"$work/python/bin/python" -m pytest -q -p no:cacheprovider -o asyncio_mode=auto "$here"

if command -v node > /dev/null && command -v npm > /dev/null; then
    printf '== JavaScript: the SDK of AWS, and Mastra\n'
    mkdir -p "$work/node"
    cp "$here/package.json" "$here/sdk.mjs" "$here/mastra.mjs" "$work/node"
    (cd "$work/node" && npm install --silent --no-audit --no-fund && node sdk.mjs && node mastra.mjs)
else
    printf '== skipped: JavaScript, since there is no node\n'
fi
if command -v go > /dev/null; then
    printf '== Go: the SDK of AWS\n'
    mkdir -p "$work/go"
    cp "$here/sdk.go" "$here/go.mod" "$work/go"
    (cd "$work/go" && go mod tidy > /dev/null 2>&1 && go run .)
else
    printf '== skipped: Go, which is not installed\n'
fi
if command -v mvn > /dev/null && command -v java > /dev/null; then
    printf '== Java: the SDK of AWS\n'
    mkdir -p "$work/java"
    cp "$here/Sdk.java" "$here/pom.xml" "$work/java"
    (cd "$work/java" && mvn -q dependency:build-classpath -Dmdep.outputFile=classpath && java -cp "$(cat classpath)" Sdk.java)
else
    printf '== skipped: Java, since Maven or Java is not installed\n'
fi
