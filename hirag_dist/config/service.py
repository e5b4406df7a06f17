"""Configuration section `service`: how an index, or a catalogue of indexes, is served."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hirag_dist.config.sections import ConfigSection, Url

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,62}")


def is_index_name(text: str) -> bool:
    """Return whether a text is a name: 1 to 63 letters, digits and . _ - of ASCII, a letter or digit first.

    >>> is_index_name("acme-2026"), is_index_name("..")
    (True, False)
    """
    return _NAME.fullmatch(text) is not None


def is_index_pattern(text: str) -> bool:
    """Return whether a text is a pattern: a name in which * may stand for any characters.

    >>> is_index_pattern("acme-*"), is_index_pattern("a/*")
    (True, False)
    """
    return _PATTERN.fullmatch(text) is not None


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns.

    >>> matches_any("acme-2026", ["beta", "acme-*"]), matches_any("acme", ["acme-*"])
    (True, False)
    """
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _labels(given: Any) -> Any:
    if given == "all":
        return given
    if not isinstance(given, list | tuple) or not all(isinstance(label, str) and label for label in given):
        raise ValueError("Expected a list of labels, such as [public], or the word all")
    return tuple(given)


def _switch(given: Any) -> Any:
    """Refuse the formats that the access log had of its own."""
    if given in ("text", "json"):
        raise ValueError(f"Expected true or false, got {given}: --log-format {given} is the format of all log lines")
    return given


class CatalogueIndexConfig(ConfigSection):
    """Settings of one index of a service with many."""

    uri: Url | None = Field(
        None, description="Folder of the index; null: the folder of the same name in service.catalogue"
    )
    title: str = Field("", description="Title of the index in lists that people read")
    retrieval: dict[str, Any] = Field(
        default_factory=dict, description="Keys of the section retrieval whose values differ for this index"
    )


class ServiceConfig(ConfigSection):
    """The service: gRPC, and over HTTP the browser page, JSON and the OpenAI-compatible API."""

    listen: str = Field(
        "127.0.0.1:50051",
        description="HOST:PORT of the gRPC server; an address beyond loopback requires authenticated callers",
    )
    processes: int = Field(
        1,
        ge=0,
        le=64,
        description="Processes that share the port; 0: one for each core. Milvus Lite works with one process only",
    )
    tls_cert: str | None = Field(None, description="PEM file with the certificate chain of the service")
    tls_key: str | None = Field(None, description="PEM file with the private key of tls_cert")
    tls_client_ca: str | None = Field(
        None, description="PEM file with the authority that must have signed the certificates of clients (mutual TLS)"
    )
    callers_file: str | None = Field(
        None, description="YAML file with the callers: their tokens, certificates, labels and limits"
    )
    anonymous_labels: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_labels)] = Field(
        (), description="Labels that callers hold if there is no callers_file; all: they see every document"
    )
    access_rule: Literal["all", "any"] = Field(
        "all", description="Labels of a document that a caller must hold to see it: all of them, or any one"
    )
    catalogue: Url | None = Field(
        None, description="Folder or object-store prefix whose sub-folders are served as indexes, by their names"
    )
    indexes: dict[str, CatalogueIndexConfig] = Field(
        default_factory=dict,
        description="Indexes by name: those that lie outside of catalogue, and settings of those in it",
    )
    default_index: str | None = Field(
        None, description="Index of requests that name none; null: the caller's only index, if the caller has just one"
    )
    max_open_indexes: int = Field(
        200, ge=1, description="Maximum open indexes of a process; the least recently used one is closed for another"
    )
    max_context_tokens: int = Field(
        32_000, ge=200, description="Maximum context_tokens that a request may ask for; the model is paid to read them"
    )
    map_reduce: bool = Field(
        False,
        description="Allow the modes graphrag-global and text-map-reduce, which call a model for each part of the "
        "corpus",
    )
    max_concurrent_answers: int = Field(64, ge=1, description="Maximum concurrent answers of a process")
    max_concurrent_requests: int = Field(
        256, ge=1, description="Maximum concurrent requests of a process, of any kind, those in the queue included"
    )
    reflection: bool = Field(True, description="Serve gRPC reflection, which tools such as grpcurl use")
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        description="Seconds for which a stopping service still answers, with health NOT_SERVING, until load balancers "
        "have noticed",
    )
    drain_s: float = Field(20.0, ge=0, description="Seconds that requests have to finish when the service stops")
    metrics_listen: str | None = Field(
        None, description="HOST:PORT of Prometheus metrics of all processes; whoever reaches it can read them"
    )
    access_log: Annotated[bool, BeforeValidator(_switch)] = Field(
        True, description="Write one line into the log for each request"
    )
    log_questions: bool = Field(False, description="Write the questions into the access log")
    http: str | None = Field(
        None, description="HOST:PORT of the HTTP server with the browser page and the APIs; null: no HTTP server"
    )
    http_page: bool = Field(True, description="Serve the browser page at that address, beside the APIs")
    http_origins: tuple[str, ...] = Field(
        (),
        description="Origins whose web pages may call the APIs, such as https://chat.example.com; *: any origin, which "
        "requires a callers_file",
    )
    http_names: tuple[str, ...] = Field(
        (),
        description="Host names of the HTTP server besides those of its certificate, such as the name of a proxy in "
        "front of it",
    )
    http_client_cert: str | None = Field(
        None,
        description="PEM file with the certificate that the HTTP server shows to the gRPC server, where tls_client_ca "
        "is set",
    )
    http_client_key: str | None = Field(None, description="PEM file with the private key of http_client_cert")
    cache_dir: str | None = Field(
        None,
        description="Folder for copies of files of an object store, which are memory-mapped; null: the folder of the "
        "index, or a temporary one",
    )
    cache_bytes: int | None = Field(
        None,
        ge=1,
        description="Maximum bytes of that folder, which should hold two snapshots; null: the space of the disk",
    )
