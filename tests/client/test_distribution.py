"""hirag-dist-client: the wheel and the source distribution that clients/python makes of this repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

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
BUILD = "import sys; from hatchling import build; build.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the project folder as `pip` does, but in this environment."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, out], cwd=FOLDER, check=True, capture_output=True)
    (made,) = out.glob("*.whl")
    return made


@pytest.mark.integration
def test_the_wheel_holds_modules_of_the_package_and_no_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    modules = {name: content for name, content in files.items() if ".dist-info/" not in name}
    (metadata,) = [content for name, content in files.items() if name.endswith("/METADATA")]
    said = message_from_bytes(metadata)
    assert (said["Name"], said["Version"]) == ("hirag-dist-client", hirag_dist.__version__)
    assert {Path(name).parts[1] for name in modules} == PARTS
    for name, content in modules.items():  # the same bytes: with both installed, neither changes the other
        assert content == (ROOT / name).read_bytes(), name
        assert not name.endswith(".pyc")
    assert not [name for name in files if name.endswith("entry_points.txt")]


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
