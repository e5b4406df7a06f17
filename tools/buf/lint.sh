#!/usr/bin/env bash
# Lint proto/ with the pinned buf. Without npm, or a buf for this machine, print the reason; with CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")"

skip() {
    echo "buf lint: SKIPPED, $1" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
}

command -v npm >/dev/null || skip "npm is not installed"
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
    mkdir -p node_modules
    cp package-lock.json node_modules/.installed
fi
buf=$(compgen -G 'node_modules/@bufbuild/buf-*/bin/buf') || skip "no buf for this machine in package.json"
"$buf" lint ../../proto --config '{"version": "v2", "lint": {"use": ["STANDARD"]}}'
echo "buf lint: no fault"
