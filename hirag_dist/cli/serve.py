"""`hirag-dist serve`, `mcp` and `simulate-llm`: the gRPC service with its page, tools for agents, a simulated model."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hirag_dist.cli._command_line import flattened
from hirag_dist.cli._options import (
    LISTEN,
    AsLabelOption,
    ConfigOption,
    ConnectionOptions,
    HttpOption,
    JsonOption,
    LabelOption,
    MaxTokensOption,
    MaxUsdOption,
    OptionalIndexOption,
    ServerOption,
    SetOption,
    SnapshotOption,
    by_option,
    configuration,
    label_reach,
    refuse_idle,
)
from hirag_dist.cli._output import emit, err, told_when_late
from hirag_dist.errors import ConfigError

if TYPE_CHECKING:
    from hirag_dist.config.service import ServiceConfig
    from hirag_dist.mcp import Backend
    from hirag_dist.mcp.run import HttpOptions

_TOKEN_BYTES = 32  # of randomness
_LIMITS, _LATENCY, _FAULTS = "Limits", "Latency", "Faults"


def _serve(
    context: typer.Context,
    index: OptionalIndexOption = None,
    catalogue: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Folder whose sub-folders are indexes, served by their names; or s3://…"),
    ] = None,
    listen: Annotated[str | None, LISTEN] = None,
    processes: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Processes that share the port; 0 is one per core.")
    ] = None,
    http: HttpOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    check_files: Annotated[
        bool, typer.Option("--check-files", help="Check the checksum of every file of the snapshot first.")
    ] = False,
) -> None:
    """Serve the current snapshot of an index, or of many, over gRPC; switch to each new one when it is published.

    --listen is the address of the gRPC service. At the address of --http are a browser page, all methods as JSON, and
    an OpenAI-compatible API.
    """
    if context.invoked_subcommand is not None:
        return
    from hirag_dist.composition import serving

    overrides = {
        "service.catalogue": catalogue,
        "service.listen": listen,
        "service.processes": processes,
        "service.http": http,
    }
    loaded = configuration(config, settings, overrides).config
    service = loaded.service
    if index is None and not (service.catalogue or service.indexes):
        raise ConfigError("give --index URI for one index, or --catalogue URI for all indexes in a folder")
    if check_files and index is None:
        raise ConfigError("--check-files is for --index; `hirag-dist doctor` opens every index of a catalogue")
    with told_when_late() as is_open:

        def announce(address: str, url: str | None = None) -> None:
            is_open()
            ask = f'hirag-dist query --server {address}{_connection_options(service)} "…"'
            err.print(f"Serving on {address}. Ask it: {ask}. Ctrl-C stops it.")
            if service.tls_cert is not None:
                err.print("CA.pem holds the authority of its certificate; where the system knows it, --tls will do.")
            if url is not None and service.http_page:
                err.print(f"Browser page: {url}")
            if url is not None:
                err.print(f"OpenAI-compatible API: {url}v1. Description of all HTTP APIs: {url}openapi.json")

        if not serving.serve(loaded, index or "", announce, verify=check_files):
            raise typer.Exit(1)


def _connection_options(service: ServiceConfig) -> str:
    """Return the options that a command needs for a connection to a service; capitals stand for the caller's files."""
    options = {
        "--ca CA.pem": service.tls_cert,
        "--cert CERT.pem --key KEY.pem": service.tls_client_ca,
        "--token-file FILE": service.callers_file if service.tls_client_ca is None else None,  # else certificates do
    }
    return "".join(f" {option}" for option, given in options.items() if given is not None)


