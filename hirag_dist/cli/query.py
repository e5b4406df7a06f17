"""`hirag-dist query`: retrieve and answer, in this process or from a running service, and show what was found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding

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
    by_option,
    label_reach,
    refuse_idle,
)
from hirag_dist.cli._output import conclude_reading, emit, err, out, table, told_when_late
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.errors import ConfigError, HiragError, InvalidQuery, ModelError
from hirag_dist.types import MAP_REDUCE, Answer, Citation, MapWork, Query, Retrieval, ScopeOptions, SourceItem

if TYPE_CHECKING:
    from hirag_dist.api.index import Index
    from hirag_dist.client import HiragClient
    from hirag_dist.config.model import Config

_PARTS = ("embed", "search", "communities", "bridge", "sources", "rerank", "render", "gather", "map", "total")
_ROWS = 6  # rows of a level that are shown; half as many where a row is a text
_MAX_PASSAGE = 400  # characters of a cited chunk


def show_retrieval(retrieval: Retrieval) -> None:
    """Print the levels of a retrieval, the first rows of each."""
    if retrieval.local:
        shown = [(item.name, item.type, item.layer, item.score, item.matched) for item in retrieval.local[:_ROWS]]
        title = f"Local: entities that the question names, then the nearest ({len(retrieval.local)} found)"
        out.print(table(title, ["entity", "type", "layer", "similarity", "found by"], shown, right=(2, 3)))
    if retrieval.communities:
        shown_c = [
            (shorten(item.title, 60), item.level, item.hits, shorten(one_line(item.report), 90))
            for item in retrieval.communities[: _ROWS // 2]
        ]
        title = f"Global: reports of the communities that hold them ({len(retrieval.communities)} found)"
        out.print(table(title, ["community", "level", "hits", "report"], shown_c, right=(1, 2)))
        if retrieval.missing_reports:
            bare = count_noun(len(retrieval.missing_reports), "report is", "reports are")
            out.print(f"[dim]{bare} not written: main members take the place.[/dim]")
    if retrieval.paths:
        joined = [path for path in retrieval.paths if path.connected]
        pairs = count_noun(len(retrieval.paths), "pair")
        title = f"Bridge: shortest paths from each key entity to the next ({len(joined)} of {pairs} connected)"
        out.print(f"[bold]{title}[/bold]")
        names = {item.entity_id: item.name for item in retrieval.key_entities}
        for path in retrieval.paths[: _ROWS // 2]:  # those between entities that the question names are first
            ends = (names.get(own, own) for own in (path.source_id, path.target_id))
            shown_p = " → ".join(path.entity_names) if path.connected else f"{' and '.join(ends)}: no path"
            out.print(f"  {shown_p}", markup=False)
        for triple in retrieval.triples[:2]:
            said = shorten(one_line(triple.description), 110)
            out.print(f"  {triple.source_name} — {triple.target_name}: {said}", markup=False)
    if retrieval.claims:
        title = f"Claims about these entities ({len(retrieval.claims)} found)"
        out.print(f"[bold]{title}[/bold]")
        for claim in retrieval.claims[: _ROWS // 2]:
            out.print(f"  {shorten(one_line(claim.line), 110)}", markup=False)
    if retrieval.sources:
        shown_s = [
            (shorten(item.title, 60), _where(item), shorten(one_line(item.text), 70))
            for item in retrieval.sources[: _ROWS // 2]
        ]
        title = f"Sources: the passages behind it ({len(retrieval.sources)} found)"
        out.print(table(title, ["document", "place", "text"], shown_s))
    if retrieval.map_work is not None:
        out.print(f"[bold]{work_line(retrieval.map_work)}[/bold]")
        if retrieval.map_work.failed:
            missing = f"No usable reply for {count_noun(retrieval.map_work.failed, 'part')}: what is there is missing."
            out.print(f"[yellow]{missing}[/yellow]")
        if retrieval.map_work.unreported:
            bare = count_noun(retrieval.map_work.unreported, "community has", "communities have")
            out.print(
                f"[yellow]{bare} no report, and what is there was not read; `hirag-dist retry` asks again for those "
                "that are dead letters.[/yellow]"
            )
    times = ", ".join(f"{part} {retrieval.timings_ms[part]:.1f}" for part in _PARTS if part in retrieval.timings_ms)
    called = " · no model was called" if retrieval.map_work is None else ""
    out.print(f"[dim]ms: {times} · context of {count_noun(retrieval.context_tokens, 'token')}{called}[/dim]")
    if retrieval.note:
        said = "Note" if retrieval.context_refs else "Nothing was retrieved"
        out.print(f"[yellow]{said}: {retrieval.note}.[/yellow]")
    if retrieval.partial:
        out.print(f"[yellow]Cut off by the deadline: {', '.join(retrieval.partial)}[/yellow]")


def plan_line(mode: str, work: MapWork) -> str:
    """Return a line with the calls that a map-reduce will make.

    >>> plan_line("graphrag-global", MapWork(records=23, parts=3, part_tokens=18_465))
    'graphrag-global: 23 reports, 18,465 tokens, in 3 parts: 3 calls about them, and 1 for the answer if they help.'
    """
    record = "chunk" if mode == "text-map-reduce" else "report"
    what = f"{count_noun(work.records, record)}, {count_noun(work.part_tokens, 'token')}"
    parts, them = count_noun(work.parts, "part"), "it" if work.parts == 1 else "them"
    help_ = "it helps" if work.parts == 1 else "they help"
    return (
        f"{mode}: {what}, in {parts}: {count_noun(work.parts, 'call')} about {them}, and 1 for the answer if {help_}."
    )


def work_line(work: MapWork) -> str:
    """Return a line with the results of a map-reduce's calls about its parts.

    >>> work_line(MapWork(records=23, parts=3, part_tokens=18_465, calls=3, unhelpful=3))
    'Map-reduce: 3 calls about 3 parts, 3 without help; 0 points, so no call for the answer.'
    """
    kept = [count_noun(work.points, "point")]
    if work.left_out:
        kept.append(f"{work.left_out:,} for which there was no room")
    if work.uncited:
        kept.append(f"{work.uncited:,} left out because they cite nothing")
    calls = (
        f"Map-reduce: {count_noun(work.calls, 'call')} about {count_noun(work.parts, 'part')}, "
        f"{work.unhelpful:,} without help"
    )
    end = "" if work.points else ", so no call for the answer"
    return f"{calls}; {', '.join(kept)}{end}."


def _where(source: SourceItem) -> str:
    """Return the first and the last position of a chunk in the original; its characters where none is known."""
    shown = list(
        dict.fromkeys(place.display for place in source.places if place.display and place.display != source.title)
    )
    if not shown:
        return f"characters {source.start}–{source.end}"
    return " – ".join(shorten(each, 40) for each in dict.fromkeys((shown[0], shown[-1])))


def show_answer(answer: Answer) -> None:
    """Print an answer with its sources: wrapped in a terminal; elsewhere in whole lines, with the cited sentences."""
    out.print("\n[bold]Answer[/bold]")
    if out.is_terminal:
        out.print(Padding(answer.text.replace("[", "\\["), (0, 2)), soft_wrap=False)
    else:
        out.print(answer.text, markup=False)
    alike = _alike(answer.retrieval.sources)
    for citation in answer.citations:
        title = one_line(citation.title)
        if citation.document_id in alike:
            title += f" ({citation.uri})"
        places = dict.fromkeys(place.display for place in citation.places if place.display)
        title = ", ".join([title, *(place for place in places if not title.startswith(place))])
        shown = shorten(title, 200) if out.is_terminal else title
        out.print(f"  [{citation.ref}] {shown}", markup=False, style="dim")
        if not out.is_terminal:
            for sentence in _cited_sentences(citation, answer.retrieval.sources):
                out.print(f"      {sentence}", markup=False)
    if answer.dropped_citations:
        gone = count_noun(
            answer.dropped_citations, "reference that named nothing was", "references that named nothing were"
        )
        out.print(f"[dim]{gone} removed.[/dim]")
    if answer.model:
        out.print(
            f"[dim]{answer.model}: {count_noun(answer.input_tokens, 'token')} in, {answer.output_tokens:,} out[/dim]"
        )


def _alike(sources: Sequence[SourceItem]) -> set[str]:
    """Return the ids of documents that share their title with another one, such as files of one name."""
    titled: dict[str, set[str]] = {}
    for source in sources:
        titled.setdefault(source.title, set()).add(source.document_id)
    return {own for documents in titled.values() if len(documents) > 1 for own in documents}


def _cited_sentences(citation: Citation, sources: Sequence[SourceItem]) -> list[str]:
    """Return the texts of a citation's places, each on one line; none where its source was not sent."""
    source = next((each for each in sources if each.chunk_id == citation.id), None)
    if source is None:
        return []
    if any(place.start <= source.start and place.end >= source.end for place in citation.places):
        return [shorten(one_line(source.text), _MAX_PASSAGE)]  # no sentence clearly states it
    texts = [source.text[max(place.start - source.start, 0) : place.end - source.start] for place in citation.places]
    return [line for text in texts if (line := one_line(text))]


