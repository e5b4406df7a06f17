"""Tools of the MCP server: each takes its arguments to the backend, and returns structured content and a text."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from hirag_dist.core.retrieval.context import citations, render_context
from hirag_dist.core.text.tokens import counter
from hirag_dist.mcp import arguments as args
from hirag_dist.mcp import results as res
from hirag_dist.mcp.backend import Backend, CallerContext
from hirag_dist.types import Answer, EntityDetails, PathDetails, Query, Retrieval
from hirag_dist.wire.resource_uris import resource_uri

Progress = Callable[[float, float | None, str], Awaitable[None]]  # of what is done, of how much, in words
LIST_INDEXES: Final = "list_indexes"  # only where indexes have names
_SHARES_OF_TEXT: Final = (0.75, 0.5, 0.3, 0.15)  # of a search's tokens, the largest that leaves room for the rest
_SHOWN_VALUES: Final = 8  # of a metadata field
_LEVELS: Final = ("local", "global", "bridge", "sources", "done")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool.

    Attributes:
        caller: on whose behalf.
        labels: that the server requires of every document.
        progress: reports progress to the client; None where it does not ask for that.
    """

    backend: Backend
    caller: CallerContext
    labels: tuple[str, ...]
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class ToolReply:
    """Structured content, and a text for people and models. Both hold texts of documents."""

    content: BaseModel
    text: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool.

    Attributes:
        arguments, result: models whose JSON schemas clients get.
        run: arguments and call → reply.
        calls_model: whether it costs a call of a language model, and so differs from call to call.
    """

    title: str
    description: str
    arguments: type[args.IndexArguments | args.ListArguments]
    result: type[BaseModel]
    run: Callable[[Any, ToolCall], Awaitable[ToolReply]]
    calls_model: bool = False


async def search(asked: args.SearchArguments, call: ToolCall) -> ToolReply:
    """Return the text of a retrieval with what its references name, as JSON within the limit of tokens."""
    found = await _retrieved(asked.query(call.labels), call)
    count_tokens = _token_counter()
    for share in _SHARES_OF_TEXT:  # the references and the form of the reply take the rest
        result = _search_reply(
            render_context(found, int(asked.context_tokens * share), count_tokens), call.caller.index
        )
        if count_tokens(json.dumps(result.model_dump(mode="json"), ensure_ascii=False)) <= asked.context_tokens:
            break
    return ToolReply(result, found.context or found.note or "Nothing was found.")


@cache
def _token_counter() -> Callable[[str], int]:
    return counter("o200k_base")


def _search_reply(found: Retrieval, index: str) -> res.SearchReply:
    cited = citations(found.context_refs, found)
    documents = {item.chunk_id: item for item in found.sources}
    references = []
    for item in cited:
        content = res.citation_content(item, index)
        source = documents.get(item.id) if item.kind == "chunk" else None
        if source is not None:
            pages = [place.display for place in source.places if place.display]
            uri = resource_uri(index, "documents", source.document_id)
            content = content.model_copy(update={"title": source.title, "uri": uri, "pages": pages})
        references.append(content)
    return res.SearchReply(
        question=found.question,
        mode=found.mode,
        index=index,
        context=res.as_data(found.context) if found.context else "",
        references=references,
        partial=list(found.partial),
        note=found.note,
    )


async def answer(asked: args.QuestionArguments, call: ToolCall) -> ToolReply:
    """Return an answer with citations."""
    last: Answer | None = None
    pieces = 0
    async with aclosing(call.backend.answer_stream(asked.query(call.labels), call.caller)) as parts:
        async for part in parts:
            if isinstance(part, Answer):
                last = part
            elif call.progress is not None:
                pieces += 1
                found = f"{len(part.sources)} sources found" if isinstance(part, Retrieval) else "answering"
                await call.progress(pieces, None, found)
    assert last is not None  # a backend raises where there is none
    index = call.caller.index
    chunks = {item.chunk_id: item for item in last.retrieval.sources}
    cited = dict.fromkeys(item.id for item in last.citations if item.id in chunks)
    result = res.AnswerReply(
        question=last.retrieval.question,
        mode=last.retrieval.mode,
        index=index,
        answer=last.text,
        citations=[res.citation_content(item, index) for item in last.citations],
        sources=res.source_contents([chunks[own] for own in cited], index),
        model=last.model,
        finish_reason=last.finish_reason,
    )
    notes = [f"[{item.ref}] {item.title} {item.uri}".rstrip() for item in result.citations]
    if last.shortfall:
        notes.insert(0, f"This answer is incomplete: {last.shortfall}.")
    return ToolReply(result, "\n".join([last.text, *(["", *notes] if notes else [])]))


async def describe_index(asked: args.IndexArguments, call: ToolCall) -> ToolReply:
    """Return the description of the index."""
    result = res.index_reply(await call.backend.describe(call.caller), call.caller.index)
    counts = ", ".join(f"{count:,} {name}" for name, count in result.counts.items() if count)
    lines = [f"Snapshot {result.snapshot_id} of {result.created_at}: {counts or 'empty'}."]
    if result.fields:
        lines += ["", "Metadata fields for the argument filter:", *map(_field_line, result.fields)]
    return ToolReply(result, "\n".join(lines))


def _field_line(field: Mapping[str, Any]) -> str:
    """Return a line about a metadata field: its name, type and range or values."""
    line = f"- {field['name']}: {'list of ' if field['list'] else ''}{field['type']}"
    if field["values"]:
        return f"{line}, such as {', '.join(map(str, field['values'][:_SHOWN_VALUES]))}"
    return line if field["min"] is None else f"{line}, {field['min']} to {field['max']}"


async def list_indexes(asked: args.ListArguments, call: ToolCall) -> ToolReply:
    """Return the indexes that the caller may ask."""
    wanted = asked.contains.casefold()
    entries = await call.backend.indexes(call.caller)
    found = [entry for entry in entries if wanted in f"{entry.name}\n{entry.title}".casefold()]
    shown = [
        res.IndexName(name=entry.name, title=entry.title, default=entry.default, uri=resource_uri(entry.name))
        for entry in found[: res.MAX_NAMES]
    ]
    lines = [f"- {one.name or '(the only index)'}{': ' if one.title else ''}{one.title}" for one in shown]
    return ToolReply(res.IndexNamesReply(indexes=shown, count=len(found)), "\n".join(lines) or "There is none.")


async def entity(asked: args.EntityArguments, call: ToolCall) -> ToolReply:
    """Return an entity with its surroundings."""
    found = await call.backend.get_entity(
        asked.entity, asked.max_relations, asked.max_sources, asked.scope(call.labels), call.caller
    )
    return ToolReply(entity_reply(found, call.caller.index), entity_text(found))


async def path_between(asked: args.PathArguments, call: ToolCall) -> ToolReply:
    """Return a shortest path between two entities."""
    found = await call.backend.find_path(asked.source, asked.target, asked.scope(call.labels), call.caller)
    result = res.PathReply(
        path=res.PathContent(connected=found.path.connected, entities=list(found.path.entity_names)),
        entities=res.entity_contents(found.entities, call.caller.index),
        relations=res.relation_contents(found.triples),
    )
    return ToolReply(result, _path_text(found, asked))


async def report(asked: args.ReportArguments, call: ToolCall) -> ToolReply:
    """Return a community with its whole report."""
    found = await call.backend.get_community(
        asked.community_id, asked.max_members, asked.scope(call.labels), call.caller
    )
    index, item = call.caller.index, found.community
    result = res.ReportReply(
        community_id=item.community_id,
        level=item.level,
        title=item.title,
        report=item.report,
        rating=item.rating,
        uri=resource_uri(index, "reports", item.community_id),
        members=res.entity_contents(found.members, index),
        member_count=found.member_count,
        parent=None if found.parent is None else res.community_content(found.parent, index),
        children=[res.community_content(child, index) for child in found.children],
    )
    return ToolReply(result, f"{item.title}\n\n{item.report}".strip() or "This community has no report.")


async def document(asked: args.DocumentArguments, call: ToolCall) -> ToolReply:
    """Return a part of a document's text."""
    found = await call.backend.get_document(
        asked.document_id, asked.start, asked.max_chars, asked.scope(call.labels), call.caller
    )
    result = res.DocumentReply(
        document_id=found.document_id,
        title=found.title,
        document_uri=found.uri,
        text=found.text,
        start=found.start,
        total_chars=found.total_chars,
        metadata=dict(found.metadata),
        uri=resource_uri(call.caller.index, "documents", found.document_id),
    )
    end = found.start + len(found.text)
    return ToolReply(
        result, f"{found.title} (characters {found.start} to {end} of {found.total_chars})\n\n{found.text}"
    )


