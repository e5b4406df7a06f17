"""The page of `serve --http`: from configuration to a page that is served beside the service, in its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hirag_dist.cli._serve import serve_index
from hirag_dist.config.model import Config
from hirag_dist.config.service import ServiceConfig as ServiceConfig
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.shared_state import ServiceState
from hirag_dist.service.web.options import PageOptions
from hirag_dist.service.web.run import Page


def page_options(service: ServiceConfig, *, listen: str | None = None, shared: bool = False) -> PageOptions | None:
    """Return how the page is served, None where none is asked for.

    Args:
        listen: instead of the configured address.
        shared: whether the address is held for the page by another process.

    Raises:
        ConfigError: as `PageOptions`.
    """
    if service.http is None:
        return None
    return PageOptions(
        listen=listen or service.http,
        names=service.http_names,
        tls_cert=service.tls_cert,
        tls_key=service.tls_key,
        tls_client_ca=service.tls_client_ca,
        client_cert=service.http_client_cert,
        client_key=service.http_client_key,
        callers=service.callers_file is not None,
        reuse_port=shared,
        poll_s=service.poll_s,
    )


async def serve_index_and_page(
    config: Config,
    index: str,
    options: ServerOptions,
    page: PageOptions,
    ready: Callable[[str, str], None],
    station: ServiceState,
) -> None:
    """Serve an index and its page from this process until SIGTERM or SIGINT.

    Args:
        ready: called with HOST:PORT and the page's URL once questions are answered.
        station: the service's place on disk.

    Raises:
        HiragError: as `serve_index` and `Page`.
    """
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_index(config, index, options, listening.set_result, stop, station))
    await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if not serving.done():
            address = listening.result()
            async with Page(page, address) as served:
                watching = asyncio.create_task(served.watch())
                ready(address, served.url)
                await asyncio.wait({serving})  # the signals are the service's; it lets the page's questions finish
                watching.cancel()
    finally:
        stop.set()
        await serving
