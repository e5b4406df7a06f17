"""Files → documents, each text once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from hirag_dist.core.text.ids import document_id
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Services, Split, Tables
from hirag_dist.readers import Document, ReadOptions, SourceFile, read_source
from hirag_dist.schemas import DOCUMENTS, REJECTS

SOURCES = pa.schema(
    [
        pa.field("uri", pa.string(), nullable=False),  # where it is read from
        pa.field("shown", pa.string(), nullable=False),  # its name in the index, whatever the folder it lies in
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("format", pa.string(), nullable=False),
        pa.field("compression", pa.string()),
        pa.field("modified", pa.string(), nullable=False),  # so that a changed file is read again
        pa.field("refusal", pa.string(), nullable=False),  # why it is not read; empty for none
    ]
)


def source_of(row: Mapping[str, Any]) -> SourceFile:
    """Return the file of a row of SOURCES."""
    shown = row["shown"]
    form, compression = row["format"], row["compression"]
    return SourceFile(row["uri"], shown, row["size_bytes"], form, compression, row["modified"], shown, row["refusal"])


@dataclass(frozen=True)
class ReadDocuments:
    """Files → documents and, for whatever could not be read, a reject with its reason."""

    name: ClassVar[str] = "read"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = ByRows(32)

    class Inputs(TableSet):
        sources: Annotated[Dataset, SOURCES]

    class Outputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]
        rejects: Annotated[Dataset, REJECTS]

    options: ReadOptions

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the documents in file order, copies too."""
        documents: list[dict[str, Any]] = []
        rejects: list[dict[str, Any]] = []
        for row in tables["sources"].to_pylist():
            source = source_of(row)
            for found in read_source(source, self.options):
                where = f"{row['shown']}#{found.record}" if found.record else row["shown"]
                if isinstance(found, Document):
                    documents.append(
                        {
                            "document_id": document_id(found.text, found.labels),
                            "uri": row["shown"],
                            "record": found.record,
                            "title": found.title,
                            "source_ids": [found.source_id or where],
                            "labels": sorted(set(found.labels)),
                            "n_chars": len(found.text),
                            "text": found.text,
                        }
                    )
                else:
                    rejects.append(
                        {
                            "stage": self.name,
                            "unit_id": where,
                            "reason": found.reason,
                            "attempts": 1,
                            "request": "",
                            "reply": "",
                        }
                    )
        return {
            "documents": pa.Table.from_pylist(documents, DOCUMENTS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }


@dataclass(frozen=True)
class UniqueDocuments:
    """Documents → each text once for each set of labels, under its first name and all its ids; sorted by id."""

    name: ClassVar[str] = "unique"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = ByKey("document_id", 20_000)

    class Inputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]

    class Outputs(TableSet):
        documents: Annotated[Dataset, DOCUMENTS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the distinct documents of this partition."""
        found: dict[str, dict[str, Any]] = {}
        for row in sorted(tables["documents"].to_pylist(), key=lambda item: (item["uri"], item["record"])):
            first = found.setdefault(row["document_id"], row)
            if first is not row:
                first["source_ids"] = sorted({*first["source_ids"], *row["source_ids"]})
        rows = [found[key] for key in sorted(found)]
        return {"documents": pa.Table.from_pylist(rows, DOCUMENTS)}
