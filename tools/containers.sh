#!/usr/bin/env bash
# Install podman, buildah and runc for the tests of the image, as root on Debian or Ubuntu, and print the name of a base
# image with Python: that of the Dockerfile, or, where its registry does not answer, one that debootstrap makes of
# Debian's packages. If that is not possible, print the reason; those tests are then skipped. With CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
made=localhost/python-of-debian:bookworm

skip() {
    echo "tests of the image: will be SKIPPED, $1" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
}

if [ "$(uname -s)" != Linux ]; then skip "containers need Linux"; fi
if [ "$(id -u)" != 0 ]; then skip "pods with networks of their own need root"; fi

install() { # PROGRAM PACKAGE…
    if command -v "$1" >/dev/null; then return; fi
    shift
    command -v apt-get >/dev/null || skip "there is no $1, and no apt-get to install it with"
    echo "Installing $* for the tests of the image (first run only) ..." >&2
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >&2 2>/dev/null ||
        skip "apt-get could not install $*"
}
install podman podman netavark aardvark-dns conmon
install buildah buildah
install runc runc # crun refuses hybrid cgroups

base=docker.io/library/$(sed -n 's/^ARG PYTHON_IMAGE=//p' deploy/docker/Dockerfile)
if buildah inspect --type image "$base" >/dev/null 2>&1 || timeout 120 buildah pull --quiet "$base" >/dev/null 2>&1; then
    echo "$base"
    exit
fi
if ! buildah inspect --type image "$made" >/dev/null 2>&1; then
    echo "No registry gives $base: making a base image of Debian's packages (first run only) ..." >&2
    install debootstrap debootstrap
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" >/dev/null ||
        skip "debootstrap could not make a base image"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    ln -sf python3 "$root/usr/bin/python"
    container=$(buildah from scratch)
    buildah copy --quiet "$container" "$root" / >/dev/null
    buildah config --env PIP_BREAK_SYSTEM_PACKAGES=1 --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        --cmd python "$container"
    buildah commit --quiet "$container" "$made" >/dev/null
    buildah rm "$container" >/dev/null
fi
echo "$made"
