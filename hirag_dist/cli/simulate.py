"""`hirag-dist simulate-llm`: an OpenAI-compatible endpoint answered by the built-in model."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from hirag_dist.cli._output import emit, err
from hirag_dist.testing.simulator import SimulatorOptions, run_simulator

_LIMITS, _LATENCY, _FAULTS, _BATCHES = "Limits", "Latency", "Faults", "Batches"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate-llm")(simulate)


def _rate(help: str) -> Any:
    return typer.Option(metavar="SHARE", help=help, rich_help_panel=_FAULTS)


def simulate(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")] = (
        "127.0.0.1:8000"
    ),
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    dim: Annotated[int, typer.Option(help="Size of the embedding vectors.")] = 384,
    prompt_cache: Annotated[
        bool, typer.Option("--prompt-cache/--no-prompt-cache", help="Report prompt prefixes seen before as cached.")
    ] = True,
    log: Annotated[str | None, typer.Option(metavar="FILE", help="Add a JSON line a call to this file.")] = None,
    rpm: Annotated[float | None, typer.Option(help="Requests a minute before 429.", rich_help_panel=_LIMITS)] = None,
    tpm: Annotated[float | None, typer.Option(help="Tokens a minute before 429.", rich_help_panel=_LIMITS)] = None,
    burst_s: Annotated[
        float, typer.Option(help="Seconds of a limit granted at once after a rest.", rich_help_panel=_LIMITS)
    ] = 60.0,
    max_concurrent: Annotated[
        int | None, typer.Option(help="Calls at a time before 429.", rich_help_panel=_LIMITS)
    ] = None,
    limit_headers: Annotated[
        bool,
        typer.Option(
            "--limit-headers/--no-limit-headers",
            help="Tell the limits: x-ratelimit-*, Retry-After.",
            rich_help_panel=_LIMITS,
        ),
    ] = True,
    latency_ms: Annotated[float, typer.Option(help="Mean time of a reply.", rich_help_panel=_LATENCY)] = 0.0,
    jitter: Annotated[
        float, typer.Option(help="Share of the latency that varies, 0 to 1.", rich_help_panel=_LATENCY)
    ] = 0.0,
    fail_rate: Annotated[float, _rate("Calls that get 500, 502, 503 or 529.")] = 0.0,
    malformed_rate: Annotated[float, _rate("Chat replies not in the form asked for.")] = 0.0,
    truncate_rate: Annotated[float, _rate("Chat replies cut off, finish_reason length.")] = 0.0,
    hang_rate: Annotated[float, _rate("Calls that are never answered.")] = 0.0,
    drop_rate: Annotated[float, _rate("Connections closed before or inside the reply.")] = 0.0,
    storm_rate: Annotated[float, _rate("Chance of a call to begin a storm of 429.")] = 0.0,
    max_faults_per_request: Annotated[
        int | None, typer.Option(help="Faults that one request gets at most.", rich_help_panel=_FAULTS)
    ] = None,
    batch_latency_ms: Annotated[float, typer.Option(help="Time that a batch takes.", rich_help_panel=_BATCHES)] = 0.0,
    batch_expire_rate: Annotated[
        float, typer.Option(metavar="SHARE", help="Lines of a batch that expire.", rich_help_panel=_BATCHES)
    ] = 0.0,
) -> None:
    """Stand in for a language model: for tests, rehearsals and throughput benchmarks. GET /stats counts calls."""
    options = SimulatorOptions(**locals())  # the parameters have the names of its fields
    emit(asyncio.run(run_simulator(options, _announce)))


def _announce(base_url: str) -> None:
    err.print(f"Simulating a model at {base_url} (any API key, any model name). Ctrl-C stops it and prints its counts.")
