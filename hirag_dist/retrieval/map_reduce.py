"""Map-reduce over an index: its reports or chunks are gathered in parts, and a model is asked about each part.

`gather` reads the snapshot, as a caller may see it. `map_parts` asks about the parts and returns the points found as a
`Retrieval`, from which the answer is written as any other (`answer_stream.answer_pieces`, or a request of one's own).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hirag_dist.config.sections import RetrievalConfig
from hirag_dist.core.prompts.requests import map_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.context import community_text, source_text
from hirag_dist.core.retrieval.levels import RankedCommunity, depth_note
from hirag_dist.core.retrieval.map_reduce import (
    CorpusPart,
    MappedPart,
    PartBudget,
    gather_points,
    parse_points,
    reports_at,
)
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InvalidQuery, RequestRejected
from hirag_dist.protocols import ChatPool
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import MAP_REDUCE as MAP_REDUCE
from hirag_dist.types import ChatReply, CommunityItem, IntVector, MapWork, Rejected, Retrieval, SourceItem

_Item = CommunityItem | SourceItem
_MAX_CONCURRENT_CALLS = 16  # of one question, so that others have their turn at the endpoint
_SEED = 0  # of the order in which records are read


@dataclass(frozen=True, slots=True)
class MapReduceInput:
    """The input of a question in a map-reduce mode.

    Attributes:
        parts: the texts of the calls.
        items: reference in the parts → item.
        context_tokens: of the final answer's context.
        reply_tokens: maximum of the reply about a part.
        gathered_ms: time that reading and cutting took.
    """

    question: str
    mode: str
    snapshot_id: str
    parts: tuple[CorpusPart, ...]
    items: Mapping[str, _Item]
    context_tokens: int
    reply_tokens: int
    gathered_ms: float
    unreported: int = 0
    note: str = ""

    @property
    def work(self) -> MapWork:
        """The planned calls."""
        tokens = sum(part.tokens for part in self.parts)
        return MapWork(len(self.items), len(self.parts), tokens, unreported=self.unreported)

    @property
    def planned(self) -> Retrieval:
        """The retrieval before any call: numbers only."""
        times = {"gather": self.gathered_ms, "total": self.gathered_ms}
        return Retrieval(
            self.question, self.mode, self.snapshot_id, timings_ms=times, map_work=self.work, note=self.note
        )


def gather(
    index: MappedIndex,
    question: str,
    mode: str,
    limits: RetrievalConfig,
    reply_tokens: int,
    count_tokens: Callable[[str], int],
) -> MapReduceInput:
    """Read the input of a question: items shuffled by a fixed seed, cut into parts of `context_tokens`.

    This reads up to `max_calls` parts of text, which takes a second or more unless their tokens were counted before.

    Args:
        mode: graphrag-global, over the reports of `community_level`; text-map-reduce, over all chunks.
        reply_tokens: maximum of the reply about a part.

    Raises:
        InvalidQuery: it takes more calls than the limit.
    """
    started = time.perf_counter()
    max_calls = limits.map_reduce.max_calls
    letter, heading = ("S", "## Sources") if mode == "text-map-reduce" else ("C", "## Communities")
    cut = PartBudget(heading, limits.context_tokens, count_tokens)
    items: dict[str, _Item] = {}
    rows, unreported = _rows(index, mode, limits)
    for number, (item, text, tokens) in enumerate(_records(index, mode, rows), 1):
        ref = f"{letter}{number}"
        items[ref] = item
        cut.add(ref, text, tokens or count_tokens(text))
        if len(cut.parts) > max_calls:
            break
    parts = cut.finish()
    if len(parts) > max_calls:
        cheaper = "" if mode == "text-map-reduce" else "a coarser community_level, "
        raise InvalidQuery(
            f"mode: {mode} takes more than {count_noun(max_calls, 'call')} here, which is "
            "retrieval.map_reduce.max_calls; choose "
            f"{cheaper}a larger retrieval.context_tokens or only some labels, or raise the limit"
        )
    took_ms = (time.perf_counter() - started) * 1e3
    asked = question, mode, index.snapshot_id
    note = "" if mode == "text-map-reduce" else depth_note(limits.community_level, index.communities.levels[rows])
    return MapReduceInput(*asked, parts, items, limits.context_tokens, reply_tokens, took_ms, unreported, note)


def _rows(index: MappedIndex, mode: str, limits: RetrievalConfig) -> tuple[IntVector, int]:
    """Return the rows to read, and the number of visible communities without a report."""
    if mode == "text-map-reduce":
        visible = index.visible_chunks
        return np.arange(len(index.chunk_vectors)) if visible is None else np.flatnonzero(visible), 0
    rows, bare = reports_at(index.communities, limits.community_level, index.reported())
    return rows, int(np.count_nonzero(index.fully_visible()[bare]))


def _records(index: MappedIndex, mode: str, rows: IntVector) -> Iterator[tuple[_Item, str, int]]:
    """Yield each item with its text in contexts and the text's tokens, 0 where they are unknown."""
    shuffled = np.random.default_rng(_SEED).permutation(rows)
    for row in shuffled.tolist():
        if mode == "text-map-reduce":
            (source,) = index.sources([(row, 0.0)])
            text = source_text(source.title, source.start, source.end, source.text)
            yield source, text, index.rendering("sources", row)[0]
        elif (report := index.community(RankedCommunity(row, 0, 0.0))) is not None:
            text = community_text(report.title, report.level, report.rating, report.report)
            yield report, text, index.rendering("global", row)[0]


