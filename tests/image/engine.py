"""Images by buildah and containers by podman and runc, which `tools/containers.sh` installs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TEST_S = 7200
"""Limit of one test, the build of the images included."""
_PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
_FOLDERS = ("hirag_dist", "requirements", "deploy/docker")
_FILES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")


@cache
def base_image() -> str:
    """Return the base image with Python; the test is skipped where there are no containers."""
    done = subprocess.run([ROOT / "tools/containers.sh"], capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        (pytest.fail if done.returncode else pytest.skip)(done.stderr[-2000:])
    return done.stdout.split()[-1]


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run podman. Raises AssertionError with its output where it fails and `check` is set."""
    done = subprocess.run([*_PODMAN, *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{arguments[:2]}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done


def limits() -> list[str]:
    """Return the options of resource limits: podman's defaults are above those of some machines."""
    files, processes = (resource.getrlimit(each)[1] for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))

    def half(limit: int, most: int) -> int:
        return most if limit == resource.RLIM_INFINITY else min(limit // 2, most)

    number, count = half(files, 65536), half(processes, 32768)
    return ["--ulimit", f"nofile={number}:{number}", "--ulimit", f"nproc={count}:{count}"]


def context(folder: Path) -> Path:
    """Copy what the images are made from into a folder and return it."""
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    for name in _FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def build(source: Path, target: str, tag: str) -> None:
    """Build a target of the Dockerfile. Steps that were done before with the same files are not done again."""
    environ = {"BUILDAH_ISOLATION": "chroot"} | os.environ
    own = [  # the machine's own way to package registries
        f"--volume={path}:{path}:ro" for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()
    ]
    # BuildKit sets TARGETARCH itself.
    arguments = {"PYTHON_IMAGE": base_image(), "TARGETARCH": ARCHITECTURES[os.uname().machine]}
    command = ["buildah", "build", "--layers", "--network", "host", "--target", target, "--tag", tag, *own]
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    command += ["--ignorefile", "deploy/docker/Dockerfile.dockerignore", "--file", "deploy/docker/Dockerfile", "."]
    done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def files(tag: str, folder: str, pattern: str) -> set[str]:
    """Return the paths of an image's files below a folder whose names match a pattern, relative to the folder."""
    options = ["run", "--rm", *limits(), "--entrypoint", "find"]
    return set(podman(*options, tag, folder, "-name", pattern, "-printf", "%P\\n").stdout.split())


def layers(tag: str, folder: Path) -> dict[str, int]:
    """Return the layers of an image, lowest first: digest → bytes that are pulled, as a registry compresses them."""
    place = folder / "layout"
    subprocess.run(["buildah", "push", "--quiet", tag, f"oci:{place}:image"], check=True, capture_output=True)
    (entry,) = json.loads((place / "index.json").read_text(encoding="utf-8"))["manifests"]
    blob = place / "blobs/sha256" / entry["digest"].removeprefix("sha256:")
    manifest = json.loads(blob.read_text(encoding="utf-8"))
    shutil.rmtree(place)
    unpacked = json.loads(podman("image", "inspect", tag).stdout)[0]["RootFS"]["Layers"]
    return {digest: blob["size"] for digest, blob in zip(unpacked, manifest["layers"], strict=True)}


def size_bytes(tag: str) -> int:
    """Return the size of an image's files."""
    return int(json.loads(podman("image", "inspect", tag).stdout)[0]["Size"])