def _token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the caller.")],
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; default: never.")] = None,
    json: JsonOption = False,
) -> None:
    """Make a bearer token for a caller. It is shown once; the callers file has its hash."""
    from hirag_dist.service.callers import is_name

    if not is_name(name):
        raise ConfigError(f"{name!r} is not a valid caller name; a name has up to 64 letters, digits and . _ @ -")
    fresh = f"hirag_{secrets.token_urlsafe(_TOKEN_BYTES)}"
    digest = hashlib.sha256(fresh.encode()).hexdigest()
    until = None if days is None else (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    if json:
        emit({"name": name, "token": fresh, "sha256": digest, "expires": until})
        return
    print(f"The token, shown only now:\n\n  {fresh}\n")
    print("For the callers file (service.callers_file); add the token to the list if the caller exists already:\n")
    print(f'callers:\n  {name}:\n    tokens:\n      - sha256: "{digest}"')
    if until is not None:
        print(f"        expires: {until}")
    print("    labels: []  # of documents that it may see in addition to those without labels; all: everything")


serve = typer.Typer(invoke_without_command=True)
serve.callback()(flattened(_serve))
serve.command("token")(flattened(_token))


def _rate(help: str) -> Any:
    return typer.Option(metavar="SHARE", help=help, rich_help_panel=_FAULTS)


def simulate(
    listen: Annotated[str, LISTEN] = "127.0.0.1:8000",
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    dim: Annotated[int, typer.Option(help="Size of the embedding vectors.")] = 384,
    rpm: Annotated[float | None, typer.Option(help="Requests per minute before 429.", rich_help_panel=_LIMITS)] = None,
    tpm: Annotated[float | None, typer.Option(help="Tokens per minute before 429.", rich_help_panel=_LIMITS)] = None,
    burst_s: Annotated[
        float, typer.Option(help="Size of a burst, in seconds of the limit.", rich_help_panel=_LIMITS)
    ] = 60.0,
    max_concurrent: Annotated[
        int | None, typer.Option(help="Calls at a time before 429.", rich_help_panel=_LIMITS)
    ] = None,
    limit_headers: Annotated[
        bool,
        typer.Option(
            "--limit-headers/--no-limit-headers",
            help="Send the limits in headers: x-ratelimit-*, Retry-After.",
            rich_help_panel=_LIMITS,
        ),
    ] = True,
    latency_ms: Annotated[float, typer.Option(help="Mean latency of a reply.", rich_help_panel=_LATENCY)] = 0.0,
    jitter: Annotated[
        float, typer.Option(help="Share of the latency that varies, 0 to 1.", rich_help_panel=_LATENCY)
    ] = 0.0,
    fail_rate: Annotated[float, _rate("Share of calls answered with 500, 502, 503 or 529.")] = 0.0,
    malformed_rate: Annotated[float, _rate("Share of chat replies in the wrong format.")] = 0.0,
    truncate_rate: Annotated[float, _rate("Share of chat replies cut off, finish_reason length.")] = 0.0,
    hang_rate: Annotated[float, _rate("Share of calls that are never answered.")] = 0.0,
) -> None:
    """Simulate a language model, for tests, rehearsals and throughput benchmarks. GET /stats counts calls."""
    options = dict(locals())  # the parameters have the names of the fields of SimulatorOptions
    from hirag_dist.testing.simulator import SimulatorOptions, run_simulator

    def announce(base_url: str) -> None:
        told = "(any API key, any model name). Ctrl-C stops it and prints its counts."
        err.print(f"Simulating a model at {base_url} {told}")

    emit(asyncio.run(run_simulator(SimulatorOptions(**options), announce)))


_OPEN_S = 5.0  # for an index to open before clients are served; an error in this time ends the command
TOKEN = "HIRAG_TOKEN"  # environment variable with the token of a server over stdio


def mcp(
    connection: ConnectionOptions,
    index: OptionalIndexOption = None,
    server: ServerOption = None,
    http: HttpOption = None,
    http_names: Annotated[
        list[str] | None,
        typer.Option(
            "--http-name", metavar="NAME", help="Host name, or HOST:PORT, by which clients reach --http (repeatable)."
        ),
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="PEM", help="Certificate chain of --http.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="PEM", help="Key of --tls-cert.")] = None,
    labels: LabelOption = None,
    as_labels: AsLabelOption = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time limit of a call.")] = 60.0,
    config: ConfigOption = None,
    settings: SetOption = None,
    snapshot: SnapshotOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
) -> None:
    """Serve an index to agents by the Model Context Protocol (MCP).

    It speaks over stdio, or with --http over streamable HTTP at the path /mcp. The token for a service is that of
    --token-file, or of the environment variable HIRAG_TOKEN. With --http each request has its caller's own.
    """
    if find_spec("mcp") is None:
        raise ConfigError("this needs the extra mcp: run `pip install 'hirag-dist[mcp]'`")
    if (index is None) == (server is None):
        raise ConfigError("give either --index URI or --server HOST:PORT")
    if server is None:
        refuse_idle(by_option(connection), "--index", "they are for a connection")
    else:
        here = {"--config": config, "--set": settings, "--snapshot": snapshot, "--max-usd": max_usd}
        here |= {"--max-tokens": max_tokens, "--as-label": as_labels}
        why = "the service has a configuration of its own, and decides what its callers may see"
        refuse_idle(here, "--server", why)
    if http is None:
        of_http = {"--http-name": http_names, "--tls-cert": tls_cert, "--tls-key": tls_key}
        refuse_idle(of_http, "stdio", "they are for --http")
    elif connection.token_file is not None or connection.cert is not None:
        raise ConfigError(
            "--token-file and --cert cannot go with --http: every caller would have the same rights; each sends its "
            "own token in the header Authorization, which goes to the service"
        )
    from hirag_dist.mcp.run import HttpOptions, serve_http, serve_stdio
    from hirag_dist.mcp.tools import ServerSettings, make_server

    options = (
        None if http is None else HttpOptions(http, tuple(http_names or ()), tls_cert, tls_key, server is not None)
    )
    serving = ServerSettings(tuple(labels or ()), timeout)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            if server is not None:
                token = None if http is not None or connection.token_file is not None else os.environ.get(TOKEN) or None
                backend = await _service(server, connection.arguments | {"token": token}, options)
            else:
                loaded = configuration(config, settings).config
                limits = {"snapshot": snapshot, "max_usd": max_usd, "max_tokens": max_tokens}
                backend = await _index(str(index), loaded, limits, label_reach(as_labels))
            stack.push_async_callback(backend.close)
            if options is None:
                await serve_stdio(make_server(backend, serving))
            else:

                def announce(url: str) -> None:
                    err.print(f"MCP at {url}", markup=False, soft_wrap=True)

                await serve_http(backend, serving, options, announce)
        if options is None:
            sys.stdout.flush()
            os._exit(0)  # a thread may still wait for a line of stdin, and nothing can interrupt it

    asyncio.run(run())


async def _service(target: str, connection: dict[str, Any], options: HttpOptions | None) -> Backend:
    """Return the backend of a running service.

    Raises:
        ConfigError: the address is open to the network, and the service answers callers without a token.
    """
    from hirag_dist.client import AsyncHiragClient, Unauthenticated
    from hirag_dist.mcp import ServiceBackend

    client = AsyncHiragClient(target, **connection)
    if options is not None and options.is_open:
        try:
            await client.describe()
        except Unauthenticated:
            return ServiceBackend(client)
        except BaseException:
            await client.close()
            raise
        await client.close()
        raise ConfigError(
            f"--http {options.listen} opens {target} to the network, and that service answers callers without a token: "
            "give it a callers file, or listen on 127.0.0.1 without --http-name"
        )
    return ServiceBackend(client)


async def _index(uri: str, config: Any, limits: dict[str, Any], reach: frozenset[str] | None) -> Backend:
    """Return the backend of an index that is opened in this process, after a few seconds also if it is not open yet."""
    from hirag_dist.api.index import open_index_async
    from hirag_dist.mcp import IndexBackend

    opening = asyncio.create_task(open_index_async(uri, config=config, **limits))
    await asyncio.wait({opening}, timeout=_OPEN_S)
    if opening.done():
        opening.result()
    return IndexBackend(opening, reach)
