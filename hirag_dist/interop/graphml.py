"""A snapshot as GraphML, for Gephi, igraph, networkx and whatever else reads it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa

from hirag_dist.core.entities.claim_text import ClaimItem, claim_text
from hirag_dist.core.graph.csr import rows_of

_BATCH = 4096

# What XML 1.0 cannot hold, not even escaped: control characters, lone surrogates, two non-characters.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_NODE_KEYS = {
    "name": "string",
    "label": "string",  # what Gephi shows
    "type": "string",
    "layer": "int",
    "description": "string",
    "described": "boolean",
    "n_mentions": "int",
    "community": "string",
    "community_level": "int",
    "claims": "string",
}
_EDGE_KEYS = {"kind": "string", "layer": "int", "weight": "double", "description": "string"}

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


def write_graphml(tables: Mapping[str, pa.Table], stream: BinaryIO) -> None:
    """Write entities as nodes and relations as undirected edges, row by row, in UTF-8.

    A node's id is its entity id, an edge's its relation id. `community` is the deepest community that holds an entity.
    `claims` are those whose subject an entity is, a line each.
    Relations with an endpoint that is not in `entities` are left out: readers would refuse the file or invent a node.
    Two entities may be joined by relations of different kinds: readers see a multigraph then.

    Args:
        tables: `entities` and `relations`, and `communities` and `claims` where there are any.
        stream: binary, open for writing; it is not closed.
    """
    _write(stream, _HEAD)
    for target, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS)):
        for name, kind in keys.items():
            _write(stream, f'<key id="{target[0]}_{name}" for="{target}" attr.name="{name}" attr.type="{kind}"/>\n')
    _write(stream, '<graph id="hirag" edgedefault="undirected">\n')
    homes = _homes(tables.get("communities"))
    claims = _claims(tables.get("claims"))
    columns = ["entity_id", "name", "type", "layer", "description", "described", "n_mentions"]
    for row in _rows(tables["entities"].select(columns)):
        home = homes.get(row["entity_id"])
        row |= {"label": row["name"]} | ({"community": home[1], "community_level": home[0]} if home else {})
        row["claims"] = claims.get(row["entity_id"])
        _write(stream, f"<node id={_attribute(row['entity_id'])}>{_data('n', row, _NODE_KEYS)}</node>\n")
    relations = _resolved(tables["relations"], tables["entities"])
    for row in _rows(relations.select(["relation_id", "source_id", "target_id", *_EDGE_KEYS])):
        ends = f"source={_attribute(row['source_id'])} target={_attribute(row['target_id'])}"
        _write(stream, f"<edge id={_attribute(row['relation_id'])} {ends}>{_data('e', row, _EDGE_KEYS)}</edge>\n")
    _write(stream, "</graph>\n</graphml>\n")


def _write(stream: BinaryIO, text: str) -> None:
    stream.write(text.encode("utf-8"))


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from batch.to_pylist()


def _homes(communities: pa.Table | None) -> dict[str, tuple[int, str]]:
    """Entity id → level and id of the deepest community that holds it."""
    homes: dict[str, tuple[int, str]] = {}
    if communities is not None:
        for row in _rows(communities.select(["level", "community_id", "entity_ids"])):
            for entity_id in row["entity_ids"]:
                homes[entity_id] = max(homes.get(entity_id, (-1, "")), (row["level"], row["community_id"]))
    return homes


def _claims(claims: pa.Table | None) -> dict[str, str]:
    """Entity id → the claims whose subject it is, a line each."""
    found: dict[str, list[str]] = {}
    for row in _rows(claims) if claims is not None else ():
        if row["subject_id"] is not None:
            found.setdefault(row["subject_id"], []).append(
                claim_text(ClaimItem(**row | {"object_id": row["object_id"] or ""}))
            )
    return {own: "\n".join(lines) for own, lines in found.items()}


def _resolved(relations: pa.Table, entities: pa.Table) -> pa.Table:
    known = [rows_of(relations[end], entities["entity_id"]) >= 0 for end in ("source_id", "target_id")]
    return relations.filter(pa.array(known[0] & known[1]))


def _attribute(value: str) -> str:
    return quoteattr(_FORBIDDEN.sub("", value))


def _data(prefix: str, row: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    parts = []
    for name, kind in keys.items():
        value = row.get(name)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        text = _FORBIDDEN.sub("", value) if isinstance(value, str) else str(value)
        if kind == "boolean":
            text = text.lower()
        parts.append(f'<data key="{prefix}_{name}">{escape(text, {chr(13): "&#13;"})}</data>')
    return "".join(parts)
