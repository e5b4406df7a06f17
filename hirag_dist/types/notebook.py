"""HTML of results for notebooks; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hirag_dist.types.index_info import IndexInfo
    from hirag_dist.types.results import Answer, Place, Retrieval

MAX_ROWS = 8
_MAX_CHARS = 160


def retrieval_html(retrieval: Retrieval) -> str:
    """Return one table per retrieval level, the first rows of each."""
    parts = [f"<p><b>{escape(retrieval.question)}</b> <small>mode {escape(retrieval.mode)}</small></p>"]
    if retrieval.local:
        rows = [
            (item.name, item.type, item.layer, _score(item.score), item.matched, item.description)
            for item in retrieval.local
        ]
        columns = ("entity", "type", "layer", "similarity", "found by", "description")
        parts.append(table_html("Local: entities", columns, rows))
    if retrieval.communities:
        communities = [(item.title, item.level, item.hits, item.report) for item in retrieval.communities]
        parts.append(table_html("Global: community reports", ("community", "level", "hits", "report"), communities))
    paths = [(" → ".join(path.entity_names),) for path in retrieval.paths if path.connected]
    if paths:
        parts.append(table_html("Bridge: shortest paths", ("path",), paths))
    if retrieval.sources:
        sources = [
            (item.title, _places(item.places) or f"characters {item.start}–{item.end}", item.text)
            for item in retrieval.sources
        ]
        parts.append(table_html("Sources", ("document", "place", "text"), sources))
    return "".join(parts)


def answer_html(answer: Answer) -> str:
    """Return the answer's text and a table of its citations."""
    paragraphs = "".join(f"<p>{escape(part)}</p>" for part in answer.text.split("\n\n"))
    if not answer.citations:
        return paragraphs
    rows = [(citation.ref, citation.kind, citation.title, _places(citation.places)) for citation in answer.citations]
    return paragraphs + table_html("Citations", ("reference", "kind", "title", "place"), rows)


def _places(places: Iterable[Place]) -> str:
    return ", ".join(dict.fromkeys(place.display for place in places if place.display))


def index_html(uri: str, info: IndexInfo) -> str:
    """Return the layers of an index as a table; `uri` may be empty."""
    rows = [(layer["layer"], f"{layer['n_entities']:,}", f"{layer['n_clusters']:,}") for layer in info.layers]
    counts = ", ".join(f"{n:,} {escape(name)}" for name, n in info.content.items())
    named = f"<b>{escape(uri)}</b> " if uri else ""
    head = f"<p>{named}<small>snapshot {escape(info.snapshot_id)}: {counts}</small></p>"
    return head + table_html("Layers", ("layer", "entities", "clusters"), rows)


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"


def table_html(title: str, columns: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    """Return a table of the first rows, with the number of rows left out."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_short(str(cell)))}</td>" for cell in row) + "</tr>" for row in rows[:MAX_ROWS]
    )
    more = f"<p><small>{len(rows) - MAX_ROWS} more</small></p>" if len(rows) > MAX_ROWS else ""
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>{more}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"
