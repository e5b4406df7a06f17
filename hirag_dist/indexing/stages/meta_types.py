"""A sample of the corpus → the meta types 𝒳 that guide summaries (paper §4.1), where a model is to choose them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.prompts.reply_limits import cut_evenly
from hirag_dist.core.prompts.reply_parsing import parse_meta_types
from hirag_dist.core.prompts.templates import Prompts, meta_types_request
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, Whole, reject_row
from hirag_dist.schemas import CHUNKS, REJECTS
from hirag_dist.types import Rejected

N_EXCERPTS = 24
EXCERPT_CHARS = 1200
_TAG_TOKENS = 10  # around an excerpt
EXCERPTS = pa.schema([pa.field("chunk_id", pa.string(), nullable=False), pa.field("text", pa.string(), nullable=False)])
META_TYPES = pa.schema([pa.field("meta_type", pa.string(), nullable=False)])


@dataclass(frozen=True)
class SampleChunks:
    """Chunks → excerpts of a few. Ids are hashes: the lowest are a sample, the same for any number of tasks."""

    name: ClassVar[str] = "sample_chunks"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(4096)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    class Outputs(TableSet):
        excerpts: Annotated[Dataset, EXCERPTS]

    n_excerpts: int
    excerpt_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the excerpts of this task's chunks that may be among the lowest of all."""
        lowest = tables["chunks"].select(["chunk_id", "text"]).sort_by("chunk_id").slice(0, self.n_excerpts)
        texts = [shorten(one_line(text), self.excerpt_chars) for text in lowest["text"].to_pylist()]
        return {"excerpts": pa.table([lowest["chunk_id"].combine_chunks(), pa.array(texts, pa.string())], EXCERPTS)}


@dataclass(frozen=True)
class ProposeMetaTypes:
    """Excerpts → meta types, in one call. Where no reply can be used, there are none and a dead letter."""

    name: ClassVar[str] = "meta_types"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole("one call: it reads a few excerpts for every 4,096 chunks")

    class Inputs(TableSet):
        excerpts: Annotated[Dataset, EXCERPTS]

    class Outputs(TableSet):
        meta_types: Annotated[Dataset, META_TYPES]
        rejects: Annotated[Dataset, REJECTS]

    n_excerpts: int
    prompts: Prompts
    models: tuple[str, ...]
    max_tokens: int | None = None  # Maximum tokens of all excerpts together; None: as they are

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the types in the model's order."""
        excerpts = tables["excerpts"]
        order = pc.sort_indices(excerpts, [("chunk_id", "ascending")])
        texts = excerpts["text"].take(order.slice(0, self.n_excerpts)).to_pylist()
        if self.max_tokens is not None:
            texts = cut_evenly(texts, self.max_tokens - _TAG_TOKENS * len(texts), services.count_tokens)
        found = await services.chat.ask(meta_types_request(texts, self.prompts), parse_meta_types)
        types: tuple[str, ...] = ()
        rejects = []
        if isinstance(found, Rejected):
            rejects.append(reject_row(self.name, found) | {"unit_id": "meta types"})
        else:
            types = found
        return {
            "meta_types": pa.table([pa.array(types, pa.string())], META_TYPES),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }
