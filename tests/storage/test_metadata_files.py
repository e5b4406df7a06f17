"""Metadata of documents as it is served: the values of each field, and what filters need to know of each row."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from hirag_dist import schemas
from hirag_dist.core.metadata.columns import DERIVED, DIVISIBLE, WHOLE
from hirag_dist.storage.metadata_files import map_metadata
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from tests.storage import snapshots

FIELDS = [  # name, type, list, as of
    ("topics", "string", True, False),
    ("pages", "number", False, False),
    ("day", "date", False, True),
    ("public", "bool", False, False),
]
VALUES: dict[str, dict[str, Any]] = {
    "d1": {"topics": ["sea", "ships"], "pages": 2.5, "public": True},
    "d3": {"topics": ["ships"], "day": "2020-01-02", "public": False},
    "gone": {"pages": 7},
}


def tables() -> dict[str, pa.Table]:
    """The tiny snapshot with three documents, fields, and what is known of an entity, a relation and a summary."""
    found = snapshots.tiny_tables()
    first = found["documents"].to_pylist()[0]
    rows: dict[str, list[dict[str, Any]]] = {
        "documents": [first, first | {"document_id": "d2"}, first | {"document_id": "d3"}],
        "metadata_fields": [dict(zip(schemas.METADATA_FIELDS.names, row, strict=True)) for row in FIELDS],
        "document_metadata": [{"document_id": own, "metadata": json.dumps(row)} for own, row in VALUES.items()],
        "entity_mentions": [blank(schemas.ENTITY_MENTIONS) | {"entity_id": "e2"}],
        "statements": [],
        "clusters": [blank(schemas.CLUSTERS) | {"cluster_id": "c", "entity_id": own} for own in ("e3", "e1", "lost")],
        "summary_sources": [{"entity_id": "e4", "cluster_id": "c"}],
    }
    return found | {name: pa.Table.from_pylist(each, getattr(schemas, name.upper())) for name, each in rows.items()}


def blank(schema: pa.Schema) -> dict[str, Any]:
    """A row of empty values."""
    empty: dict[str, Any] = {"string": "", "bool": False}
    return {each.name: empty.get(str(each.type), [] if pa.types.is_list(each.type) else 0) for each in schema}


def test_values_by_field_and_document(store: Store) -> None:
    snapshots.publish(store, tables())
    snapshot = open_snapshot(store)
    found = map_metadata(snapshot.serving, snapshot.manifest)
    assert [(each.name, each.type, each.list) for each in found.fields] == [row[:3] for row in FIELDS]
    assert found.as_of_field == "day"
    told = {
        name: [each.values[a:b].tolist() for a, b in pairwise(each.indptr.tolist())]
        for name, each in found.columns.items()
    }
    day = datetime(2020, 1, 2, tzinfo=UTC).timestamp() * 1e6
    assert list(found.columns["topics"].strings) == ["sea", "ships"]
    assert told == {"topics": [[0, 1], [], [1]], "pages": [[2.5], [], []], "day": [[], [], [day]]} | {
        "public": [[1], [], [0]]
    }
    assert found.of_document(0) == VALUES["d1"] | {"topics": ("sea", "ships")}
    assert found.of_document(1) == found.of_document(-1) == {}


def test_what_stands_behind_entities_relations_and_summaries(store: Store) -> None:
    snapshots.publish(store, tables())
    snapshot = open_snapshot(store)
    found = map_metadata(snapshot.serving, snapshot.manifest)
    assert found.entity_provenance.tolist() == [WHOLE, DIVISIBLE, WHOLE, WHOLE]
    kinds = snapshot.table("relations", ["kind"])["kind"].to_pylist()
    assert found.relation_provenance.tolist() == [WHOLE if kind == "extracted" else DERIVED for kind in kinds]
    assert found.summary_indptr.tolist() == [0, 3]
    assert sorted(found.summary_members.tolist()) == [-1, 0, 2], "a member that is not there is known to be missing"


def test_an_index_without_fields_has_none(store: Store) -> None:
    snapshots.publish(store)
    snapshot = open_snapshot(store)
    assert map_metadata(snapshot.serving, snapshot.manifest) is None