_INCOMPLETE_CODE = 3
_OPTIONS = {  # field of a query → the option that sets it
    name: f"--{name.replace('_', '-')}" for name in ("mode", "top_n", "top_m", "community_level", "filter", "as_of")
} | {"labels": "--label", "question": "QUESTION", "index": "--index-name"}
_MODES = (
    "hirag, local, global, bridge, nobridge, naive, flat, or graphrag-local; "
    "graphrag-global and text-map-reduce read the whole corpus, with a model call for each part of it, whose number is "
    "printed before the first is sent; retrieval.map_reduce.max_calls limits it. Default: retrieval.mode."
)


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
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="EXPRESSION",
            help="Search only documents whose metadata meet it: 'year >= 2024 and not draft'.",
        ),
    ] = "",
    as_of: Annotated[
        str,
        typer.Option(metavar="DATE", help="Search only documents that are not later, by metadata.as_of_field."),
    ] = "",
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer while it is generated.")] = False,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time limit; the result so far is shown when it passes.")
    ] = None,
    index_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Index of the service, where it has several (--server only).")
    ] = None,
    snapshot: SnapshotOption = None,
) -> None:
    """Ask a question of an index or of a running service."""
    _check(index, server, as_labels, deadline)
    reach = label_reach(as_labels)
    scope: ScopeOptions = {"labels": tuple(labels or ()), "filter": filter_, "as_of": as_of, "reach": reach}
    asked = Query(question, mode, top_n=top_n, top_m=top_m, community_level=community_level, **scope)
    limits = {"--max-usd": max_usd, "--max-tokens": max_tokens}
    sent, fallback = None, ""  # not known of a service
    pieces = stream and not options.json
    advice = "" if stream or options.json else "; --stream prints it as it is written"
    if server is not None:
        here = {"--config": options.config, "--set": options.settings, "--snapshot": snapshot} | limits
        refuse_idle(here, "--server", "the service has a configuration and a snapshot of its own")
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC adds lines to the message of a failed handshake
        from hirag_dist.client import HiragClient

        with HiragClient(server, index=index_name or "", **connection.arguments) as client, _named_by_options(deadline):
            waiting = f"Waiting for the answer of {server} …{advice}"
            result = _ask(client, asked, context_only, pieces, deadline, waiting)
    else:
        refuse_idle({"--index-name": index_name} | by_option(connection), "--index", "they are for a connection")
        from hirag_dist.api.index import open_index
        from hirag_dist.composition.models import role_endpoints

        loaded = _for_one_question(options.load())
        waiting = f"Waiting for the answer of {' or '.join(role_endpoints(loaded, 'answer'))} …{advice}"
        with told_when_late():
            opening = open_index(str(index), config=loaded, snapshot=snapshot, max_usd=max_usd, max_tokens=max_tokens)
        with opening as opened:
            try:
                with _named_by_options(deadline):
                    result = _ask(opened, asked, context_only, pieces, deadline, waiting)
            finally:
                sent, fallback = opened.usage, opened.info.fallback
                if sent["calls"] and (sent["usd"] != 0 or asked.mode in MAP_REDUCE):
                    err.print(f"[dim]This question {sent_line(sent)}.[/dim]")
    if options.json:
        of_answer = {"sent": sent} if isinstance(result, Answer) else {}
        emit(asdict(result) | of_answer | {"fallback": fallback or None})
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
        named = re.sub(r"(?:\A|(?<=; ))\w+", lambda field: _OPTIONS.get(field[0], field[0]), str(error))
        raise InvalidQuery(named) from error
    except (TimeoutError, HiragError) as error:
        from hirag_dist.wire.error_status import DeadlinePassed  # it imports grpc, which a question here does without

        if deadline_s is None or not isinstance(error, TimeoutError | DeadlinePassed):
            raise
        raise DeadlinePassed(f"no answer within {deadline_s:g} s; allow more with --deadline") from error


