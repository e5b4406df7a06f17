#!/usr/bin/env bash
# Puts a Chromium on the machine for the tests of the page, where there is none and this may be done: as root, on Debian
# or Ubuntu. Elsewhere that is said, and those tests are skipped; with CI=true it fails.
set -euo pipefail

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null; then exit 0; fi
done

skip() {
    echo "browser tests: will be SKIPPED, $1" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
}

if [ "$(id -u)" != 0 ]; then skip "there is no Chromium and only root may install one; on Debian: apt-get install chromium"; fi
command -v apt-get >/dev/null || skip "there is no Chromium, and no apt-get to install one with"
echo "Installing Chromium for the browser tests (first run only) ..."
export DEBIAN_FRONTEND=noninteractive
{ apt-get update && apt-get install -y --no-install-recommends chromium; } >/dev/null || skip "apt-get could not install chromium"