def entity_reply(found: EntityDetails, index: str) -> res.EntityReply:
    """Return the structured content of an entity."""
    return res.EntityReply(
        entity=res.entity_content(found.entity, index),
        relations=res.relation_contents(found.relations),
        neighbours=res.entity_contents(found.neighbours, index),
        ancestors=res.entity_contents(found.ancestors, index),
        members=res.entity_contents(found.members, index),
        communities=[res.community_content(item, index) for item in found.communities],
        sources=res.source_contents(found.sources, index),
        relation_count=found.relation_count,
        source_count=found.source_count,
        member_count=found.member_count,
    )


def entity_text(found: EntityDetails) -> str:
    """Return an entity as text."""
    lines = [f"{found.entity.name} ({found.entity.type}, layer {found.entity.layer})", found.entity.description]
    if found.relations:
        lines += ["", f"Relations ({len(found.relations)} of {found.relation_count}):"]
        lines += [f"- {one.source_name} – {one.target_name}: {one.description}" for one in found.relations]
    for name, items in (("Summarised by", found.ancestors), ("Summarises", found.members)):
        if items:
            lines += ["", f"{name}: {', '.join(item.name for item in items)}"]
    if found.communities:
        lines += ["", f"Reports: {', '.join(one.title or one.community_id for one in found.communities)}"]
    if found.sources:
        lines += ["", f"Passages ({len(found.sources)} of {found.source_count}):"]
        lines += [f"- {one.title}: {res.shortened(one.text)}" for one in found.sources]
    return "\n".join(lines)


