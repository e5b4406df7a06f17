#!/usr/bin/env bash
# Generate the stubs from proto/, check the types and compile the client and its example to dist/. Without npm print the
# reason; with CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")"

skip() {
    echo "TypeScript client: SKIPPED, $1" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
}

command -v npm >/dev/null || skip "npm is not installed"
../../tools/buf/lint.sh >/dev/null # brings buf
buf=$(compgen -G '../../tools/buf/node_modules/@bufbuild/buf-*/bin/buf') || skip "no buf for this machine"
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
    cp package-lock.json node_modules/.installed
fi
"$buf" generate
rm -rf dist
node_modules/.bin/tsc
echo "TypeScript client: generated, checked, compiled"
