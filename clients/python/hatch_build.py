"""Build hook of hirag-dist-client: files and version are those of the package `hirag_dist` in this repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PARTS = (
    "__init__.py",
    "_loop_thread.py",
    "_version.py",
    "py.typed",
    "errors.py",
    "client",
    "integrations",
    "types",
    "wire",
)


def package(root: str) -> Path:
    """Return the folder of the package: in the repository, or in a source distribution that this hook made."""
    here = Path(root)
    return next(path for path in (here / "hirag_dist", here.parents[1] / "hirag_dist") if path.is_dir())


class Files(BuildHookInterface[Any]):
    """Adds the part of the package that a client needs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files.

        Raises:
            RuntimeError: the installation is to be editable, which would make the whole package importable.
        """
        if self.target_name == "wheel" and version == "editable":
            raise RuntimeError("hirag-dist-client cannot be editable; `pip install -e` the repository itself")
        folder = package(self.root)
        build_data["force_include"] |= {str(folder / part): f"hirag_dist/{part}" for part in PARTS}


class Version(MetadataHookInterface):
    """Takes the version of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the version."""
        text = (package(self.root) / "_version.py").read_text(encoding="utf-8")
        found = re.search(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)
        assert found is not None
        metadata["version"] = found[1]
