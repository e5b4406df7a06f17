"""Models by endpoint: the part of `composition` that makes what an endpoint's kind names, without ledger or limits."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hirag_dist.config.model import Config, EndpointConfig
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.errors import ConfigError
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.rule_based import ExtractiveModel
from hirag_dist.llm.usage import MAX_REPLY_TOKENS
from hirag_dist.protocols import ChatModel, Embedder, Reranker

if TYPE_CHECKING:
    from hirag_dist.llm.endpoints.openai_client import EndpointSettings
    from hirag_dist.llm.endpoints.rerank import RerankEndpoint


def make_chat_model(name: str, config: Config, spending: bool = False) -> ChatModel:
    """Return the chat model of an endpoint.

    Args:
        spending: limit each reply, so that what a call can cost is known.

    Raises:
        ConfigError: the endpoint cannot chat, or its key file cannot be read.
        BackendUnavailable: its recording is not there.
    """
    endpoint = config.llm.endpoints[name]
    count = counter(config.tokenizer)
    if endpoint.kind == "extractive":
        return ExtractiveModel(count)
    if endpoint.kind == "recorded":
        from hirag_dist.llm.endpoints.recorded import RecordedModel

        fallback = make_chat_model(endpoint.fallback, config) if endpoint.fallback else None
        return RecordedModel(str(endpoint.path), fallback, count, endpoint.model)
    if endpoint.kind == "openai":
        from hirag_dist.llm.endpoints.openai_chat import OpenAiChat

        return OpenAiChat(endpoint_settings(name, endpoint, config, spending), count)
    raise ConfigError(f"endpoint {name!r} of kind {endpoint.kind} cannot chat")


def make_embedder(config: Config, texts: Literal["query", "passage"] = "passage") -> Embedder:
    """Return the embedder, without ledger or limits.

    Args:
        texts: what it embeds: questions, or what they are compared with; the endpoint's prefix of these is used.

    Raises:
        BackendUnavailable: its package is missing.
        ConfigError: an endpoint whose vectors have another size than `dim`.
    """
    name = config.llm.roles.embed
    endpoint = config.llm.endpoints[name]
    if endpoint.kind == "auto":
        from hirag_dist.llm.endpoints.onnx_models import local_embedder

        endpoint = endpoint.model_copy(update=local_embedder(None))
    if endpoint.kind == "hashing":
        return HashingEmbedder(endpoint.dim or 384)
    if endpoint.kind == "minilm":
        from hirag_dist.llm.endpoints.onnx_models import MiniLmEmbedder

        return MiniLmEmbedder(endpoint.model)
    prefix = endpoint.prefixes.get(texts, "")
    if endpoint.kind == "onnx":
        from hirag_dist.llm.endpoints.onnx_models import OnnxEmbedder

        return OnnxEmbedder(str(endpoint.path), endpoint.dim, endpoint.context_window, prefix)
    from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder

    if endpoint.dim is None:
        raise ConfigError(f"endpoint {name!r} embeds, so it needs `dim`, the size of its vectors")
    tokens = encoding(config.tokenizer)
    return OpenAiEmbedder(
        endpoint_settings(name, endpoint, config),
        endpoint.dim,
        counter(config.tokenizer),
        lambda text, limit: tokens.decode(tokens.encode_ordinary(text)[:limit]),
        prefix,
    )


def make_local_reranker(name: str, config: Config) -> Reranker | None:
    """Return the reranker of an endpoint of this process; None for one at an address.

    Raises:
        ConfigError: its file cannot be read.
        BackendUnavailable: onnxruntime is not installed.
    """
    endpoint = config.llm.endpoints[name]
    if endpoint.kind != "onnx":
        return None
    from hirag_dist.llm.endpoints.onnx_models import OnnxReranker

    return OnnxReranker(str(endpoint.path), endpoint.context_window)


def make_reranker(name: str, config: Config) -> RerankEndpoint:
    """Return the reranker at an address, without limits. Raises as `endpoint_settings`."""
    from hirag_dist.llm.endpoints.rerank import RerankEndpoint

    return RerankEndpoint(endpoint_settings(name, config.llm.endpoints[name], config))


def endpoint_settings(name: str, endpoint: EndpointConfig, config: Config, spending: bool = False) -> EndpointSettings:
    """Return the settings of a client for an endpoint of kind openai or rerank; arguments as of `make_chat_model`.

    Raises:
        ConfigError: the endpoint's key file cannot be read.
    """
    from hirag_dist.llm.endpoints.openai_client import BATCH_TOKENS, EndpointSettings

    key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
    if endpoint.api_key_file:
        try:
            key = Path(endpoint.api_key_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"endpoint {name!r}: cannot read api_key_file: {error}") from error
    names = {field.name for field in fields(EndpointSettings)}
    settings: dict[str, Any] = {key: value for key, value in endpoint if key in names}
    settings |= {
        "name": name,
        "api_key": key,
        "structured": "none" if endpoint.output == "delimited" else endpoint.output,
        "key_header": endpoint.key_header or "",
        "max_reply_tokens": endpoint.max_reply_tokens or (MAX_REPLY_TOKENS if spending else None),
    }
    if endpoint.tpm is not None:  # a request above the tokens of a minute could never be granted
        settings["batch_tokens"] = max(min(BATCH_TOKENS, int(endpoint.tpm / 4)), 1)
    return EndpointSettings(**settings)
