"""Embedding models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.backends.openai_client import EndpointClient, EndpointRefused, EndpointSettings, RateLimits
from hirag_dist.errors import ConfigError, ModelUnavailable, RequestRejected
from hirag_dist.types import FloatMatrix

_PATH = "/embeddings"


class OpenAiEmbedder:
    """An `Embedder` over one endpoint. Requests of one `embed` go one after the other; the caller spreads its texts.

    Args:
        settings: the endpoint, with the limits of a request.
        dim: size of the vectors; 0 takes what `probe` or the first reply shows.
        count_tokens: called only for texts that may be too long.
        truncate: cuts a text to so many tokens.

    Attributes:
        calls: requests answered.
        input_tokens: what the endpoint says that they used.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        dim: int,
        count_tokens: Callable[[str], int],
        truncate: Callable[[str, int], str],
    ) -> None:
        self.name = settings.model
        self.dim = dim
        self.settings = settings
        self.calls = 0
        self.input_tokens = 0
        self._count = count_tokens
        self._truncate = truncate
        self._client = EndpointClient(settings)
        self._base64 = True

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length.

        A text of white space has a row of zeros and is not sent; a vector of zeros stays one.

        Raises:
            ConfigError: the endpoint's vectors have another size than `dim`.
            RateLimited: 429.
            ModelUnavailable: no answer, 5xx, or vectors missing from it.
            RequestRejected: another 4xx, or a vector that is not finite.
        """
        asked = [row for row, text in enumerate(texts) if text.strip()]
        if not self.dim and asked:
            await self.probe()
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for rows, batch in self._batches(asked, texts):
            found = await self._ask(batch)
            if found.shape[1] != self.dim:
                raise ConfigError(
                    f"endpoint {self.settings.name} ({self.name}) answers vectors of size {found.shape[1]}, "
                    f"not {self.dim}: set its dim to {found.shape[1]}, or ask for {self.dim} in extra_body"
                )
            vectors[rows] = found
        return vectors

    async def probe(self) -> int:
        """Return the size of the endpoint's vectors, found by embedding one word. Raises as `embed` does."""
        size = int((await self._ask(["size"])).shape[1])
        if not self.dim:
            self.dim = size
        return size

    @property
    def rate_limits(self) -> RateLimits | None:
        """What the endpoint last said of its limits."""
        return self._client.rate_limits

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

    def _batches(self, rows: Sequence[int], texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
        """Yield (rows, texts) within the limits of a request."""
        settings = self.settings
        batch: list[str] = []
        places: list[int] = []
        used = 0
        for row in rows:
            text, n_tokens = self._fitted(texts[row])
            if batch and (len(batch) == settings.batch_size or used + n_tokens > settings.batch_tokens):
                yield places, batch
                batch, places, used = [], [], 0
            batch.append(text)
            places.append(row)
            used += n_tokens
        if batch:
            yield places, batch

    def _fitted(self, text: str) -> tuple[str, int]:
        """Return the text, cut where it is too long, and at least as many tokens as it has."""
        n_bytes = len(text.encode("utf-8", "replace"))
        limit = self.settings.text_tokens
        if n_bytes <= limit:
            return text, n_bytes  # a token is at least a byte
        n_tokens = self._count(text)
        return (text, n_tokens) if n_tokens <= limit else (self._truncate(text, limit), limit)

    async def _ask(self, texts: list[str]) -> FloatMatrix:
        body: dict[str, Any] = {"model": self.settings.model, "input": texts}
        try:
            data = await self._client.post(_PATH, body | ({"encoding_format": "base64"} if self._base64 else {}))
        except EndpointRefused as error:
            if not self._base64 or "encoding_format" not in error.said:
                raise
            self._base64 = False
            data = await self._client.post(_PATH, body)
        self.calls += 1
        self.input_tokens += int((data.get("usage") or {}).get("prompt_tokens") or 0)
        vectors = self._vectors(data, len(texts))
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
        if not np.all(np.isfinite(lengths)):
            raise RequestRejected(f"{self._who()} answered a vector that is not finite")
        unit: FloatMatrix = (vectors / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
        return unit

    def _vectors(self, data: Mapping[str, Any], n_texts: int) -> FloatMatrix:
        items = data.get("data")
        by_index: dict[int, NDArray[np.float32]] = {}
        for place, item in enumerate(items if isinstance(items, list) else ()):
            by_index[int(item.get("index", place))] = self._vector(item.get("embedding"))
        if sorted(by_index) != list(range(n_texts)):
            raise ModelUnavailable(f"{self._who()} answered {len(by_index)} vectors for {n_texts} texts")
        rows = [by_index[index] for index in range(n_texts)]
        if len({len(row) for row in rows}) != 1:
            raise ModelUnavailable(f"{self._who()} answered vectors of several sizes at once")
        return np.stack(rows)

    def _vector(self, embedding: object) -> NDArray[np.float32]:
        try:
            if isinstance(embedding, str):
                return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
            return np.asarray(embedding, dtype=np.float32).reshape(-1)
        except (binascii.Error, ValueError, TypeError) as error:
            raise ModelUnavailable(f"{self._who()} answered a vector that cannot be read") from error

    def _who(self) -> str:
        return f"endpoint {self.settings.name} ({self.name})"
