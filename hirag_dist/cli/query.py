"""`hirag-dist query`: retrieve and answer, in this process or from a running service."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hirag_dist.cli._bill import sent_line
from hirag_dist.cli._options import (
    AsLabelOption,
    ConfigOptions,
    ConnectionOptions,
    LabelOption,
    MaxTokensOption,
    MaxUsdOption,
    OptionalIndexOption,
    ServerOption,
    SnapshotOption,
    refuse_idle,
)
from hirag_dist.cli._output import conclude_reading, emit, err, out
from hirag_dist.cli._render import answer_as_json, plan_line, retrieval_as_json, show_answer, show_retrieval
from hirag_dist.errors import ConfigError, HiragError, InvalidQuery
from hirag_dist.types import MAP_REDUCE, Answer, Query, Retrieval, ScopeOptions

if TYPE_CHECKING:
    from hirag_dist.api.index import Index
    from hirag_dist.client import HiragClient
    from hirag_dist.config.model import Config

_INCOMPLETE_CODE = 3
_OPTIONS = {  # field of a query → the option that sets it
    name: f"--{name.replace('_', '-')}" for name in ("mode", "top_n", "top_m", "community_level", "filter", "as_of")
} | {"labels": "--label", "question": "QUESTION"}
_MODES = (
    "hirag, local, global, bridge, nobridge, naive, flat, or graphrag-local; "
    "graphrag-global and text-map-reduce read the whole corpus, with a model call for each part of it."
)

_FilterOption = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="EXPRESSION",
        help="Search only documents whose metadata meet it: 'year >= 2024 and not draft'.",
    ),
]
_AsOfOption = Annotated[
    str,
    typer.Option("--as-of", metavar="DATE", help="Search only documents that are not later, by metadata.as_of_field."),
]
_DeadlineOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Time limit; the result so far is shown when it passes.")
]
_IndexNameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Index of the service, where it has several (--server only).")
]


def _reach(as_labels: list[str] | None) -> frozenset[str] | None:
    return None if as_labels is None else frozenset(filter(None, as_labels))


def query(
    question: Annotated[str, typer.Argument(help="The question.")],
    options: ConfigOptions,
    connection: ConnectionOptions,
    index: OptionalIndexOption = None,
    server: ServerOption = None,
    mode: Annotated[str | None, typer.Option(help=_MODES)] = None,
    community_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Level of the reports: 0 (the coarsest), 1, …, leaf or all.")
    ] = None,
    context_only: Annotated[bool, typer.Option("--context-only", help="Retrieve without an answer.")] = False,
    top_n: Annotated[int | None, typer.Option(help="Number of local entities (Eq. 12).")] = None,
    top_m: Annotated[int | None, typer.Option(help="Number of key entities of each community (Eq. 14).")] = None,
    labels: LabelOption = None,
    as_labels: AsLabelOption = None,
    filter_: _FilterOption = "",
    as_of: _AsOfOption = "",
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer while it is generated.")] = False,
    deadline: _DeadlineOption = None,
    index_name: _IndexNameOption = None,
    snapshot: SnapshotOption = None,
) -> None:
    """Ask a question of an index or of a running service."""
    _check(index, server, as_labels, deadline)
    scope: ScopeOptions = {"labels": tuple(labels or ()), "filter": filter_, "as_of": as_of, "reach": _reach(as_labels)}
    asked = Query(question, mode, top_n=top_n, top_m=top_m, community_level=community_level, **scope)
    limits = {"--max-usd": max_usd, "--max-tokens": max_tokens}
    sent, fallback = None, ""  # not known of a service
    say = _write if stream and not options.json else _swallow
    if server is not None:
        here = {"--config": options.config, "--set": options.settings, "--snapshot": snapshot} | limits
        refuse_idle(here, "--server", "the service has a configuration and a snapshot of its own")
        from hirag_dist.client import HiragClient

        with HiragClient(server, index=index_name or "", **connection.arguments) as client, _named_by_options(deadline):
            result = _ask(client, asked, context_only, say, deadline)
    else:
        refuse_idle({"--index-name": index_name} | connection.given, "--index", "they are for a connection")
        from hirag_dist.api.index import open_index

        loaded = _for_one_question(options.load())
        with open_index(str(index), config=loaded, snapshot=snapshot, max_usd=max_usd, max_tokens=max_tokens) as opened:
            try:
                with _named_by_options(deadline):
                    result = _ask(opened, asked, context_only, say, deadline)
            finally:
                sent, fallback = opened.usage, opened.info.fallback
                if sent["calls"] and (sent["usd"] != 0 or asked.mode in MAP_REDUCE):
                    err.print(f"[dim]This question {sent_line(sent)}.[/dim]")
    if options.json:
        emit(_as_json(result, sent, fallback))
    else:
        _show(result, streamed=stream)
    if isinstance(result, Answer) and result.shortfall:
        err.print(f"hirag-dist: this answer is incomplete: {result.shortfall}", markup=False)
        raise typer.Exit(_INCOMPLETE_CODE)
    conclude_reading(fallback)


def _check(index: str | None, server: str | None, as_labels: list[str] | None, deadline: float | None) -> None:
    """Raise ConfigError for options that contradict each other or are out of bounds."""
    if (index is None) == (server is None):
        raise ConfigError("give either --index URI or --server HOST:PORT")
    if as_labels is not None and server is not None:
        raise ConfigError("--as-label is for --index: a service decides itself what its callers may see")
    if deadline is not None and not 0 < deadline < float("inf"):
        raise ConfigError(f"--deadline must be a number of seconds above 0, got {deadline:g}")


def _as_json(result: Retrieval | Answer, sent: dict[str, Any] | None, fallback: str) -> dict[str, Any]:
    found = answer_as_json(result) | {"sent": sent} if isinstance(result, Answer) else retrieval_as_json(result)
    return found | {"fallback": fallback or None}


def _for_one_question(config: Config) -> Config:
    """Return the configuration with vectors in memory where `auto` leaves the choice.

    A client of Milvus takes longer to import and to connect than a scan of the vectors does.
    """
    if config.vectors.backend != "auto":
        return config
    return config.model_copy(update={"vectors": config.vectors.model_copy(update={"backend": "memory"})})


@contextmanager
def _named_by_options(deadline_s: float | None) -> Iterator[None]:
    """Name the options of this command in errors that name fields of a query."""
    try:
        yield
    except InvalidQuery as error:
        field, message = re.fullmatch(r"(\w*)(.*)", str(error), re.DOTALL).groups()  # type: ignore[union-attr]
        raise InvalidQuery(_OPTIONS.get(field, field) + message) from error
    except (TimeoutError, HiragError) as error:
        from hirag_dist.wire.error_status import DeadlinePassed  # it imports grpc, which a question here does without

        if deadline_s is None or not isinstance(error, TimeoutError | DeadlinePassed):
            raise
        raise DeadlinePassed(f"no answer within {deadline_s:g} s; allow more with --deadline") from error


def _ask(
    target: Index | HiragClient, asked: Query, context_only: bool, say: Callable[[str], None], deadline_s: float | None
) -> Retrieval | Answer:
    """Return the retrieval or the answer of an open index or a service; pieces of the answer go to `say`."""
    if context_only:
        return target.retrieve(asked, timeout_s=deadline_s)
    last: Retrieval | str | Answer = ""
    for last in target.answer_stream(asked, timeout_s=deadline_s):
        _tell(last, say)
    assert isinstance(last, Answer)
    return last


def _tell(part: Retrieval | str | Answer, say: Callable[[str], None]) -> None:
    """Print a piece of an answer; before a map-reduce, its number of calls."""
    if isinstance(part, str):
        say(part)
    elif isinstance(part, Retrieval) and part.map_work is not None and not part.map_work.calls:
        err.print(plan_line(part.mode, part.map_work), style="dim", markup=False)


def _show(result: Retrieval | Answer, *, streamed: bool) -> None:
    if isinstance(result, Retrieval):
        show_retrieval(result)
        out.print(f"\n{result.context}", markup=False)
        return
    if streamed:
        print()
    show_retrieval(result.retrieval)
    show_answer(result)


def _write(piece: str) -> None:
    """Print a piece of the answer at once."""
    sys.stdout.write(piece)
    sys.stdout.flush()


def _swallow(piece: str) -> None:
    """Keep the pieces for the answer at the end."""
