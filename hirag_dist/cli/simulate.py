"""`hirag-dist simulate-llm`: an OpenAI-compatible endpoint with the built-in model behind it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from hirag_dist.cli._output import emit, err
from hirag_dist.testing.simulator import SimulatorOptions, run_simulator

_LIMITS, _LATENCY, _FAULTS = "Limits", "Latency", "Faults"


def _rate(help: str) -> Any:
    return typer.Option(metavar="SHARE", help=help, rich_help_panel=_FAULTS)


def simulate(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")] = (
        "127.0.0.1:8000"
    ),
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
    options = SimulatorOptions(**locals())  # the parameters have the names of its fields
    emit(asyncio.run(run_simulator(options, _announce)))


def _announce(base_url: str) -> None:
    err.print(f"Simulating a model at {base_url} (any API key, any model name). Ctrl-C stops it and prints its counts.")
