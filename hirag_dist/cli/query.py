"""`hirag-dist query`: retrieve and answer, in this process or from a running service."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hirag_dist.cli.options import ConfigOption, JsonOption, SetOption, SnapshotOption, configuration
from hirag_dist.cli.output import emit, out, use_json
from hirag_dist.cli.results import answer_as_json, retrieval_as_json, show_answer, show_retrieval
from hirag_dist.config_file import load_prompts
from hirag_dist.errors import ConfigError
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.types import Answer, Query, Retrieval


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("query")(query)


def query(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    index: Annotated[str | None, typer.Option("--index", "-i", metavar="URI", help="Index folder, or s3://… .")] = None,
    server: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Ask a running service instead.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    mode: Annotated[str | None, typer.Option(help="hirag, local, global, bridge, nobridge, naive or flat.")] = None,
    context_only: Annotated[bool, typer.Option("--context-only", help="Retrieve, and do not answer.")] = False,
    top_n: Annotated[int | None, typer.Option(help="Local entities (Eq. 12).")] = None,
    top_m: Annotated[int | None, typer.Option(help="Key entities of each community (Eq. 14).")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="Search only documents that carry this label; several: all.")
    ] = None,
    as_label: Annotated[
        list[str] | None,
        typer.Option("--as-label", help="See what a caller sees who holds this label, or several; '' for none."),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer as it comes.")] = False,
    token_file: Annotated[str | None, typer.Option(help="File with the service's bearer token.")] = None,
    ca: Annotated[str | None, typer.Option(help="PEM file of the authority that signed the service.")] = None,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Ask a question of an index."""
    use_json(json)
    if (index is None) == (server is None):
        raise ConfigError("give either --index URI or --server HOST:PORT")
    if as_label is not None and server is not None:
        raise ConfigError("--as-label is for --index: a service knows itself what its callers may see")
    reach = None if as_label is None else frozenset(filter(None, as_label))
    asked = Query(question, mode, top_n=top_n, top_m=top_m, labels=tuple(label or ()), reach=reach)
    say = _print_piece if stream and not json else _swallow
    if server is not None:
        result = _ask_server(server, asked, context_only, say, token_file, ca)
    else:
        result = asyncio.run(_ask_here(str(index), snapshot, config, settings, asked, context_only, say))
    if json:
        emit(answer_as_json(result) if isinstance(result, Answer) else retrieval_as_json(result))
        return
    if isinstance(result, Retrieval):
        show_retrieval(result)
        out.print(f"\n{result.context}", markup=False)
        return
    if stream:
        print()
    show_retrieval(result.retrieval)
    show_answer(result)


async def _ask_here(
    index: str,
    snapshot_id: str | None,
    config: str | None,
    settings: list[str] | None,
    asked: Query,
    context_only: bool,
    say: Any,
) -> Retrieval | Answer:
    from hirag_dist.wiring import make_engine

    loaded = configuration(config, settings).config
    snapshot = open_snapshot(Store(index), snapshot_id)
    engine = make_engine(loaded, snapshot, load_prompts(loaded.prompts))
    try:
        if context_only:
            return await engine.retrieve(asked)
        last: Any = None
        async for last in engine.answer_stream(asked):
            if isinstance(last, str):
                say(last)
        assert isinstance(last, Answer)
        return last
    finally:
        await engine.close()


def _ask_server(
    server: str, asked: Query, context_only: bool, say: Any, token_file: str | None, ca: str | None
) -> Retrieval | Answer:
    from hirag_dist.client import HiragClient

    options: dict[str, Any] = {"root_certificates": ca} if ca else {}
    if token_file:
        try:
            options["token"] = Path(token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"cannot read the token file {token_file}: {error.strerror}") from error
    with HiragClient(server, **options) as client:
        if context_only:
            return client.retrieve(asked)
        last: Any = None
        for last in client.answer_stream(asked):
            if isinstance(last, str):
                say(last)
        assert isinstance(last, Answer)
        return last


def _print_piece(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def _swallow(piece: str) -> None:
    """Keep the pieces for the answer at the end."""
