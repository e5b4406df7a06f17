"""The all-MiniLM-L6-v2 sentence embedder, in numpy, with weights from a package."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.endpoints.bert import BertEncoder
from hirag_dist.llm.endpoints.minilm_weights import PACKAGES, installed, read_weights, word_pieces
from hirag_dist.llm.endpoints.wordpiece import CLASS, SEPARATOR
from hirag_dist.types import FloatMatrix

_MAX_PIECES = 256  # with the two tokens around a text, as the model was trained
_HEADS = 12


class MiniLmEmbedder:
    """Sentence vectors of 384 numbers from a small transformer for English (texts beyond 256 word pieces are cut).

    The weights are read from an installed package at the first call; nothing is fetched. Vectors are those of
    sentence-transformers to 1e-5, and a text has the same bits alone and in any batch.
    """

    dim = 384

    def __init__(self, name: str | None = None) -> None:
        """Take the name of the weights as an index records it; None for the best that are installed.

        Raises:
            BackendUnavailable: no package with these weights is installed.
        """
        found = [package for package in installed() if name in (None, package.embedder)]
        if not found:
            wanted = next((package for package in PACKAGES if package.embedder == name), PACKAGES[-1])
            raise BackendUnavailable(f"embedder {name or 'minilm'} needs weights: `{wanted.install}`")
        self._package = found[0]
        self.name = self._package.embedder
        self._lock = threading.Lock()
        self._encoder: BertEncoder | None = None

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), 384) float32 rows of unit length; an empty text gives a row of zeros.

        Raises:
            BackendUnavailable: the weights are damaged.
        """
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> FloatMatrix:
        """Return the rows of `embed` without an event loop."""
        with self._lock:
            if self._encoder is None:
                self._encoder = BertEncoder(read_weights(self._package), _HEADS)
        pieces = word_pieces()
        first, last = pieces.id_of(CLASS), pieces.id_of(SEPARATOR)
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        filled = [place for place, text in enumerate(texts) if text.strip()]
        given = [[first, *pieces.encode(texts[place], _MAX_PIECES - 2), last] for place in filled]
        rows[filled] = self._encoder.encode(given)
        return rows