def _path_text(found: PathDetails, asked: args.PathArguments) -> str:
    if not found.path.connected:
        return f"Nothing that may be seen connects {asked.source} and {asked.target}."
    lines = [" → ".join(found.path.entity_names)]
    return "\n".join(
        [*lines, *(f"- {one.source_name} – {one.target_name}: {one.description}" for one in found.triples)]
    )


async def _retrieved(query: Query, call: ToolCall) -> Retrieval:
    if call.progress is None:
        return await call.backend.retrieve(query, call.caller)  # one reply instead of one for each level
    found = Retrieval(query.question, query.mode or "", "")
    async with aclosing(call.backend.retrieve_stream(query, call.caller)) as levels:
        async for level, part in levels:
            found = part
            if level in _LEVELS:
                await call.progress(_LEVELS.index(level) + 1, len(_LEVELS), f"{level} level" if level != "done" else "")
    return found


TOOLS: Final[Mapping[str, ToolSpec]] = {
    "search": ToolSpec(
        "Search the index",
        "Find what the indexed documents say about a question: entities, reports on groups of entities, paths between "
        "them, and passages. Use it first. No language model is called.",
        args.SearchArguments,
        res.SearchReply,
        search,
    ),
    "answer": ToolSpec(
        "Answer from the index",
        "Let the index's own language model answer a question from the documents, with citations. It is slower than "
        "search and may cost money; use search where you write the answer yourself.",
        args.QuestionArguments,
        res.AnswerReply,
        answer,
        calls_model=True,
    ),
    "describe_index": ToolSpec(
        "Describe the index",
        "Show what the index holds: counts of documents, entities and reports, its layers, its metadata fields.",
        args.IndexArguments,
        res.IndexReply,
        describe_index,
    ),
    LIST_INDEXES: ToolSpec(
        "List the indexes",
        "List the indexes that you may ask, for the argument index of the other tools.",
        args.ListArguments,
        res.IndexNamesReply,
        list_indexes,
    ),
    "entity": ToolSpec(
        "Look up an entity",
        "Show an entity by name or id: description, relations, neighbours, the summaries above it, communities and the "
        "passages that mention it.",
        args.EntityArguments,
        res.EntityReply,
        entity,
    ),
    "path_between": ToolSpec(
        "Find how two entities are connected",
        "Show a shortest path between two entities, by name or id, and the relations on it.",
        args.PathArguments,
        res.PathReply,
        path_between,
    ),
    "report": ToolSpec(
        "Read a report",
        "Read the whole report on a community of entities, with its members, the wider community that holds it and the "
        "narrower ones in it.",
        args.ReportArguments,
        res.ReportReply,
        report,
    ),
    "document": ToolSpec(
        "Read a document",
        "Read the text of a document, from a given character, by the id of the document or of a passage.",
        args.DocumentArguments,
        res.DocumentReply,
        document,
    ),
}
