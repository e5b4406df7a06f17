#!/usr/bin/env bash
# Install requirements/$1.txt (run, or dev, which includes run) and this project into .venv, unless they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(pwd -P)
installed=.venv/installed # what was installed; not there while an installation is under way

holds() {
    cmp -s "requirements/$1.txt" "$installed/$1.txt" && cmp -s pyproject.toml "$installed/pyproject.toml" &&
        [ "$(cat "$installed/path")" = "$here" ] && .venv/bin/python -c '' 2>/dev/null
}

exec 9<Makefile
if command -v flock >/dev/null; then flock 9; fi # two makes at once: the second waits
if holds dev || { [ "$1" = run ] && holds run; }; then exit 0; fi

if [ -f "$installed/path" ] && [ "$(cat "$installed/path")" = "$here" ] && .venv/bin/python -c '' 2>/dev/null; then
    echo "Updating .venv ..."
    rm -rf "$installed"
else # none, half made, or moved here from elsewhere
    for python in python3.11 python3 python3.12 python3.13; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi
        python=
    done
    if [ -z "$python" ]; then
        echo "Python 3.11 or later is needed, and neither python3.11 nor python3 is one." >&2
        exit 1
    fi
    echo "Setting up .venv (first run only) ..."
    rm -rf .venv
    if ! "$python" -m venv .venv >/dev/null; then
        echo "$python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2
        exit 1
    fi
fi

# The lock is complete, so nothing is resolved (--no-deps); bytecode is compiled on first import, not for every file.
# uv takes an eighth of the time of pip. It reads no settings of pip: indexes and folders of wheels are handed on, and
# where it fails, pip installs and says what is wrong.
pip=(.venv/bin/python -m pip --disable-pip-version-check)
setting() { "${pip[@]}" config list 2>/dev/null | sed -n "s/^[^=]*\\.$1='\\(.*\\)'\$/\\1/p" | head -n 1; }
by_uv() {
    local index more links
    index=$(setting index-url) more=$(setting extra-index-url) links=$(setting find-links)
    sed -n '/^uv==/,/[^\\]$/p' requirements/dev.txt >.venv/uv.txt
    "${pip[@]}" install -qq --no-compile --no-deps --progress-bar off --require-hashes -r .venv/uv.txt &&
        env UV_SYSTEM_CERTS=1 ${index:+UV_DEFAULT_INDEX="$index"} ${more:+UV_INDEX="$more" UV_INDEX_STRATEGY=unsafe-best-match} \
            ${links:+UV_FIND_LINKS="$links"} .venv/bin/uv pip install -qq --no-config --no-deps --python .venv/bin/python "$@"
}
install() { by_uv "$@" 2>/dev/null || "${pip[@]}" install -qq --no-compile --no-deps --progress-bar off "$@"; }
install --require-hashes -r "requirements/$1.txt"
install --no-build-isolation -e .
mkdir "$installed.new"
cp "requirements/$1.txt" pyproject.toml "$installed.new/"
echo "$here" >"$installed.new/path"
mv "$installed.new" "$installed"
