"""Parts of `power_cuts.py`: filesystems in files, and what a power cut leaves of them. Root and loop devices needed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILESYSTEMS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
_SIZES_MIB = {"ext4": 256, "xfs": 512}  # XFS makes none below 300 MiB
_SHUTDOWN = 0x8004587D  # ioctl of ext4 and XFS
_WITHOUT_LOG = 2  # nothing more is written, the log neither: a power cut


class MountImpossible(Exception):
    """This machine cannot mount filesystems in files."""


def make_image(kind: str, path: Path) -> None:
    """Create an empty filesystem in a sparse file.

    Raises:
        MountImpossible: the program that does is not installed.
    """
    command = FILESYSTEMS[kind]
    if shutil.which(command[0]) is None:
        raise MountImpossible(f"{command[0]} is not installed")
    with path.open("wb") as file:
        file.truncate(_SIZES_MIB[kind] << 20)
    subprocess.run([*command, str(path)], check=True, capture_output=True)


@contextmanager
def mounted(image: Path, at: Path, options: str = "") -> Iterator[Path]:
    """Mount a filesystem in a file; its log is replayed, as after a power cut.

    Raises:
        MountImpossible: not allowed, or no loop devices.
    """
    at.mkdir(exist_ok=True)
    chosen = ",".join(filter(None, ("loop", "nouuid" if _is_xfs(image) else "", options)))
    result = subprocess.run(["mount", "-o", chosen, str(image), str(at)], capture_output=True, text=True, check=False)
    if result.returncode:
        raise MountImpossible(f"mount: {result.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=False, capture_output=True)


def why_impossible(folder: Path) -> str:
    """Return why filesystems in files cannot be mounted here, "" where they can."""
    if os.geteuid():
        return "mounting needs root"
    image = folder / "probe.img"
    try:
        make_image("ext4", image)
        with mounted(image, folder / "probe"):
            return ""
    except (MountImpossible, OSError, subprocess.CalledProcessError) as error:
        return str(error)
    finally:
        image.unlink(missing_ok=True)


def cut_power(at: Path) -> None:
    """End a mounted filesystem at once: what was not synced is lost. It can only be unmounted then."""
    handle = os.open(at, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, _SHUTDOWN, _WITHOUT_LOG.to_bytes(4, "little"))
    finally:
        os.close(handle)


def copy_image(image: Path, target: Path) -> None:
    """Copy the file behind a mounted filesystem: the disk as it is, without what the system has not written yet."""
    subprocess.run(["cp", "--sparse=always", str(image), str(target)], check=True)


def abort(at: Path) -> None:
    """Let a mounted ext4 behave as after an error of the disk: its journal is aborted, and it is read-only."""
    subprocess.run(["mount", "-o", "remount,abort", str(at)], check=False, capture_output=True)


def check_filesystem(image: Path) -> None:
    """Repair an ext4 after `abort`."""
    with suppress(FileNotFoundError):
        subprocess.run(["e2fsck", "-fy", str(image)], check=False, capture_output=True)


def _is_xfs(image: Path) -> bool:
    with image.open("rb") as file:
        return file.read(4) == b"XFSB"
