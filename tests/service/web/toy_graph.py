"""Replies of the RPCs on entities, paths, communities and documents, for a page in a browser: a lighthouse in JSON."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

PREFIX = "**/hirag.query.v1.QueryService/*"
PASSAGE = "A storm rose on Monday. The keeper lit the lamp. Nobody slept that night."
TEXT = f"The log of Saint 🐚 Agnes.\n\n{PASSAGE}\n\nThe end."

ENTITIES = {
    "e1": ("Lighthouse", "location", 0, "Stands on the rock."),
    "e2": ("Keeper", "person", 0, "Lit the lamp."),
    "e3": ("Lamp", "object", 0, "Burns <b>oil</b>."),
    "e4": ("Storm", "event", 0, "Rose on Monday."),
    "e5": ("Ship", "object", 0, "Passed the rock."),
    "s1": ("The light and its people", "concept", 1, "Lighthouse, keeper and lamp."),
    **{f"n{i}": (f"Wreck {i}", "object", 0, f"Sank in {1800 + i}.") for i in range(12)},
}
MEMBERS = {"s1": ("e1", "e2", "e3")}
LINES = [("e1", "e2", 9.0), ("e1", "e3", 7.0), ("e2", "e3", 5.0), ("e3", "e4", 3.0), ("e4", "e5", 2.0)]
RELATIONS = [*LINES, *(("e5", f"n{i}", 1.0) for i in range(12))]


def entity(name: str) -> dict[str, Any]:
    """An Entity in JSON."""
    title, kind, layer, description = ENTITIES[name]
    return {"entityId": name, "name": title, "type": kind, "layer": layer, "description": description}


def triple(source: str, target: str, weight: float) -> dict[str, Any]:
    """A Triple in JSON."""
    names = {"sourceName": ENTITIES[source][0], "targetName": ENTITIES[target][0]}
    ends = {"relationId": f"{source}-{target}", "sourceId": source, "targetId": target}
    about = {"kind": "extracted", "description": f"{names['sourceName']} and {names['targetName']}", "weight": weight}
    return ends | names | about | {"score": 0}


def source() -> dict[str, Any]:
    """A Source in JSON: 64-bit numbers are strings."""
    start = TEXT.index(PASSAGE)
    place = {
        "start": str(start),
        "end": str(start + len(PASSAGE)),
        "display": "p. 7",
        "link": "https://example.org/log.pdf#page=7",
    }
    fields = {"chunkId": "k1", "documentId": "d1", "title": "Log", "uri": "https://example.org/log.pdf"}
    return fields | {"start": str(start), "end": str(start + len(PASSAGE)), "text": PASSAGE, "places": [place]}


def community(name: str, level: int) -> dict[str, Any]:
    """A Community in JSON."""
    title = {"c0": "The coast", "c1": "The rock"}[name]
    report = "# Report\n\n- **Light**: kept by <i>one</i> person.\n- [a link](javascript:alert(1))"
    return {"communityId": name, "level": level, "title": title, "report": report, "rating": 7.5}


def get_entity(request: dict[str, Any]) -> dict[str, Any] | None:
    """GetEntityResponse, None if there is no such entity."""
    found = next((one for one, row in ENTITIES.items() if request["entity"] in (one, row[0])), None)
    if found is None:
        return None
    near = sorted((line for line in RELATIONS if found in line[:2]), key=lambda line: -line[2])
    shown = near[: request.get("max_relations") or 20]
    above = [name for name, members in MEMBERS.items() if found in members]
    return {
        "entity": entity(found),
        "relations": [triple(*line) for line in shown],
        "neighbours": [entity(b if a == found else a) for a, b, _ in shown],
        "ancestors": [entity(name) for name in above],
        "members": [entity(name) for name in MEMBERS.get(found, ())],
        "communities": [community("c1", 1), community("c0", 0)],
        "sources": [source()],
        "relationCount": str(len(near)),
        "sourceCount": "1",
        "memberCount": str(len(MEMBERS.get(found, ()))),
    }


def find_path(request: dict[str, Any]) -> dict[str, Any]:
    """FindPathResponse; only e1 to e5 are connected, by way of the lamp and the storm."""
    ends = [get_entity({"entity": request[end]}) for end in ("source", "target")]
    first, last = (end["entity"]["entityId"] for end in ends if end)
    ids = ["e1", "e3", "e4", "e5"] if (first, last) == ("e1", "e5") else []
    lines = [next(line for line in RELATIONS if set(line[:2]) == set(pair)) for pair in pairwise(ids)]
    path = {"sourceId": first, "targetId": last, "entityIds": ids, "entityNames": [ENTITIES[id][0] for id in ids]}
    return {
        "path": path | {"connected": bool(ids)},
        "entities": [entity(id) for id in ids],
        "triples": [triple(*line) for line in lines],
    }


def get_community(request: dict[str, Any]) -> dict[str, Any]:
    """GetCommunityResponse."""
    inner = request["community_id"] == "c1"
    return {
        "community": community(request["community_id"], int(inner)),
        "members": [entity(name) for name in ("e1", "e2", "e3")],
        **({"parent": community("c0", 0)} if inner else {}),
        "children": [] if inner else [community("c1", 1)],
        "memberCount": "3",
    }


def get_document(request: dict[str, Any]) -> dict[str, Any]:
    """GetDocumentResponse."""
    start = request.get("start", 0)
    text = TEXT[start : start + (request.get("max_chars") or len(TEXT))]
    about = {"documentId": "d1", "title": "Log", "uri": "https://example.org/log.pdf"}
    return about | {"text": text, "start": str(start), "totalChars": str(len(TEXT)), "chunks": []}


class Calls:
    """Answers the calls of a page, and records them; `indexes` are those that ListIndexes names."""

    def __init__(self, *indexes: str) -> None:
        self.indexes = indexes
        self.made: list[tuple[str, dict[str, Any]]] = []

    async def answer(self, route: Any) -> None:
        """Fulfil a request of the browser."""
        method = route.request.url.rsplit("/", 1)[1]
        request = json.loads(route.request.post_data or "{}")
        if method in ("GetEntity", "FindPath", "GetCommunity", "GetDocument"):
            self.made.append((method, request))
        if method in ("DescribeIndex", "Answer", "RetrieveStream"):  # of the service itself
            await route.continue_()
            return
        replies = {
            "GetEntity": get_entity,
            "FindPath": find_path,
            "GetCommunity": get_community,
            "GetDocument": get_document,
        }
        listed = {
            "indexes": [
                {"name": name, "title": name.title(), "default": not at} for at, name in enumerate(self.indexes)
            ]
        }
        reply = listed if method == "ListIndexes" else replies[method](request)
        if reply is None:
            details = [{"type": "google.rpc.ErrorInfo", "debug": {"reason": "NOT_FOUND"}}]
            error = {"code": "not_found", "message": f"no entity {request['entity']!r}", "details": details}
            await route.fulfill(status=404, json=error)
        else:
            await route.fulfill(json=reply)
