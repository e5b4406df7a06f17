"""The serving files of metadata, mapped (`storage.metadata.metadata_files_writer` writes them)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.metadata.columns import FieldColumn
from hirag_dist.storage import layout
from hirag_dist.storage.metadata import metadata_files_writer
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.types import FieldType, MetadataField, MetadataValue


class _Strings(Sequence[str]):
    """A column of text as a sequence."""

    def __init__(self, texts: TextColumns) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return int(self._texts.n_rows)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return self._texts.values("value", range(*at.indices(len(self))))
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._texts.value("value", at)

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])


@dataclass(frozen=True)
class MetadataFiles:
    """The metadata of an index, mapped.

    Attributes:
        fields: declared ones, in their order.
        as_of_field: the date that `Query.as_of` is compared with; "" for none.
        columns: values by the name of the field.
        documents: the metadata of each document, as JSON.
        entity_provenance, relation_provenance: (n_rows,) uint8, of `metadata_files_writer`.
        summary_indptr, summary_members: CSR, see `metadata_files_writer.summary_members`.
    """

    fields: tuple[MetadataField, ...]
    as_of_field: str
    columns: Mapping[str, FieldColumn]
    documents: TextColumns
    entity_provenance: NDArray[np.uint8]
    relation_provenance: NDArray[np.uint8]
    summary_indptr: NDArray[np.int64]
    summary_members: NDArray[np.int32]

    def of_document(self, row: int) -> dict[str, MetadataValue]:
        """Return the metadata of a document by field; none for row −1."""
        if row < 0:
            return {}
        values = json.loads(self.documents.value("metadata", row))
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def map_metadata(files: ServingFiles, manifest: Manifest) -> MetadataFiles | None:
    """Return the metadata of a snapshot, None where it declares no field.

    Raises:
        SnapshotCorrupt: a file cannot be read.
    """
    if not manifest.counts.get(layout.METADATA_FIELDS):
        return None
    texts = files.texts(metadata_files_writer.FIELDS)
    rows = [{name: texts.value(name, row) for name in ("name", "type", "list", "as_of")} for row in range(texts.n_rows)]
    fields = tuple(MetadataField(row["name"], cast(FieldType, row["type"]), bool(row["list"])) for row in rows)
    columns = {field.name: _column(files, number, field) for number, field in enumerate(fields)}
    return MetadataFiles(
        fields=fields,
        as_of_field=next((row["name"] for row in rows if row["as_of"]), ""),
        columns=columns,
        documents=files.texts(metadata_files_writer.DOCUMENTS),
        entity_provenance=files.array("entity_provenance"),
        relation_provenance=files.array("relation_provenance"),
        summary_indptr=files.array("summary_indptr"),
        summary_members=files.array("summary_members"),
    )


def _column(files: ServingFiles, number: int, field: MetadataField) -> FieldColumn:
    strings: Sequence[str] = ()
    if field.type == "string":
        strings = _Strings(files.texts(f"metadata_{number}.arrow"))
    values: NDArray[Any] = files.array(f"metadata_{number}_values")
    return FieldColumn(field, files.array(f"metadata_{number}_indptr"), values, strings)
