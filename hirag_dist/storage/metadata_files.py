"""The serving files of metadata, written and mapped: values of each field by document, and their provenance.

Filters hide documents one by one. So, other than for labels, the chunk of each kept mention is known, and the members
behind each summary entity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.groupby import spans
from hirag_dist.core.metadata.columns import DERIVED, DIVISIBLE, WHOLE, FieldColumn
from hirag_dist.core.metadata.fields import parse_period
from hirag_dist.storage import layout
from hirag_dist.storage.serving.column_arrays import Batches, Create, Lists, Save, ids_of, numbers, rows_of_column
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import TextColumns, text_schema, write_texts
from hirag_dist.types import FieldType, IntVector, MetadataField, MetadataValue

FIELDS: Final = "metadata_fields.arrow"
DOCUMENTS: Final = "document_metadata.arrow"
_FIELD_TEXTS: Final = text_schema(["name", "type", "list", "as_of"])
_DOCUMENT_TEXTS: Final = text_schema(["metadata"], wide=["metadata"])
_STRING_TEXTS: Final = text_schema(["value"])
_NUMBER_TYPES: Final = {"string": np.int32, "number": np.float64, "date": np.int64, "bool": np.int8}


def has_metadata(batches: Batches) -> bool:
    """Return whether a snapshot declares metadata fields."""
    return any(batch.num_rows for batch in batches(layout.METADATA_FIELDS, ["name"]))


def write_metadata(batches: Batches, create: Create, save: Save, entity_ids: pa.Array) -> None:
    """Write the files; none where no field is declared. In memory: the values of all documents."""
    if not has_metadata(batches):
        return
    declared = [row for batch in batches(layout.METADATA_FIELDS, _FIELD_TEXTS.names) for row in batch.to_pylist()]
    with create(FIELDS) as file:
        columns = [pa.array([_text(row[name]) for row in declared], pa.string()) for name in _FIELD_TEXTS.names]
        write_texts(file, _FIELD_TEXTS, [pa.record_batch(columns, _FIELD_TEXTS.names)])
    ids = ids_of(batches, "documents", "document_id")
    texts = ["{}"] * len(ids)
    rows = rows_of_column(batches, layout.DOCUMENT_METADATA, "document_id", ids).tolist()
    given = (text for batch in batches(layout.DOCUMENT_METADATA, ["metadata"]) for text in batch.column(0).to_pylist())
    for row, text in zip(rows, given, strict=True):
        if row >= 0:
            texts[row] = text
    with create(DOCUMENTS) as file:
        column = pa.array(texts, pa.large_string())
        write_texts(file, _DOCUMENT_TEXTS, [pa.record_batch([column], _DOCUMENT_TEXTS.names)])
    values = [json.loads(text) for text in texts]
    for number, field in enumerate(declared):
        _save_column(create, save, number, field["type"], [document.get(field["name"]) for document in values])
    save("entity_provenance", _provenance(batches, layout.ENTITY_MENTIONS, "entity_id", entity_ids))
    relation_ids = ids_of(batches, "relations", "relation_id")
    relations = _provenance(batches, layout.STATEMENTS, "relation_id", relation_ids)
    extracted = pc.equal(ids_of(batches, "relations", "kind"), "extracted").to_numpy(zero_copy_only=False)
    relations[~extracted] = DERIVED
    save("relation_provenance", relations)
    indptr, members = summary_members(batches, entity_ids)
    save("summary_indptr", indptr)
    save("summary_members", members)


def summary_members(batches: Batches, entity_ids: pa.Array) -> Lists:
    """Return CSR of the entities behind each summary entity: the members of the clusters that a model was shown.

    The first list is that of the first summary entity: layer 0 has none. What is unknown, or not of the layer below, is
    −1.
    """
    layers = numbers(batches, "entities", "layer", np.int32)
    first = int(np.searchsorted(layers, 1))
    cluster_ids = ids_of(batches, "clusters", "cluster_id").unique()
    clusters = rows_of_column(batches, "clusters", "cluster_id", cluster_ids)
    members = rows_of_column(batches, "clusters", "entity_id", entity_ids)
    order = np.argsort(clusters, kind="stable")
    members = members[order]
    ends = np.concatenate([[0], np.cumsum(np.bincount(clusters, minlength=len(cluster_ids)))])
    owners = rows_of_column(batches, layout.SUMMARY_SOURCES, "entity_id", entity_ids)
    sources = rows_of_column(batches, layout.SUMMARY_SOURCES, "cluster_id", cluster_ids)
    known = (owners >= first) & (sources >= 0)
    unknown = np.setdiff1d(np.arange(first, len(layers)), owners[known])  # without any known cluster
    lost = np.union1d(unknown, owners[(owners >= first) & (sources < 0)])
    pair, at = spans(ends[sources[known]], ends[sources[known] + 1])
    owner, member = owners[known][pair].astype(np.int64), members[at]
    member = np.where((member >= 0) & (layers[member] == layers[owner] - 1), member, -1).astype(np.int32)
    owner = np.concatenate([owner, lost]) - first
    member = np.concatenate([member, np.full(len(lost), -1, np.int32)])
    counts = np.bincount(owner, minlength=len(layers) - first)
    indptr: IntVector = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return indptr, member[np.argsort(owner, kind="stable")]


def _save_column(create: Create, save: Save, number: int, kind: FieldType, values: list[Any]) -> None:
    """Write the values of a field by document, None for none, as `core.metadata.columns.FieldColumn` has them."""
    lists = [value if isinstance(value, list) else [] if value is None else [value] for value in values]
    flat = [value for each in lists for value in each]
    save(f"metadata_{number}_indptr", np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64))
    if kind == "string":
        distinct = sorted(set(flat))
        with create(f"metadata_{number}.arrow") as file:
            write_texts(file, _STRING_TEXTS, [pa.record_batch([pa.array(distinct, pa.string())], ["value"])])
        position = {value: at for at, value in enumerate(distinct)}
        flat = [position[value] for value in flat]
    elif kind == "date":
        flat = [parse_period(value).start for value in flat]
    save(f"metadata_{number}_values", np.array(flat, _NUMBER_TYPES[kind]))


def _provenance(batches: Batches, table: str, column: str, ids: pa.Array) -> NDArray[np.uint8]:
    rows = rows_of_column(batches, table, column, ids)
    found = np.full(len(ids), WHOLE, np.uint8)
    found[rows[rows >= 0]] = DIVISIBLE
    return found


def _text(value: object) -> str:
    return ("true" if value else "") if isinstance(value, bool) else str(value)


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


class MetadataFiles:
    """The metadata of an index that declares fields, mapped.

    Attributes:
        fields: declared ones, in their order.
        as_of_field: the date that `Query.as_of` is compared with; "" for none.
        columns: values by the name of the field.
        documents: the metadata of each document, as JSON.
        entity_provenance, relation_provenance: (n_rows,) uint8, of `core.metadata.columns`.
        summary_indptr, summary_members: CSR, see `summary_members`.
    """

    def __init__(self, files: ServingFiles) -> None:
        """Map the files. Raises SnapshotCorrupt where a file cannot be read."""
        texts = files.texts(FIELDS)
        rows = [{name: texts.value(name, row) for name in _FIELD_TEXTS.names} for row in range(texts.n_rows)]
        self.fields = tuple(MetadataField(row["name"], cast(FieldType, row["type"]), bool(row["list"])) for row in rows)
        self.as_of_field = next((row["name"] for row in rows if row["as_of"]), "")
        self.columns: dict[str, FieldColumn] = {}
        for number, field in enumerate(self.fields):
            strings = _Strings(files.texts(f"metadata_{number}.arrow")) if field.type == "string" else ()
            indptr, values = (files.array(f"metadata_{number}_{part}") for part in ("indptr", "values"))
            self.columns[field.name] = FieldColumn(field, indptr, values, strings)
        self.documents = files.texts(DOCUMENTS)
        self.entity_provenance: NDArray[np.uint8] = files.array("entity_provenance")
        self.relation_provenance: NDArray[np.uint8] = files.array("relation_provenance")
        self.summary_indptr: NDArray[np.int64] = files.array("summary_indptr")
        self.summary_members: NDArray[np.int32] = files.array("summary_members")

    def of_document(self, row: int) -> dict[str, MetadataValue]:
        """Return the metadata of a document by field; none for row −1."""
        if row < 0:
            return {}
        values = json.loads(self.documents.value("metadata", row))
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
