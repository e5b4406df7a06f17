"""Metadata of the documents of an index: declared fields, and the values of each document."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.config.sections import MetadataConfig
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.read import READ_METADATA, UniqueMetadata, metadata_text
from hirag_dist.schemas import DOCUMENT_METADATA, METADATA_FIELDS
from hirag_dist.storage import layout

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DocumentMetadata:
    """Metadata of documents.

    Attributes:
        fields: METADATA_FIELDS; no row where none is declared.
        values: DOCUMENT_METADATA of the documents that have a value, sorted by id.
    """

    fields: pa.Table
    values: pa.Table

    def __bool__(self) -> bool:
        return bool(self.fields.num_rows)

    def equals(self, base: UpdateBase) -> bool:
        """Return whether a snapshot has this metadata."""
        fields, values = (base.table(name) for name in layout.METADATA_TABLES)
        return bool(
            self.fields.equals(fields.cast(METADATA_FIELDS)) and self.values.equals(values.cast(DOCUMENT_METADATA))
        )

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables of `layout.METADATA_TABLES`; none where no field is declared."""
        return {layout.METADATA_FIELDS: self.fields, layout.DOCUMENT_METADATA: self.values} if self else {}


NO_METADATA = DocumentMetadata(  # `empty_table` would import pandas, which a question does not use
    pa.Table.from_batches([], METADATA_FIELDS), pa.Table.from_batches([], DOCUMENT_METADATA)
)


def field_table(config: MetadataConfig) -> pa.Table:
    """Return METADATA_FIELDS of a configuration."""
    rows = [
        {"name": name, "type": field.type, "list": field.list, "as_of": name == config.as_of_field}
        for name, field in config.fields.items()
    ]
    return pa.Table.from_pylist(rows, METADATA_FIELDS)


def read_metadata(context: BuildContext, metadata: Dataset) -> DocumentMetadata:
    """Return the metadata of documents, of which READ_METADATA has copies too."""
    fields = field_table(context.config.metadata)
    if not fields.num_rows:
        return NO_METADATA
    if not metadata.rows:
        return DocumentMetadata(fields, NO_METADATA.values)
    unique = context.runner.run(UniqueMetadata(), "unique metadata", metadata=metadata).metadata
    return DocumentMetadata(fields, _sorted(context.datasets.read(unique)))


def kept_metadata(
    context: BuildContext, base: UpdateBase, documents: pa.Table, new: DocumentMetadata = NO_METADATA
) -> DocumentMetadata:
    """Return the metadata of documents of which some were read, and of the others the base has it.

    Values of fields that were declared otherwise when the base was built are left out: they are read again by
    `hirag-dist index INPUT`.

    Args:
        documents: all of them, with the column `document_id`.
    """
    fields = field_table(context.config.metadata)
    if not fields.num_rows:
        return NO_METADATA
    before = base.table(layout.METADATA_FIELDS).cast(METADATA_FIELDS)
    known = {row["name"]: (row["type"], row["list"]) for row in before.to_pylist()}
    now = {row["name"]: (row["type"], row["list"]) for row in fields.to_pylist()}
    same = {name for name, declared in now.items() if known.get(name) == declared}
    if unread := [name for name in now if name not in same]:
        logger.warning(
            "metadata fields %s were not declared so when the index was built: documents that are not read now have no "
            "value; run `hirag-dist index INPUT` with all documents",
            ", ".join(unread),
        )
    values = base.table(layout.DOCUMENT_METADATA).cast(DOCUMENT_METADATA)
    values = values.filter(pc.is_in(values["document_id"], value_set=documents["document_id"].combine_chunks()))
    is_read = pc.is_in(values["document_id"], value_set=new.values["document_id"].combine_chunks())
    values = values.filter(pc.invert(is_read))
    if same != known.keys():
        kept = (
            {name: value for name, value in json.loads(text).items() if name in same}
            for text in values["metadata"].to_pylist()
        )
        texts = pa.array(map(metadata_text, kept), pa.string())
        values = values.set_column(1, DOCUMENT_METADATA.field("metadata"), texts)
    return DocumentMetadata(fields, _sorted(pa.concat_tables([values, new.values])))


def base_metadata(base: UpdateBase, documents: pa.Table) -> pa.Table:
    """Return READ_METADATA of documents of the base."""
    values = base.table(layout.DOCUMENT_METADATA)
    found = values["metadata"].take(pc.index_in(documents["document_id"], values["document_id"].combine_chunks()))
    columns = [documents[name] for name in READ_METADATA.names[:-1]]
    return pa.table([*columns, pc.fill_null(found, "{}")], schema=READ_METADATA)


def metadata_beside(new: DocumentMetadata, base: UpdateBase, ids: pa.Array) -> DocumentMetadata:
    """Return metadata with that of other documents, which the base has of the same fields."""
    if not new:
        return new
    values = base.table(layout.DOCUMENT_METADATA).cast(DOCUMENT_METADATA)
    kept = values.filter(pc.is_in(values["document_id"], value_set=ids))
    return DocumentMetadata(new.fields, _sorted(pa.concat_tables([kept, new.values])))


def has_same_fields(context: BuildContext, base: UpdateBase) -> bool:
    """Return whether the fields are declared as they were when the base was built."""
    declared = ["name", "type", "list"]
    before = base.table(layout.METADATA_FIELDS).cast(METADATA_FIELDS).select(declared)
    return bool(field_table(context.config.metadata).select(declared).equals(before))


def field_changes(base: UpdateBase, config: MetadataConfig) -> dict[str, list[str]]:
    """Return the names of declared fields that are `gone` since the base was built, `new` and `changed`, if any."""
    tables = (base.table(layout.METADATA_FIELDS).cast(METADATA_FIELDS), field_table(config))
    before, now = ({row["name"]: row for row in table.to_pylist()} for table in tables)
    found = {
        "gone": [name for name in before if name not in now],
        "new": [name for name in now if name not in before],
        "changed": [name for name in now if name in before and now[name] != before[name]],
    }
    return {word: names for word, names in found.items() if names}


def warn_of_gone_fields(base: UpdateBase, config: MetadataConfig) -> None:
    """Warn of declared fields of a snapshot that a configuration does not declare, as where --config was forgotten."""
    if gone := field_changes(base, config).get("gone"):
        logger.warning(
            "the index has the metadata fields %s, which this configuration does not declare: the new snapshot is "
            "without them, and questions cannot filter by them. Give the --config that the index was built with, or "
            "declare them in metadata.fields",
            ", ".join(gone),
        )


def _sorted(values: pa.Table) -> pa.Table:
    return values.filter(pc.not_equal(values["metadata"], "{}")).sort_by("document_id").combine_chunks()
