"""A model of what is on a disk after a power cut, from the syncs of a process.

Content is there as of the last fsync of its file, names as of the last fsync of their folder. Two states are allowed
after a cut: `strict` has synced names only; `named` has every name, and files without synced content are empty, as ext4
leaves them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

import pytest

State = dict[str, bytes]  # path below the root → content


class CrashModel:
    """Watches fsync and rename of this process, below one folder."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, on_event: Callable[[CrashModel, str], None]) -> None:
        """Start to watch.

        Args:
            root: exists, with its name on the disk.
            patch: undoes the watching.
            on_event: called before each fsync and rename, with what it is about.
        """
        self.root = root
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # by folder: name → inode, whether a folder
        self._held: list[int] = []  # descriptors, so that no inode number is used a second time
        self._on_event = on_event
        self._lock = Lock()  # threads rename: no file changes its name while the names are listed
        self._fsync, self._replace = os.fsync, os.replace
        for path in (root, *root.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self._note(descriptor, str(path))
            os.close(descriptor)
        patch.setattr(os, "fsync", self._synced)
        patch.setattr(os, "replace", self._renamed)

    def close(self) -> None:
        """Release the descriptors."""
        while self._held:
            os.close(self._held.pop())

    def strict(self) -> State:
        """Return the state with synced names only."""
        return dict(self._walk_synced(os.stat(self.root).st_ino, ""))

    def named(self) -> State:
        """Return the state with all names."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): self._content.get(path.stat().st_ino, b"") for path in files}

    def _synced(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(str(self.root)):
            with self._lock:
                self._on_event(self, f"sync {path}")
                self._note(descriptor, path)

    def _renamed(self, source: str | Path, target: str | Path) -> None:
        with self._lock:
            if str(target).startswith(str(self.root)):
                self._on_event(self, f"rename {target}")
            self._replace(source, target)

    def _note(self, descriptor: int, path: str) -> None:
        status = os.fstat(descriptor)
        self._held.append(os.dup(descriptor))
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)}
        else:
            with open(f"/proc/self/fd/{descriptor}", "rb") as file:
                self._content[status.st_ino] = file.read()

    def _walk_synced(self, folder: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        for name, (number, is_folder) in self._names.get(folder, {}).items():
            if is_folder:
                yield from self._walk_synced(number, f"{prefix}{name}/")
            else:
                yield f"{prefix}{name}", self._content.get(number, b"")


def write_state(state: State, root: Path) -> None:
    """Write a state to an empty folder."""
    for path, content in state.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
