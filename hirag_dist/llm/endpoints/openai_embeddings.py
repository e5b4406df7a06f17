"""Embedding models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hirag_dist.errors import ConfigError, ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.llm.call import PaidReply
from hirag_dist.llm.embedding import in_requests
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused, EndpointSettings
from hirag_dist.llm.endpoints.openai_connection import MAX_REPLY_BYTES
from hirag_dist.llm.endpoints.openai_replies import MissingVector, UnusableField, parse_usage, parse_vectors
from hirag_dist.types import FloatMatrix

_PATH = "/embeddings"
_MIN_LENGTH, _MAX_LENGTH = 1e-6, 1e6  # of a vector; models have 1, or some tens
_MAX_EQUAL = 8  # texts: a few that a tokenizer does not know may have the same vector
_INDECISIVE = frozenset({"encoding_format", "user"})  # keys of extra_body on which no vector depends
_MAY_BE_BASE64 = frozenset({400, 415, 422, 500, 501})  # statuses of servers that do not know base64
_NUMBER_BYTES = 32  # of a number in JSON


def max_reply_bytes(batch_size: int, dim: int) -> int:
    """Return the most bytes of a reply to a request of so many texts."""
    return MAX_REPLY_BYTES + batch_size * dim * _NUMBER_BYTES


class OpenAiEmbedder:
    """An `Embedder` over one endpoint, and a `llm.embedding.PaidEmbedder`.

    Args:
        dim: size of the vectors.
        truncate: cuts a text to so many tokens.
        prefix: text before each text, as the model was trained with.

    Attributes:
        identity: the model's name, with what else of `extra_body` decides its vectors; for keys.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        dim: int,
        count_tokens: Callable[[str], int],
        truncate: Callable[[str, int], str],
        prefix: str = "",
    ) -> None:
        self.name = settings.model
        self.dim = dim
        self.identity = _identity(settings, dim) + (f" {prefix!r}" if prefix else "")
        self._prefix = prefix
        self.settings = settings
        self.batch_size, self.batch_tokens = settings.batch_size, settings.batch_tokens
        self._count = count_tokens
        self._truncate = truncate
        self._client = EndpointClient(settings, max_reply_bytes(settings.batch_size, dim))
        self._base64 = True
        self._base64_works = False
        self._differs = False  # whether two vectors were found to differ
        self._first: bytes | None = None  # the vector of all texts so far
        self._equal_texts: set[int] = set()

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length, by one request after the other.

        A text of white space has a row of zeros and is not sent; a vector of zeros stays one.

        Raises: as `request`.
        """
        rows = [row for row, text in enumerate(texts) if text.strip()]
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        fitted = [self.fitted(texts[row]) for row in rows]
        for part in in_requests([n_tokens for _, n_tokens in fitted], self.batch_size, self.batch_tokens):
            vectors[rows[part]] = (await self.request([text for text, _ in fitted[part]])).value
        return vectors

    def fitted(self, text: str) -> tuple[str, int]:
        """Return the text after its prefix, cut where it is longer than the endpoint takes, and its tokens."""
        text = self._prefix + text
        n_tokens, limit = self._count(text), self.settings.text_tokens
        return (text, n_tokens) if n_tokens <= limit else (self._truncate(text, limit), limit)

    async def request(self, texts: Sequence[str]) -> PaidReply[FloatMatrix]:
        """Return the vectors of texts that fit into one request, with what the endpoint says that they used.

        Raises:
            ConfigError: the endpoint's vectors have another size than `dim`.
            ModelError: as `EndpointClient.post`.
            UnusableReply: vectors are missing from the answer.
            RequestRejected: a vector that is not finite, or absurdly long or short; fatal where all
                texts have the same vector.
        """
        body: dict[str, Any] = {"model": self.settings.model, "input": list(texts)}
        as_base64 = self._base64
        try:
            data = await self._client.post(_PATH, body | ({"encoding_format": "base64"} if as_base64 else {}))
        except (EndpointRefused, ModelUnavailable) as error:
            is_about_base64 = isinstance(error, EndpointRefused) and "encoding_format" in error.said
            if not as_base64 or not (is_about_base64 or (error.status in _MAY_BE_BASE64 and not self._base64_works)):
                raise
            data = await self._client.post(_PATH, body)
            self._base64 = False
        else:
            self._base64_works = self._base64_works or as_base64
        vectors = self._unit_vectors(data, texts)
        usage = parse_usage(data.get("usage"), sum(map(len, texts)), 0)
        self._client.warn_of(usage)
        size = vectors.shape[1]
        if size != self.dim:
            raise ConfigError(
                f"endpoint {self.settings.name} ({self.name}) answers vectors of size {size}, "
                f"not {self.dim}: set its dim to {size}, or ask for {self.dim} in extra_body"
            )
        return PaidReply(vectors, usage.input_tokens, self._client.rate_limits)

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    def _unit_vectors(self, data: Mapping[str, Any], texts: Sequence[str]) -> FloatMatrix:
        """Return the vectors of texts as float32 rows of unit length, zeros for a vector of zeros."""
        try:
            vectors = parse_vectors(data, len(texts))
        except MissingVector as problem:
            raise RequestRejected(f"{self._client.who} answered {problem}") from None
        except UnusableField as problem:
            raise UnusableReply(f"{self._client.who} answered {problem}") from None
        with np.errstate(over="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        if not np.all(np.isfinite(lengths)):
            raise RequestRejected(f"{self._client.who} answered a vector that is not finite")
        absurd = (lengths > 0) & ((lengths < _MIN_LENGTH) | (lengths > _MAX_LENGTH))
        if np.any(absurd):
            raise RequestRejected(
                f"{self._client.who} answered a vector of length {lengths[absurd][0]:.3g}, which no embedding model has"
            )
        unit: FloatMatrix = (vectors / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
        self._check_differences(unit, texts)
        return unit

    def _check_differences(self, vectors: FloatMatrix, texts: Sequence[str]) -> None:
        """Refuse an endpoint whose vectors are all equal, for texts that are not.

        Raises:
            RequestRejected: there were as many distinct texts as that takes, in one request or since the first.
        """
        distinct = set(texts)
        if len(distinct) > 1 and not np.array_equal(vectors, np.broadcast_to(vectors[0], vectors.shape)):
            self._first = None
            self._differs = True
            return
        n_equal = len(distinct)
        if not self._differs:
            row = vectors[0].tobytes()
            if self._first is not None and self._first != row:
                self._first, self._differs = None, True
                return
            self._first = row
            self._equal_texts |= {hash(text) for text in distinct}
            n_equal = len(self._equal_texts)
        if n_equal >= _MAX_EQUAL:
            kind = "vectors of zeros" if not vectors[0].any() else "one and the same vector"
            raise RequestRejected(
                f"{self._client.who} answers {kind} for {n_equal} different texts: it is no embedding model, or is not "
                "loaded; check `model` and `base_url`",
                fatal=True,
            )


def _identity(settings: EndpointSettings, dim: int) -> str:
    decisive = {
        key: value
        for key, value in settings.extra_body.items()
        if key not in _INDECISIVE and (key, value) != ("dimensions", dim)
    }
    return f"{settings.model} {json.dumps(decisive, sort_keys=True)}" if decisive else settings.model
