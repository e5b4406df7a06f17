"""Positions in originals, of documents that are kept or added to others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.indexing.stages.read import READ_PLACES


def places_within(places: pa.Table, documents: pa.Table) -> pa.Table:
    """Return the places of some documents.

    Args:
        places: PLACES.
        documents: DOCUMENTS, or its column `document_id`.
    """
    return places.filter(pc.is_in(places["document_id"], value_set=documents["document_id"].combine_chunks()))


def added_places(before: pa.Table, places: pa.Table, new: pa.Table, new_places: pa.Table) -> pa.Table:
    """Return READ_PLACES of documents and of new ones; of a document that is among both, the new ones.

    Args:
        before, new: DOCUMENTS.
        places, new_places: their PLACES.
    """
    return pa.concat_tables([places_beside(before, places, new), _named(new_places, new)])


def places_beside(before: pa.Table, places: pa.Table, new: pa.Table) -> pa.Table:
    """Return READ_PLACES of documents, without those that are among new ones too.

    Args:
        before: DOCUMENTS.
        places: their PLACES.
        new: DOCUMENTS, or the columns `document_id`, `uri` and `record`.
    """
    names = ["document_id", "uri", "record"]
    again = set(zip(*(new[name].to_pylist() for name in names), strict=True))
    kept = [row not in again for row in zip(*(before[name].to_pylist() for name in names), strict=True)]
    return _named(places, before.filter(pa.array(kept, pa.bool_())))


def _named(places: pa.Table, documents: pa.Table) -> pa.Table:
    """Return READ_PLACES of the places of documents."""
    kept = places_within(places, documents)
    rows = pc.index_in(kept["document_id"], value_set=documents["document_id"].combine_chunks())
    for name in ("uri", "record"):
        kept = kept.append_column(name, documents[name].combine_chunks().take(rows))
    return kept.select(READ_PLACES.names).cast(READ_PLACES)
