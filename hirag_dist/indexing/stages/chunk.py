"""Documents → chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pyarrow as pa

from hirag_dist.core.text.ids import chunk_id
from hirag_dist.core.text.tokens import TextSpan, chunk_spans
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables
from hirag_dist.schemas import CHUNKS, DOCUMENTS


@dataclass(frozen=True)
class ChunkDocuments:
    """Cut each document into windows of tokens. Paper: §4.1."""

    name: ClassVar[str] = "chunk"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(64)

    class Inputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]

    class Outputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    tokenizer: str
    size: int
    overlap: int
    method: Literal["sentences", "tokens", "none"]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the chunks, in the order of the documents."""
        rows = []
        for document in tables["documents"].to_pylist():
            text = document["text"]
            if self.method == "none":
                spans = [TextSpan(0, len(text), services.count_tokens(text))]
            else:
                at_sentences = self.method == "sentences"
                spans = chunk_spans(text, services.encoding, self.size, self.overlap, at_sentences)
            for position, span in enumerate(spans):
                rows.append(
                    {
                        "chunk_id": chunk_id(
                            document["document_id"], span.start, span.end, text[span.start : span.end]
                        ),
                        "document_id": document["document_id"],
                        "position": position,
                        "start": span.start,
                        "end": span.end,
                        "n_tokens": span.n_tokens,
                        "text": text[span.start : span.end],
                    }
                )
        return {"chunks": pa.Table.from_pylist(rows, CHUNKS)}
