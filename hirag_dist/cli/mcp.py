"""`hirag-dist mcp`: tools and resources for agents, over an index or a running service."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hirag_dist.cli._options import (
    AsLabelOption,
    ConfigOption,
    ConnectionOptions,
    LabelOption,
    MaxTokensOption,
    MaxUsdOption,
    OptionalIndexOption,
    ServerOption,
    SetOption,
    SnapshotOption,
    configuration,
    refuse_idle,
)
from hirag_dist.cli._output import err
from hirag_dist.errors import ConfigError

if TYPE_CHECKING:
    from hirag_dist.mcp import Backend
    from hirag_dist.mcp.run import HttpOptions

_OPEN_S = 5.0  # for an index to open before clients are served; an error in this time ends the command
TOKEN = "HIRAG_TOKEN"  # environment variable with the token of a server over stdio
_HttpOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP at /mcp of this address, instead of stdio."),
]
_HttpNameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--http-name", metavar="NAME", help="Host name, or HOST:PORT, by which clients reach --http (repeatable)."
    ),
]
_TlsCertOption = Annotated[str | None, typer.Option(metavar="PEM", help="Certificate chain of --http.")]
_TlsKeyOption = Annotated[str | None, typer.Option(metavar="PEM", help="Key of --tls-cert.")]


def mcp(
    connection: ConnectionOptions,
    index: OptionalIndexOption = None,
    server: ServerOption = None,
    http: _HttpOption = None,
    http_names: _HttpNameOption = None,
    tls_cert: _TlsCertOption = None,
    tls_key: _TlsKeyOption = None,
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

    The token for a service is that of --token-file, or of the environment variable HIRAG_TOKEN. With --http each
    request has its caller's own.
    """
    if find_spec("mcp") is None:
        raise ConfigError("this needs the extra mcp: run `pip install 'hirag-dist[mcp]'`")
    if (index is None) == (server is None):
        raise ConfigError("give either --index URI or --server HOST:PORT")
    if server is None:
        refuse_idle(connection.given, "--index", "they are for a connection")
    else:
        here = {"--config": config, "--set": settings, "--snapshot": snapshot, "--max-usd": max_usd}
        here |= {"--max-tokens": max_tokens, "--as-label": as_labels}
        refuse_idle(
            here, "--server", "the service has a configuration of its own, and decides what its callers may see"
        )
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
                reach = None if as_labels is None else frozenset(filter(None, as_labels))
                limits = {"snapshot": snapshot, "max_usd": max_usd, "max_tokens": max_tokens}
                backend = await _index(str(index), loaded, limits, reach)
            stack.push_async_callback(backend.close)
            made = make_server(backend, serving)
            if options is None:
                await serve_stdio(made)
            else:
                await serve_http(made, options, lambda url: err.print(f"MCP at {url}", markup=False, soft_wrap=True))
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
    """Return the backend of an index that is opened in this process, after a few seconds also if it is not open yet.

    Raises:
        HiragError: it cannot be opened.
    """
    from hirag_dist.api.index import open_index_async
    from hirag_dist.mcp import IndexBackend

    opening = asyncio.create_task(open_index_async(uri, config=config, **limits))
    await asyncio.wait({opening}, timeout=_OPEN_S)
    if opening.done():
        opening.result()
    return IndexBackend(opening, reach)
