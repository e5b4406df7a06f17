"""Embedding models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, ModelUnavailable, RequestRejected
from hirag_dist.llm.embedding import Embedded, in_requests
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused, EndpointSettings
from hirag_dist.types import FloatMatrix

_PATH = "/embeddings"


class OpenAiEmbedder:
    """An `Embedder` over one endpoint, and a `llm.embedding.PaidEmbedder`.

    Args:
        settings: the endpoint, with the limits of a request.
        dim: size of the vectors; 0 takes what `probe` shows.
        count_tokens: counts a text.
        truncate: cuts a text to so many tokens.
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
        self.batch_size, self.batch_tokens = settings.batch_size, settings.batch_tokens
        self._count = count_tokens
        self._truncate = truncate
        self._client = EndpointClient(settings)
        self._base64 = True

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length, by one request after the other.

        A text of white space has a row of zeros and is not sent; a vector of zeros stays one.

        Raises: as `request`.
        """
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not self.dim and rows:
            await self.probe()
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        fitted = [self.fitted(texts[row]) for row in rows]
        for part in in_requests([n_tokens for _, n_tokens in fitted], self.batch_size, self.batch_tokens):
            vectors[rows[part]] = (await self.request([text for text, _ in fitted[part]])).vectors
        return vectors

    def fitted(self, text: str) -> tuple[str, int]:
        """Return the text, cut where it is longer than the endpoint takes, and its tokens."""
        n_tokens, limit = self._count(text), self.settings.text_tokens
        return (text, n_tokens) if n_tokens <= limit else (self._truncate(text, limit), limit)

    async def request(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts that fit into one request, with what the endpoint says that they used.

        Raises:
            ConfigError: the endpoint's vectors have another size than `dim`.
            RateLimited: 429.
            ModelUnavailable: no answer, 5xx, or vectors missing from it.
            RequestRejected: another 4xx, or a vector that is not finite.
        """
        found = await self._ask(texts)
        size = found.vectors.shape[1]
        if size != self.dim:
            raise ConfigError(
                f"endpoint {self.settings.name} ({self.name}) answers vectors of size {size}, "
                f"not {self.dim}: set its dim to {size}, or ask for {self.dim} in extra_body"
            )
        return found

    async def probe(self) -> int:
        """Return the size of the endpoint's vectors, found by embedding one word. Raises as `request` does."""
        size = int((await self._ask(["size"])).vectors.shape[1])
        if not self.dim:
            self.dim = size
        return size

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    async def _ask(self, texts: Sequence[str]) -> Embedded:
        body: dict[str, Any] = {"model": self.settings.model, "input": list(texts)}
        as_base64 = self._base64
        try:
            data = await self._client.post(_PATH, body | ({"encoding_format": "base64"} if as_base64 else {}))
        except EndpointRefused as error:
            if not as_base64 or "encoding_format" not in error.said:
                raise
            self._base64 = False
            data = await self._client.post(_PATH, body)
        vectors = self._vectors(data, len(texts))
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
        if not np.all(np.isfinite(lengths)):
            raise RequestRejected(f"{self._who()} answered a vector that is not finite")
        unit: FloatMatrix = (vectors / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
        return Embedded(unit, _used(data), self._client.rate_limits)

    def _vectors(self, data: Mapping[str, Any], n_texts: int) -> FloatMatrix:
        items = data.get("data")
        by_index: dict[int, NDArray[np.float32]] = {}
        for place, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                index = item.get("index")
                by_index[index if isinstance(index, int) else place] = self._vector(item.get("embedding"))
        if by_index.keys() != set(range(n_texts)):
            raise ModelUnavailable(
                f"{self._who()} answered {count_noun(len(by_index), 'vector')} for {count_noun(n_texts, 'text')}"
            )
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


def _used(data: Mapping[str, Any]) -> int | None:
    """Return the tokens that the endpoint says it used; None where it says nothing, or zero, as some servers do."""
    usage = data.get("usage")
    said = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return said if isinstance(said, int) and said > 0 else None
