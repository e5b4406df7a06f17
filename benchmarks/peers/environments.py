"""An environment for each package, made at first use from a pinned version, and kept.

tiktoken would fetch its ranks from the network; those that hirag-dist ships are laid where it looks first.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

from benchmarks.peers.job import API_KEY

REQUIREMENTS = Path(__file__).with_name("requirements")
ROOT = Path(__file__).parents[2]
_RANKS_URL = (
    "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"  # tiktoken names a file by its URL's hash
)
_RANKS = ("cl100k_base", "o200k_base")


class EnvironmentFailed(Exception):
    """An environment could not be made; the message is pip's last line."""


def python_of(name: str, cache: Path) -> Path:
    """Return the interpreter of a package's environment; make it where it is not there or its requirements changed.

    Raises:
        EnvironmentFailed: pip failed; its output is in the log next to the environment.
    """
    requirements = REQUIREMENTS / f"{name}.in"
    folder = cache / f"{name}-{fingerprint(requirements)}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)], cache / f"{name}.log")
    install = ["-m", "pip", "install", "--disable-pip-version-check"]
    _run([str(python), *install, "--requirement", str(requirements)], cache / f"{name}.log")
    (folder / "complete").touch()
    return python


def fingerprint(requirements: Path) -> str:
    """Return a hash of a requirements file and the Python that installs it."""
    version = ".".join(map(str, sys.version_info[:3]))
    return hashlib.sha256(f"{version}\n".encode() + requirements.read_bytes()).hexdigest()[:12]


def versions(python: Path) -> dict[str, str]:
    """Return version by name of everything that is installed."""
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        capture_output=True,
        check=True,
    )
    return {each["name"]: each["version"] for each in json.loads(listed.stdout)}


def variables(base_url: str, cache: Path, checkout: str = "") -> dict[str, str]:
    """Return a worker's environment: no keys or settings of the user, bytecode kept, the endpoint set."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
    home = cache / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), checkout])),
        "OPENAI_API_KEY": API_KEY,
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "TIKTOKEN_CACHE_DIR": str(_ranks(cache / "tiktoken")),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "RAY_USAGE_STATS_ENABLED": "0",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def _ranks(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _RANKS:
        path = folder / hashlib.sha1(_RANKS_URL.format(name).encode()).hexdigest()
        if not path.exists():
            packed = resources.files("hirag_dist.core.text").joinpath("data", f"{name}.tiktoken.xz").read_bytes()
            whole = path.with_suffix(".new")
            whole.write_bytes(lzma.decompress(packed))
            whole.replace(path)
    return folder


def _run(command: list[str], log: Path) -> None:
    with log.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        said = log.read_text(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise EnvironmentFailed(f"{' '.join(command[1:4])}: {said[-1]} (all of it: {log})")
