"""INPUT arguments → the table of files that a build reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Sequence
from pathlib import Path

import pyarrow as pa

from hirag_dist.config.sections import MetadataConfig, ReadingConfig
from hirag_dist.core.metadata.fields import FieldSource
from hirag_dist.core.retrieval.places import unit_name
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InputError
from hirag_dist.indexing.stages.read import SOURCES
from hirag_dist.readers import (
    ReadOptions,
    find_inputs,
    is_missing_text,
    is_uri,
    is_utf8,
    missing_package,
    missing_packages,
    public_uri,
)
from hirag_dist.types import MetadataField

logger = logging.getLogger(__name__)
_RECORD_FORMATS = ("json", "jsonl", "csv", "tsv", "parquet")
_NO_METADATA = MetadataConfig()


def read_options(reading: ReadingConfig, metadata: MetadataConfig = _NO_METADATA) -> ReadOptions:
    """Return the reading options of a configuration."""
    sources = tuple(
        FieldSource(field, each.keys or (name,), each.path or "", each.separator)
        for field, (name, each) in zip(declared_fields(metadata), metadata.fields.items(), strict=True)
    )
    return ReadOptions(**reading.model_dump(exclude={"follow_links"}), metadata=sources)


def declared_fields(metadata: MetadataConfig) -> list[MetadataField]:
    """Return the declared fields of a configuration, in their order."""
    return [MetadataField(name, each.type, each.list) for name, each in metadata.fields.items()]


def source_table(inputs: Sequence[str], *, follow_links: bool = False) -> pa.Table:
    """Return SOURCES for INPUT arguments, each file once, sorted.

    A local file is named by its path below the INPUT it came from, so that an index does not depend on where its
    corpus lies; what is on an object store keeps its URI.
    """
    found = find_inputs(inputs, follow_links=follow_links)
    if notice := missing_packages(found):
        logger.warning("%s", notice)
    rows = [
        {
            "uri": source.uri,
            "shown": source.name,
            "size_bytes": source.size_bytes,
            "format": source.format,
            "compression": source.compression,
            "modified": source.modified,
            "etag": source.etag,
            "refusal": source.refusal or missing_package(source.format),
        }
        for source in found
    ]
    return pa.Table.from_pylist(rows, SOURCES)


def check_read(sources: pa.Table, read: Container[str], rejects: pa.Table, text_field: str | None) -> None:
    """Refuse to go on where next to nothing was read: an index of the rest would not be what was asked for.

    Args:
        read: names, as in `shown`, of the files that gave a document.
        rejects: `unit_id` and `reason` of what could not be read, at least one.
        text_field: the field of JSON, CSV and Parquet records that was named, or None.

    Raises:
        InputError: no file gave a document, or no record has the named field while there are files of records.
    """
    units, reasons = rejects["unit_id"].to_pylist(), rejects["reason"].to_pylist()
    if text_field is not None:
        named = zip(sources["shown"].to_pylist(), sources["format"].to_pylist(), strict=True)
        if not any(shown in read for shown, kind in named if kind in _RECORD_FORMATS):
            for unit, reason in zip(units, reasons, strict=True):
                if is_missing_text(reason, text_field):
                    raise InputError(
                        f"no record of INPUT has its text in {text_field!r}: {unit_name(unit)} has {reason}"
                    )
    if not read:
        raise InputError(
            f"INPUT holds no text that can be indexed: {count_noun(sources.num_rows, 'file')}, none of which "
            "could be read; "
            f"the first, {unit_name(units[0])}: {reasons[0]}"
        )


def portable_uri(argument: str) -> str:
    """Return an INPUT argument so that it means the same from another folder, holds no credentials, and is UTF-8."""
    if is_uri(argument):
        return public_uri(argument)
    path = os.path.abspath(os.path.expanduser(argument))
    return path if is_utf8(path) else Path(path).as_uri()