async def map_parts(
    material: MapReduceInput, pool: ChatPool, prompts: Prompts, count_tokens: Callable[[str], int]
) -> Retrieval:
    """Ask about every part, and return the helpful points as the context of the final answer.

    Calls go through the pool, with its ledger and limits; `concurrency` of them are in progress at a time. An unusable
    reply is asked for again; a part without a usable reply is counted in `map_work.failed`. Cancelling this cancels its
    calls.

    Raises:
        RequestRejected: no part has a usable reply.
        ModelError: no model answers.
    """
    started = time.perf_counter()
    replies: list[ChatReply] = []
    slots = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)

    async def ask(part: CorpusPart) -> MappedPart | Rejected:
        def accept(reply: ChatReply) -> MappedPart:
            replies.append(reply)
            return parse_points(reply, part.refs)

        async with slots:
            request = map_request(material.question, part.context, prompts, material.reply_tokens)
            return await pool.ask(request, accept)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(part)) for part in material.parts]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the others have the same cause
    results = [task.result() for task in tasks]
    rejected = [each for each in results if isinstance(each, Rejected)]
    mapped = [each for each in results if isinstance(each, MappedPart)]
    if rejected and not mapped:
        raise RequestRejected(
            f"no usable reply about any part of the corpus ({count_noun(len(rejected), 'part')}), the first because: "
            f"{rejected[0].reason}"
        )
    points = [point for each in mapped for point in each.points]
    found = gather_points(points, material.context_tokens, count_tokens)
    cited = [
        (material.items[old], found.helpfulness[new] / 100, found.cited_by[new]) for new, old in found.refs.items()
    ]
    work = replace(
        material.work,
        calls=len(replies),
        points=len(points),
        unhelpful=sum(not each.points for each in mapped),
        failed=len(rejected),
        uncited=sum(each.uncited for each in mapped),
        dropped=sum(each.dropped for each in mapped),
        left_out=found.left_out,
        input_tokens=sum(reply.input_tokens for reply in replies),
        output_tokens=sum(reply.output_tokens for reply in replies),
    )
    ids = [item.chunk_id if isinstance(item, SourceItem) else item.community_id for item, _, _ in cited]
    took_ms = (time.perf_counter() - started) * 1e3
    return replace(
        material.planned,
        communities=tuple(replace(i, score=score, hits=n) for i, score, n in cited if isinstance(i, CommunityItem)),
        sources=tuple(replace(item, score=score) for item, score, _ in cited if isinstance(item, SourceItem)),
        context=found.context,
        context_tokens=found.tokens,
        context_refs=dict(zip(found.refs, ids, strict=True)),
        timings_ms={"gather": material.gathered_ms, "map": took_ms, "total": material.gathered_ms + took_ms},
        map_work=work,
    )