def _ask(
    target: Index | HiragClient,
    asked: Query,
    context_only: bool,
    pieces: bool,
    deadline_s: float | None,
    waiting: str,
) -> Retrieval | Answer:
    """Return the retrieval or the answer of an open index or a service, after the number of calls of a map-reduce.

    Args:
        pieces: whether the answer is printed as it comes.
        waiting: printed on a terminal where the answer takes long.
    """
    if context_only:
        return target.retrieve(asked, timeout_s=deadline_s)
    last: Retrieval | str | Answer = ""
    found: Retrieval | None = None
    with ExitStack() as late:
        try:
            for last in target.answer_stream(asked, timeout_s=deadline_s):
                if isinstance(last, str):
                    if pieces:
                        late.close()
                        print(last, end="", flush=True)
                elif isinstance(last, Retrieval):
                    found = last
                    if last.map_work is not None and not last.map_work.calls:
                        err.print(plan_line(last.mode, last.map_work), style="dim", markup=False)
                    elif err.is_terminal:
                        late.enter_context(told_when_late(waiting))
        except ModelError as error:
            if found is not None and found.map_work is None:
                error.args = (f"{error}; --context-only shows what was retrieved, without a model", *error.args[1:])
            raise
    assert isinstance(last, Answer)
    return last


def _show(result: Retrieval | Answer, *, streamed: bool) -> None:
    if isinstance(result, Retrieval):
        show_retrieval(result)
        out.print(f"\n{result.context}", markup=False)
        return
    if streamed:
        print()
    show_retrieval(result.retrieval)
    show_answer(result)
