#!/usr/bin/env bash
# Ask a running service with `buf curl`: JSON in, JSON out, no code.
#
#     examples/buf-curl.sh http://127.0.0.1:50051 "Who built the lighthouse?"
#
# An https:// address uses TLS; HIRAG_CA names the authority's PEM file. HIRAG_TOKEN_FILE names the file of a token.
# buf is the one in PATH, or that of tools/buf (`make check` puts it there). The schema is read from proto/, so this works
# also where the service's reflection is switched off.
set -euo pipefail
if [ $# -ne 2 ]; then
    sed -n 's/^# \{0,1\}//p' "$0" | head -8 >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
buf=$(command -v buf || compgen -G "$root/tools/buf/node_modules/@bufbuild/buf-*/bin/buf") || {
    echo "buf is not installed: run tools/buf/lint.sh, or see https://buf.build/docs/cli" >&2
    exit 1
}
options=(--protocol grpc --schema "$root/proto")
case $1 in
    https://*) if [ -n "${HIRAG_CA:-}" ]; then options+=(--cacert "$HIRAG_CA"); fi ;;
    *) options+=(--http2-prior-knowledge) ;; # HTTP/2 without TLS, which is what gRPC speaks there
esac
headers=
if [ -n "${HIRAG_TOKEN_FILE:-}" ]; then # by standard input: arguments are there for all to see
    headers="authorization: Bearer $(<"$HIRAG_TOKEN_FILE")"
    options+=(--header @-)
fi
question=$(printf %s "$2" | sed 's/[\\"]/\\&/g' | tr '\n\t' '  ')
printf '%s\n' "$headers" | "$buf" curl "${options[@]}" --data "{\"query\": {\"question\": \"$question\"}, \"omitContext\": true}" \
    "$1/hirag.query.v1.QueryService/Answer"
