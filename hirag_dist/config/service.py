"""The section `service` of the configuration: what it means, its defaults, its bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hirag_dist.config.base import ConfigSection


def _labels(given: Any) -> Any:
    if given == "all":
        return given
    if not isinstance(given, list | tuple) or not all(isinstance(label, str) and label for label in given):
        raise ValueError("give a list of labels, such as [public], or the word all")
    return tuple(given)


def _word(given: Any) -> Any:
    """YAML reads a bare off as a truth value."""
    return "off" if given is False else given


class ServiceConfig(ConfigSection):
    """The gRPC service."""

    listen: str = "127.0.0.1:50051"
    processes: int = Field(
        1,
        ge=0,
        le=64,
        description="that answer on the port; 0: one a core. Several cannot have Milvus Lite",
    )
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = Field(None, description="asks callers for a certificate signed by it")
    callers_file: str | None = Field(None, description="who may call, what they may see and how much they may ask")
    anonymous_labels: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_labels)] = Field(
        (), description="labels that callers hold where there is no callers_file; all: they see everything"
    )
    label_rule: Literal["all", "any"] = Field(
        "all", description="which of a document's labels a caller must hold to see it"
    )
    state_dir: str | None = Field(
        None,
        description="folder that keeps callers' quotas over a restart, one for each service; null: quotas begin again",
    )
    map_reduce: bool = Field(
        False, description="answers in the modes graphrag-global and ts, which cost a call for each part of the corpus"
    )
    concurrency: int | None = Field(
        None, ge=1, description="retrievals at a time in a process, the rest wait in line; null: by what they wait for"
    )
    max_wait_s: float = Field(
        0.25, gt=0, description="longest expected wait in line; who would wait longer is turned away at once"
    )
    max_answers: int = Field(64, ge=1, description="Answer calls at a time in a process")
    max_concurrent: int = Field(
        256, ge=1, description="requests of any kind in a process at a time, those that wait or are sent included"
    )
    send_timeout_s: float = Field(30.0, gt=0, description="how long a caller may leave a piece of a stream unread")
    max_message_mib: int = Field(16, ge=1)
    keepalive_s: float = Field(60.0, ge=1, description="of silence, after which a connection is probed")
    max_connection_age_s: float = Field(
        600.0, ge=0, description="after which a connection is asked to reconnect, for balancers; 0: never"
    )
    max_connection_age_grace_s: float = Field(300.0, ge=0, description="for requests on it to finish then")
    reflection: bool = True
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        description="that a service asked to stop goes on, NOT_SERVING, until balancers have heard",
    )
    drain_s: float = Field(20.0, ge=0, description="for requests to finish when the service stops")
    metrics_listen: str | None = Field(None, description="HOST:PORT of Prometheus /metrics, for all processes")
    metrics_public: bool = Field(False, description="lets metrics_listen be an address that others can reach")
    access_log: Annotated[Literal["text", "json", "off"], BeforeValidator(_word)] = Field(
        "text", description="form of the log's line for each request"
    )
    log_questions: bool = Field(False, description="puts the question into that line")
    traces_endpoint: str | None = Field(None, description="OTLP over HTTP, such as http://collector:4318/v1/traces")
    traces_ratio: float = Field(1.0, ge=0, le=1, description="share of the traces that are sent")
    poll_s: float = Field(2.0, gt=0, description="how often `current`, certificates and callers are looked at")
    http: str | None = Field(None, description="HOST:PORT of a page to ask and look at; null: none")
    http_names: tuple[str, ...] = Field(
        (), description="host names of the page besides those of its certificate, for a proxy in front of it"
    )
    http_client_cert: str | None = Field(None, description="with tls_client_ca: what the page shows the service")
    http_client_key: str | None = None
    cache_dir: str | None = Field(
        None,
        description="for files that cannot be mapped where they are; null: the index's folder or a temporary one",
    )
    cache_bytes: int | None = Field(
        None, ge=1, description="that the cache may hold: room for two snapshots; null: what the disk does"
    )
