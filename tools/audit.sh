#!/usr/bin/env bash
# Look up the known vulnerabilities of the locked packages at pypi.org. Exit code 1: there are some, or a package is not
# known there (a mirror without that interface knows none).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$(command -v python3.11 || command -v python3)
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -qq --no-deps --disable-pip-version-check --require-hashes -r requirements/audit.txt
[ $# -gt 0 ] || set -- requirements/run.txt requirements/image.txt
for file in "$@"; do
    echo "$file"
    "$folder/venv/bin/pip-audit" --strict --require-hashes --disable-pip --progress-spinner off -r "$file"
done
