#!/usr/bin/env bash
# Install Chromium for the browser tests, as root on Debian or Ubuntu. If that is not possible, print the reason; those
# tests are then skipped. With CI=true it is an error.
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
