"""Chunks → those that the extract model reads, and the others (method skeleton)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.skeleton import central_chunks, chosen, expected_tokens, keywords_of, term_hash
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, Whole
from hirag_dist.schemas import CHUNKS

CHUNK_TEXTS = pa.schema([CHUNKS.field(name) for name in ("chunk_id", "text", "n_tokens")])
CHUNK_TERMS = pa.schema(
    [
        pa.field("chunk_id", pa.string(), nullable=False),
        CHUNKS.field("n_tokens"),
        pa.field("expected_tokens", pa.int64(), nullable=False),  # of its extraction by the model
        pa.field("terms", pa.list_(pa.int64()), nullable=False),  # hashes
        pa.field("counts", pa.list_(pa.int32()), nullable=False),
    ]
)
CHUNK_IDS = pa.schema([CHUNKS.field("chunk_id")])


@dataclass(frozen=True)
class ListTerms:
    """Chunks → their frequent terms, and what their extraction would cost."""

    name: ClassVar[str] = "list_terms"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByRows(512)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNK_TEXTS]

    class Outputs(TableSet):
        terms: Annotated[Dataset, CHUNK_TERMS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the terms in chunk order."""
        rows: list[dict[str, Any]] = []
        for chunk in tables["chunks"].to_pylist():
            found = {term_hash(term): count for term, count in keywords_of(chunk["text"])}
            own = {"chunk_id": chunk["chunk_id"], "n_tokens": chunk["n_tokens"]}
            own["expected_tokens"] = expected_tokens(chunk["text"], chunk["n_tokens"])
            rows.append(own | {"terms": list(found), "counts": list(found.values())})
        return {"terms": pa.Table.from_pylist(rows, CHUNK_TERMS)}


@dataclass(frozen=True)
class ChooseChunks:
    """Terms of chunks → the most central chunks, by PageRank.

    Those that are chosen have at most `max_tokens`, and at most the same share of the tokens that the extraction of all
    would take: central chunks hold more records than others.

    Attributes:
        max_tokens: of the chosen chunks together.
        at_least_one: choose one even if it has more.
    """

    name: ClassVar[str] = "choose_chunks"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = Whole("a million chunks in 16 GiB")

    class Inputs(TableSet):
        terms: Annotated[Dataset, CHUNK_TERMS]

    class Outputs(TableSet):
        chosen: Annotated[Dataset, CHUNK_IDS]

    max_tokens: int
    at_least_one: bool

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the ids of the chosen chunks, sorted."""
        found = tables["terms"].sort_by("chunk_id").combine_chunks()
        ids, lists = found["chunk_id"].to_pylist(), found["terms"].combine_chunks()
        numbers = np.unique(lists.flatten().to_numpy(), return_inverse=True)[1]
        counts = found["counts"].combine_chunks().flatten().to_numpy()
        scores = central_chunks(pc.list_parent_indices(lists).to_numpy(), numbers, counts, len(ids))
        sizes = found["n_tokens"].to_numpy()
        best = chosen(scores, ids, sizes, self.max_tokens)
        costs = found["expected_tokens"].to_numpy()
        best &= chosen(scores, ids, costs, int(costs.sum()) * self.max_tokens // max(int(sizes.sum()), 1))
        if self.at_least_one and len(ids) and not best.any():
            best[min(range(len(ids)), key=lambda row: (-scores[row], ids[row]))] = True
        return {"chosen": pa.table([found["chunk_id"].filter(pa.array(best))], schema=CHUNK_IDS)}


@dataclass(frozen=True)
class DivideChunks:
    """Chunks → those that were chosen, and the others."""

    name: ClassVar[str] = "divide_chunks"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(4096)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]
        chosen: Annotated[Dataset, CHUNK_IDS]

    class Outputs(TableSet):
        central: Annotated[Dataset, CHUNKS]
        others: Annotated[Dataset, CHUNKS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return both in the order of the chunks."""
        chunks = tables["chunks"]
        is_central = pc.is_in(chunks["chunk_id"], value_set=tables["chosen"]["chunk_id"].combine_chunks())
        return {"central": chunks.filter(is_central), "others": chunks.filter(pc.invert(is_central))}
