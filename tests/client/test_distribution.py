"""hirag-dist-client: the wheel and the source distribution that clients/python makes of this repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import hirag_dist

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients" / "python"
PARTS = {
    "__init__.py",
    "_loop_thread.py",
    "_version.py",
    "py.typed",
    "errors.py",
    "client",
    "integrations",
    "types",
    "wire",
}
# An import of anything but the declared dependencies of the client, and what these import, fails.
CODE = """
import importlib.abc, json, sys
DECLARED = {*sys.stdlib_module_names, "hirag_dist", "grpc", "typing_extensions"}
class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        protobuf = name == "google" or name.startswith(("google.protobuf", "google._upb"))
        if not protobuf and name.partition(".")[0] not in DECLARED:
            raise ImportError(f"{name} is no dependency of the client")
sys.meta_path.insert(0, Only())
from hirag_dist import AsyncHiragClient, HiragClient, Query, errors
with HiragClient("127.0.0.1:1", retries=False) as client:
    for call in (client.retrieve, client.wait_ready):
        try:
            call(Query("q", vector=[1.0, 2.0]), timeout_s=0.2) if call == client.retrieve else call(0.2)
        except errors.ServiceError:
            pass
        else:
            raise AssertionError("nothing listens there")
print(json.dumps(sorted(name for name in sys.modules if name.startswith("hirag_dist"))))
"""
BUILD = "import sys; from hatchling import build; getattr(build, sys.argv[1])(sys.argv[2])"


def build(kind: str, folder: Path, out: Path) -> Path:
    """Build a distribution of a project folder as `pip` does, but in this environment."""
    subprocess.run([sys.executable, "-c", BUILD, f"build_{kind}", out], cwd=folder, check=True, capture_output=True)
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", FOLDER, tmp_path_factory.mktemp("wheel"))


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return message_from_bytes(archive.read(name))


def modules(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def project(path: Path) -> Any:
    return tomllib.loads(path.read_text(encoding="utf-8"))["project"]


@pytest.mark.integration
def test_the_wheel_holds_modules_of_the_package_and_no_others(wheel: Path) -> None:
    said, files = metadata(wheel), modules(wheel)
    assert (said["Name"], said["Version"]) == ("hirag-dist-client", hirag_dist.__version__)
    assert {Path(name).parts[1] for name in files} == PARTS
    for name, content in files.items():  # the same bytes: with both distributions installed, neither changes the other
        assert content == (ROOT / name).read_bytes(), name
        assert not name.endswith(".pyc")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith("entry_points.txt")]


@pytest.mark.integration
def test_the_wheel_works_with_its_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    ask = "import sys, hirag_dist; assert hirag_dist.__file__.startswith(sys.argv[1]), hirag_dist.__file__\n"
    whole = (
        "import hirag_dist\n"
        "try:\n    hirag_dist.open_index\nexcept ImportError as error:\n    print(error)\n"
        "try:\n    from hirag_dist.types import CsrGraph\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask + CODE + whole, str(wheel)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "hirag-dist-client has no hirag_dist.open_index; `pip install hirag-dist` has it",
        "numpy is no dependency of the client",
    ]
