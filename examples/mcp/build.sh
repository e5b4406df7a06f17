#!/usr/bin/env bash
# Install the packages of the example. Without npm print the reason; with CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v npm >/dev/null; then
    echo "MCP example: SKIPPED, npm is not installed" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
fi
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
    cp package-lock.json node_modules/.installed
fi
echo "MCP example: installed"
