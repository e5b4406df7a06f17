#!/usr/bin/env bash
# print a folder for temporary files of the tests: in memory where there is room, since they sync thousands of files
set -euo pipefail
memory=/dev/shm
room() { df --output=avail -k "$memory" 2>/dev/null | tail -n 1; }
spare() { awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null; }
if [ -w "$memory" ] && [ "$(room)" -gt 6000000 ] && [ "$(spare)" -gt 6000000 ]; then
  folder=$memory/hirag-tests-$(id -u)
  mkdir -p "$folder"
  echo "$folder"
else
  echo "${TMPDIR:-/tmp}"
fi
