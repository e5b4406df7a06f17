"""Rendering of retrievals and answers, as text and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.padding import Padding

from hirag_dist.cli._output import out, table
from hirag_dist.core.entities.claim_text import claim_text
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.types import Answer, Citation, MapWork, Retrieval, SourceItem

_PARTS = ("embed", "search", "communities", "bridge", "sources", "rerank", "render", "gather", "map", "total")
_MAX_PASSAGE = 400  # characters of a cited chunk


def retrieval_as_json(retrieval: Retrieval) -> dict[str, Any]:
    """Return a retrieval as JSON values."""
    return asdict(retrieval)


def answer_as_json(answer: Answer) -> dict[str, Any]:
    """Return an answer with its retrieval as JSON values."""
    return asdict(answer)


def show_retrieval(retrieval: Retrieval, rows: int = 6) -> None:
    """Print the levels of a retrieval, the first rows of each."""
    if retrieval.local:
        shown = [(item.name, item.type, item.layer, item.score, item.matched) for item in retrieval.local[:rows]]
        title = f"Local: entities that the question names, then the nearest ({len(retrieval.local)} found)"
        out.print(table(title, ["entity", "type", "layer", "similarity", "found by"], shown, right=(2, 3)))
    if retrieval.communities:
        shown_c = [
            (shorten(item.title, 60), item.level, item.hits, shorten(one_line(item.report), 90))
            for item in retrieval.communities[: max(rows // 2, 1)]
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
        for path in retrieval.paths[
            : max(rows // 2, 1)
        ]:  # those between the entities that the question names are first
            ends = (names.get(own, own) for own in (path.source_id, path.target_id))
            shown_p = " → ".join(path.entity_names) if path.connected else f"{' and '.join(ends)}: no path"
            out.print(f"  {shown_p}", markup=False)
        for triple in retrieval.triples[:2]:
            said = shorten(one_line(triple.description), 110)
            out.print(f"  {triple.source_name} — {triple.target_name}: {said}", markup=False)
    if retrieval.claims:
        title = f"Claims about these entities ({len(retrieval.claims)} found)"
        out.print(f"[bold]{title}[/bold]")
        for claim in retrieval.claims[: max(rows // 2, 1)]:
            out.print(f"  {shorten(one_line(claim_text(claim)), 110)}", markup=False)
    if retrieval.sources:
        shown_s = [
            (shorten(item.title, 60), _where(item), shorten(one_line(item.text), 70))
            for item in retrieval.sources[: max(rows // 2, 1)]
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
    out.print(
        f"[dim]ms: {times} · context of {count_noun(retrieval.context_tokens, 'token')}{_called(retrieval)}[/dim]"
    )
    if retrieval.note:
        said = "Note" if retrieval.context_refs else "Nothing was retrieved"
        out.print(f"[yellow]{said}: {retrieval.note}.[/yellow]")
    if retrieval.partial:
        out.print(f"[yellow]Cut off by the deadline: {', '.join(retrieval.partial)}[/yellow]")


def plan_line(mode: str, work: MapWork) -> str:
    """Return a line with the calls that a map-reduce will make."""
    record = "chunk" if mode == "text-map-reduce" else "report"
    what = f"{count_noun(work.records, record)}, {count_noun(work.part_tokens, 'token')}"
    return (
        f"{mode}: {what}, read in {count_noun(work.parts, 'part')}: as many calls to the model, and one for the answer."
    )


def work_line(work: MapWork) -> str:
    """Return a line with the results of a map-reduce's calls."""
    kept = [count_noun(work.points, "point")]
    if work.left_out:
        kept.append(f"{work.left_out:,} for which there was no room")
    if work.uncited:
        kept.append(f"{work.uncited:,} left out because they cite nothing")
    calls = (
        f"Map-reduce: {count_noun(work.calls, 'call')} about {count_noun(work.parts, 'part')}, "
        f"{work.unhelpful:,} without help"
    )
    return f"{calls}; {', '.join(kept)}."


def _called(retrieval: Retrieval) -> str:
    return " · no model was called" if retrieval.map_work is None else ""


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
    for citation in answer.citations:
        title = one_line(citation.title)
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


def _cited_sentences(citation: Citation, sources: Sequence[SourceItem]) -> list[str]:
    """Return the texts of a citation's places, each on one line; none where its source was not sent."""
    source = next((each for each in sources if each.chunk_id == citation.id), None)
    if source is None:
        return []
    if any(place.start <= source.start and place.end >= source.end for place in citation.places):
        return [shorten(one_line(source.text), _MAX_PASSAGE)]  # no sentence clearly states it
    texts = [source.text[max(place.start - source.start, 0) : place.end - source.start] for place in citation.places]
    return [line for text in texts if (line := one_line(text))]
