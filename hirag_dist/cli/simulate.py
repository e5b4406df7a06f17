"""`hirag-dist simulate-llm`: an OpenAI-compatible endpoint answered by the built-in model."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from hirag_dist.cli.output import emit, err
from hirag_dist.simulator import SimulatorOptions, run_simulator


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate-llm")(simulate)


def simulate(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")] = (
        "127.0.0.1:8000"
    ),
    latency_ms: Annotated[float, typer.Option(help="Mean time of a reply.")] = 0.0,
    jitter: Annotated[float, typer.Option(help="Share of the latency that varies, 0 to 1.")] = 0.0,
    rpm: Annotated[float | None, typer.Option(help="Requests a minute before 429.")] = None,
    tpm: Annotated[float | None, typer.Option(help="Tokens a minute before 429.")] = None,
    max_concurrent: Annotated[int | None, typer.Option(help="Calls at a time before 429.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    dim: Annotated[int, typer.Option(help="Size of the embedding vectors.")] = 384,
) -> None:
    """Stand in for a language model: for tests, rehearsals and throughput benchmarks. GET /stats counts calls."""
    options = SimulatorOptions(
        listen=listen,
        latency_ms=latency_ms,
        jitter=jitter,
        rpm=rpm,
        tpm=tpm,
        max_concurrent=max_concurrent,
        seed=seed,
        dim=dim,
    )
    emit(asyncio.run(run_simulator(options, _announce)))


def _announce(base_url: str) -> None:
    err.print(f"Simulating a model at {base_url} (any API key, any model name). Ctrl-C stops it and prints its counts.")
