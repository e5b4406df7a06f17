"""Time of questions by callers who may see a part of an index, against callers who see all of it.

Every question is asked with full access and with LABELS: for the first time, and then again. Blocks of ten questions
take turns, and the CPU time of a block is measured. Prints JSON lines:

    visible    share of the entities and relations that are visible, and the part of these that is partially visible;
               of the relations also those that name such an entity
    retrieve   CPU milliseconds of a question, vectors in memory and those of questions at hand: with full access, with
               the labels, and the ratio with a bootstrap interval over blocks; with --replies also the bytes of the
               service's reply are made

    python -m benchmarks.access_labels INDEX QUESTIONS [--labels LABEL …] [--filter TEXT] [--mode hirag] [--repeats 5]
        [--replies]

QUESTIONS is JSONL with `query`. Without --labels the caller has full access and sees the documents that meet --filter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.jsonl import rows_of
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.access.filter import visible_relations, visible_rows
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_results import retrieval_to_proto
from hirag_dist.wire.encode_bridge import bridge_fields, retrieve_response

BLOCK: Final = 10  # questions; the first block is not measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", metavar="INDEX")
    parser.add_argument("questions", type=Path, metavar="QUESTIONS")
    parser.add_argument("--labels", nargs="+", help="of the caller")
    parser.add_argument("--filter", default="")
    parser.add_argument("--mode", default="hirag")
    parser.add_argument("--repeats", type=int, default=5, help="of the questions that are asked again")
    parser.add_argument("--replies", action="store_true", help="make the bytes of the replies too")
    asyncio.run(_measure(parser.parse_args()))


async def _measure(arguments: argparse.Namespace) -> None:
    config = load_config(None, {}, {"vectors.backend": "memory"}).config
    snapshot = open_snapshot(Store(arguments.index))
    engines = [make_engine(config, snapshot, Prompts()) for _ in range(2)]  # one for each caller: caches are apart
    texts = [row["query"] for row in rows_of(arguments.questions)]
    vectors = await make_embedder(config).embed(texts)
    whole = [Query(text, arguments.mode, vector=vector) for text, vector in zip(texts, vectors, strict=True)]
    reach = None if arguments.labels is None else frozenset(arguments.labels)
    part = [replace(query, reach=reach, filter=arguments.filter) for query in whole]
    view = await engines[1]._resources.view_of(part[0], 1.0)
    assert view is not None
    head = {"benchmark": "access_labels", "labels": arguments.labels, "filter": arguments.filter}
    head |= {"mode": arguments.mode, "replies": arguments.replies}
    print(json.dumps(head | {"measure": "visible"} | _visible(view)), flush=True)
    for engine, asked in zip(engines, (whole, part), strict=True):
        await _cpu_ms(engine, asked[:BLOCK], arguments.replies)
    blocks = list(zip(batched(whole[BLOCK:]), batched(part[BLOCK:]), strict=True))
    for name, repeats in (("first", 1), ("again", arguments.repeats)):
        times = []
        for at, block in enumerate(blocks * repeats):
            of_block = {
                caller: await _cpu_ms(engines[caller], block[caller], arguments.replies)
                for caller in (at % 2, 1 - at % 2)
            }
            times.append((of_block[0], of_block[1]))
        line = {"measure": "retrieve", "asked": name, "questions": len(whole) - BLOCK} | _compared(np.array(times))
        print(json.dumps(head | line), flush=True)
    for engine in engines:
        await engine.close()


def batched(queries: Sequence[Query]) -> list[Sequence[Query]]:
    """Return the questions in blocks."""
    return [queries[at : at + BLOCK] for at in range(0, len(queries), BLOCK)]


def _visible(view: MappedIndex) -> dict[str, Any]:
    assert view.access is not None
    entities, relations = np.arange(len(view.layers)), np.arange(len(view.ends))
    seen = {
        "entities": ("local", entities, visible_rows(view.access, entities)),
        "relations": ("bridge", relations, visible_relations(view.access, view.ends, relations)),
    }
    line: dict[str, Any] = {}
    for name, (level, rows, flags) in seen.items():
        line[name] = round(float(flags.mean()), 3)
        line[f"partial_{name}"] = round(float(view.rebuilt(level, rows[flags]).mean()), 3)
    return line


async def _cpu_ms(engine: QueryEngine, block: Sequence[Query], replies: bool) -> float:
    """Return CPU milliseconds of a question."""
    started = time.process_time()
    for query in block:
        if replies:
            found = await engine.retrieve_encodable(query)
            message = pb.Retrieval()
            retrieval_to_proto(found.retrieval, into=message)
            retrieve_response(message, b"" if found.bridge is None else bridge_fields(found.bridge) or b"")
        else:
            await engine.retrieve(query)
    return (time.process_time() - started) * 1e3 / len(block)


def _compared(times: NDArray[np.float64]) -> dict[str, Any]:
    """Return the figures of (n_blocks, 2) milliseconds with full access and with labels."""
    random = np.random.default_rng(0)
    drawn = times[random.integers(0, len(times), (2000, len(times)))].sum(axis=1)
    low, high = np.percentile(drawn[:, 1] / drawn[:, 0], (2.5, 97.5)).round(2).tolist()
    whole, part = times.mean(axis=0).round(2).tolist()
    return {"whole_ms": whole, "part_ms": part, "ratio": round(part / whole, 2), "interval": [low, high]}


if __name__ == "__main__":
    main()
