"""The section `service` of the configuration: what it means, its defaults, its bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hirag_dist.config.base import ConfigSection, Url
from hirag_dist.config.index_names import is_index_pattern


def _labels(given: Any) -> Any:
    if given == "all":
        return given
    if not isinstance(given, list | tuple) or not all(isinstance(label, str) and label for label in given):
        raise ValueError("give a list of labels, such as [public], or the word all")
    return tuple(given)


def _word(given: Any) -> Any:
    """Return the word off, which YAML reads as false without quotes."""
    return "off" if given is False else given


def _indexes(given: Any) -> Any:
    if given == "all":
        return given
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and is_index_pattern(one) for one in given):
        raise ValueError("give a list of names or patterns of indexes, such as [public, team-*], or the word all")
    return tuple(given)


class CatalogueIndexConfig(ConfigSection):
    """An index of a service with many."""

    uri: Url | None = Field(None, description="its folder; null: the folder of its name in service.catalogue")
    title: str = Field("", description="for people, in the list of indexes")
    callers: tuple[str, ...] | None = Field(
        None, description="only callers of these names or patterns, of those who may ask it by the callers file"
    )
    max_concurrent: int | None = Field(
        None, ge=1, description="requests at a time in a process; null: as service.max_concurrent_per_index"
    )
    map_reduce: bool | None = Field(None, description="as service.map_reduce, for this index; null: as that says")
    retrieval: dict[str, Any] = Field(
        default_factory=dict, description="keys of the section retrieval that differ for this index"
    )


class ServiceConfig(ConfigSection):
    """The gRPC service."""

    listen: str = Field(
        "127.0.0.1:50051", description="HOST:PORT of gRPC; beyond loopback callers must be authenticated"
    )
    processes: int = Field(
        1, ge=0, le=64, description="processes that share the port; 0: one per core. Several cannot use Milvus Lite"
    )
    tls_cert: str | None = Field(None, description="PEM file of the service's certificate chain")
    tls_key: str | None = Field(None, description="PEM file of its key")
    tls_client_ca: str | None = Field(
        None, description="PEM file of the authority that must sign clients' certificates"
    )
    callers_file: str | None = Field(None, description="YAML file of callers: tokens, certificates, labels, limits")
    callers_grace_s: float = Field(
        60.0,
        ge=0,
        description="time for which the callers stay valid when that file is missing, unreadable or empty; then every "
        "caller is refused",
    )
    anonymous_labels: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_labels)] = Field(
        (), description="labels of callers if there is no callers_file; all: they see everything"
    )
    access_rule: Literal["all", "any"] = Field(
        "all", description="how many of a document's labels a caller must hold to see it: all of them, or any one"
    )
    catalogue: Url | None = Field(
        None, description="folder or object-store prefix whose sub-folders are indexes, served by their names"
    )
    indexes: dict[str, CatalogueIndexConfig] = Field(
        default_factory=dict,
        description="indexes by name: those outside of catalogue, and settings of those in it",
    )
    default_index: str | None = Field(
        None, description="index of requests that name none; null: the one that the caller may ask, if it is only one"
    )
    anonymous_indexes: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_indexes)] = Field(
        "all", description="names or patterns of indexes that callers may ask if there is no callers_file"
    )
    max_open_indexes: int = Field(
        200, ge=1, description="indexes open at a time in a process; the least recently used one is closed for another"
    )
    index_idle_s: float = Field(
        3600.0, ge=0, description="time without a request after which an index of a catalogue is closed; 0: never"
    )
    max_concurrent_per_index: int | None = Field(
        None,
        ge=1,
        description="requests at a time to one index of a catalogue in a process; null: half of the smaller of "
        "max_concurrent_requests and max_concurrent_answers",
    )
    max_context_tokens: int = Field(
        32_000, ge=200, description="largest context_tokens of a request: a model reads that much, and is paid for it"
    )
    map_reduce: bool = Field(
        False,
        description="allow the modes graphrag-global and text-map-reduce: a model call for each part of the corpus",
    )
    max_concurrent_retrievals: int | None = Field(
        None, ge=1, description="retrievals at a time in a process, the others queue; null: by backend and embedder"
    )
    max_queue_wait_s: float = Field(
        0.25, gt=0, description="longest expected wait in the queue; a request that would wait longer is rejected"
    )
    max_concurrent_answers: int = Field(64, ge=1, description="Answer calls at a time in a process")
    max_concurrent_requests: int = Field(
        256,
        ge=1,
        description="requests of any kind at a time in a process, including those that wait or are being sent",
    )
    send_timeout_s: float = Field(
        30.0,
        gt=0,
        description="time for which a client may leave a part of a stream unread before the stream is dropped",
    )
    max_message_mib: int = Field(16, ge=1, description="largest reply")
    keepalive_s: float = Field(60.0, ge=1, description="silence after which a connection is probed")
    max_connection_age_s: float = Field(
        600.0, ge=0, description="age after which a connection is asked to reconnect, for load balancers; 0: never"
    )
    max_connection_age_grace_s: float = Field(
        300.0, ge=0, description="time that requests on such a connection have to finish"
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="connections at a time in a process; limits of one client are those of a proxy in front",
    )
    max_connection_idle_s: float = Field(
        300.0, gt=0, description="time without a request after which a connection is closed"
    )
    reflection: bool = Field(True, description="serve gRPC reflection, for tools such as grpcurl")
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        description="time for which a stopping service still answers, with health NOT_SERVING, so that load balancers "
        "notice",
    )
    drain_s: float = Field(20.0, ge=0, description="time that requests have to finish when the service stops")
    metrics_listen: str | None = Field(None, description="HOST:PORT of Prometheus /metrics, for all processes")
    metrics_public: bool = Field(False, description="allow metrics_listen on an address beyond loopback")
    access_log: Annotated[Literal["text", "json", "off"], BeforeValidator(_word)] = Field(
        "text", description="format of the access log, one line per request"
    )
    log_questions: bool = Field(False, description="write the question into the access log")
    traces_endpoint: Url | None = Field(
        None, description="OTLP endpoint over HTTP, such as http://collector:4318/v1/traces"
    )
    traces_ratio: float = Field(1.0, ge=0, le=1, description="share of the traces that are sent")
    poll_s: float = Field(2.0, gt=0, description="interval of the checks for a new snapshot, certificates and callers")
    http: str | None = Field(None, description="HOST:PORT of the HTTP server: page and APIs; null: none")
    http_page: bool = Field(True, description="serve the browser page at that address")
    http_inspection: Url | None = Field(
        None,
        description="address at which the file of `inspect --html` is published, to which the browser page links; "
        "{index} in it is the name of the index",
    )
    http_uploads: str | None = Field(
        None,
        description="local folder that keeps documents uploaded on the browser page, which switches uploads on; null: "
        "no upload. Only callers with uploads: true in the callers_file may upload, or, without one, any process of "
        "this machine",
    )
    http_upload_bytes: int = Field(256 << 20, ge=1, description="limit of the files of one upload together")
    http_api: bool = Field(True, description="serve the RPCs as JSON and the OpenAI-compatible API at that address")
    http_origins: tuple[str, ...] = Field(
        (),
        description="origins whose web pages may call the APIs, such as https://chat.example.com; *: any, which needs "
        "a callers_file",
    )
    http_names: tuple[str, ...] = Field(
        (),
        description="host names of the HTTP server in addition to those of its certificate, for a proxy in front of it",
    )
    http_client_cert: str | None = Field(
        None,
        description="PEM file of the certificate that the HTTP server shows to the service; needed with tls_client_ca",
    )
    http_client_key: str | None = Field(None, description="PEM file of its key")
    cache_dir: str | None = Field(
        None,
        description="folder for copies of files that cannot be memory-mapped where they are; null: the index's folder "
        "or a temporary one",
    )
    cache_bytes: int | None = Field(
        None, ge=1, description="size of that cache: room for two snapshots; null: as much as the disk holds"
    )
