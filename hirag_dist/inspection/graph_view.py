"""Tables of a snapshot → what the page's map draws: prominent entities and their communities, laid out as circles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.inspection.model import simple_graph
from hirag_dist.types import FloatVector, IntVector

Points = NDArray[np.float64]

_GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))
_DENSITY = 0.62  # share of a disc that dots on a spiral may cover before they touch
_N_RAYS = 96
_DOT_GAP = 0.7
_LEAF_MARGIN = 3.0  # between the outermost dots and the circle around them
_MARGIN = 6.0  # between circles and the circle around them
_GAP = 4.0  # between neighbouring circles, more between the large ones
_GAP_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Layout:
    """Places and radii, in units of the drawing; the middle is (0, 0).

    Attributes:
        dots: (n_entities, 2) centres.
        dot_radii: (n_entities,).
        circles: (n_communities, 2) centres.
        circle_radii: (n_communities,); 0 for a community without a drawn entity.
        radius: radius of the circle around everything.
    """

    dots: Points
    dot_radii: FloatVector
    circles: Points
    circle_radii: FloatVector
    radius: float


def lay_out(homes: IntVector, parents: IntVector, dot_radii: FloatVector) -> Layout:
    """Return the layout.

    Args:
        homes: (n_entities,) the deepest community of each, -1 for none; the first of a home stand in its middle.
        parents: (n_communities,) -1 for none; a parent stands before its children.
        dot_radii: (n_entities,).
    """
    n_communities = len(parents)
    order = np.argsort(homes, kind="stable")
    starts = np.searchsorted(homes[order], np.arange(-1, n_communities + 1))
    own = [order[first:last] for first, last in pairwise(starts)]  # [0] is of those without home
    children: list[list[int]] = [[] for _ in range(n_communities + 1)]
    for community, parent in enumerate(parents.tolist()):
        children[parent + 1].append(community)
    dots = np.zeros((len(homes), 2))
    circles, radii = np.zeros((n_communities, 2)), np.zeros(n_communities)
    whole = 0.0
    for community in range(n_communities - 1, -2, -1):  # bottom up: places relative to the circle that holds them
        inner = [child for child in children[community + 1] if radii[child] > 0]
        radius = _fill(own[community + 1], inner, dots, dot_radii, circles, radii)
        if community >= 0:
            radii[community] = radius
        else:
            whole = radius
    for community in range(n_communities):  # top down: absolute places
        if parents[community] >= 0:
            circles[community] += circles[parents[community]]
    housed = homes >= 0
    dots[housed] += circles[homes[housed]]
    return Layout(dots, dot_radii, circles, radii, whole)


def _fill(
    rows: IntVector, inner: list[int], dots: Points, dot_radii: FloatVector, circles: Points, radii: FloatVector
) -> float:
    """Place a community's own dots and inner circles around (0, 0); return its radius, 0 where there is nothing."""
    places, spread = sunflower(dot_radii[rows] + _DOT_GAP)
    if not inner:
        dots[rows] = places
        return spread + _LEAF_MARGIN if len(rows) else 0.0
    sizes = np.append(radii[inner], spread) if len(rows) else radii[inner]
    spaced = sizes * (1 + _GAP_SHARE) + _GAP
    order = np.argsort(-spaced, kind="stable")
    centres = np.empty((len(sizes), 2))
    centres[order] = pack_circles(spaced[order])
    low, high = (centres - spaced[:, None]).min(axis=0), (centres + spaced[:, None]).max(axis=0)
    centres -= (low + high) / 2
    radius = float(np.max(np.hypot(centres[:, 0], centres[:, 1]) + spaced))
    circles[inner] = centres[: len(inner)]
    if len(rows):
        dots[rows] = places + centres[-1]
    return radius + _MARGIN


def sunflower(radii: FloatVector) -> tuple[Points, float]:
    """Return places for dots around the origin, the first in the middle, and the radius of the disc they fill.

    Args:
        radii: (n,) of the dots, gaps included; largest first looks best.
    """
    areas = radii**2 / _DENSITY
    outer = np.cumsum(areas)
    distance = np.sqrt(outer - areas / 2) if len(radii) > 1 else np.zeros(len(radii))
    angle = np.arange(len(radii)) * _GOLDEN_ANGLE
    points = np.column_stack([distance * np.cos(angle), distance * np.sin(angle)])
    return points, float(np.max(distance + radii, initial=0.0))


def pack_circles(radii: FloatVector) -> Points:
    """Return (n, 2) centres of circles that do not overlap, near the origin; give the largest first.

    Each circle comes from outside along the ray on which it gets nearest to the origin before it touches another.
    """
    centres = np.zeros((len(radii), 2))
    angles = np.arange(_N_RAYS) * math.tau / _N_RAYS
    rays = np.column_stack([np.cos(angles), np.sin(angles)])
    for circle in range(1, len(radii)):
        placed, touching = centres[:circle], radii[:circle] + radii[circle]
        along = rays @ placed.T
        under_root = touching**2 - np.sum(placed**2, axis=1) + along**2  # negative where the ray passes by
        distances = np.where(under_root >= 0, along + np.sqrt(np.maximum(under_root, 0)), 0.0).max(axis=1)
        nearest = int(np.argmin(distances))
        centres[circle] = rays[nearest] * distances[nearest]
    return centres


MAX_ENTITIES = 10_000
MAX_RELATIONS = 30_000
MAX_COMMUNITIES = 2_000

_NAME_CHARS = 90
_DESCRIPTION_CHARS = 160
_RELATION_CHARS = 90
_DESCRIPTION_BYTES = 2_000_000  # of all descriptions: where they are more, each is cut shorter
_RELATION_BYTES = 700_000
_REPORT_BYTES = 1_000_000  # of all reports; beyond it they lose their findings, beyond the double also their summary


@dataclass(frozen=True, slots=True)
class GraphView:
    """The part of an index that a page can show, laid out.

    Attributes:
        entities: columns by name: id, name, type (a place in `types`), layer, about, degree (in the whole index), home
            (the deepest drawn community, -1 for none).
        communities: columns by name: id, title, level, parent (-1 for none), size, relations, rating, summary,
            findings. Parents stand before their children; one without a report has names of members as its title, and
            no rating.
        relations: columns by name: source, target, kind (a place in `kinds`), weight, about; heaviest first.
        summaries: columns by name: member and summary, places of two drawn entities, the second a summary of the first.
        layout: a place and radius for each entity and community.
        totals: entities, communities and relations (between two entities of the index) in the whole index.
    """

    entities: Mapping[str, Sequence[Any]]
    communities: Mapping[str, Sequence[Any]]
    relations: Mapping[str, Sequence[Any]]
    summaries: Mapping[str, Sequence[int]]
    types: tuple[str, ...]
    kinds: tuple[str, ...]
    layout: Layout
    totals: Mapping[str, int]


def graph_view(
    tables: Mapping[str, pa.Table],
    max_entities: int = MAX_ENTITIES,
    max_relations: int = MAX_RELATIONS,
    max_communities: int = MAX_COMMUNITIES,
) -> GraphView:
    """Choose what to draw and lay it out; the same tables give the same picture.

    Args:
        tables: entities, relations, communities and reports.
        max_entities: the entities with most neighbours are kept (of equal ones those with most mentions); where not all
            fit, two in five of the places go to the communities in turn, so that none is shown empty.
        max_relations: the heaviest between kept entities are kept.
        max_communities: the largest are kept. A community of one entity is not drawn as such.
    """
    entities, relations, communities = tables["entities"], tables["relations"], tables["communities"]
    ends = [rows_of(relations[name], entities["entity_id"]) for name in ("source_id", "target_id")]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    degrees = simple_graph(ends[0][known], ends[1][known], entities.num_rows).degrees
    mentions = entities["n_mentions"].to_numpy()
    order = np.lexsort((np.arange(len(degrees)), -mentions, -degrees))
    drawn, parents = _drawn_communities(communities, max_communities)
    owners, members = _memberships(communities, drawn, entities["entity_id"])
    all_homes = np.full(entities.num_rows, -1)
    all_homes[members] = owners  # deeper levels come later, and stay
    kept = _prominent(order, all_homes, max_entities)
    homes = all_homes[kept]
    place = np.full(entities.num_rows + 1, -1)  # the last stands for ends that are not in the index
    place[kept] = np.arange(len(kept))
    prominence = np.empty(entities.num_rows, dtype=np.int64)
    prominence[order] = np.arange(entities.num_rows)
    stand_ins = _stand_in_titles(owners, members, prominence, len(drawn), entities["name"])
    types = _by_count(entities["type"])
    kinds = _by_count(relations["kind"])
    drawn_ends = [place[end] for end in ends]
    return GraphView(
        entities=_entities(entities.take(pa.array(kept)), types)
        | {"degree": degrees[kept].tolist(), "home": homes.tolist()},
        communities=_communities(communities.take(pa.array(drawn)), tables["reports"], stand_ins)
        | {"parent": parents.tolist()},
        relations=_relations(relations, drawn_ends, kinds, max_relations),
        summaries=_summaries(relations, drawn_ends, max_relations),
        types=types,
        kinds=kinds,
        layout=lay_out(homes, parents, _dot_radii(degrees[kept])),
        totals={
            "entities": entities.num_rows,
            "relations": int(np.sum(known & (ends[0] != ends[1]))),
            "communities": communities.num_rows,
        },
    )


def _dot_radii(degrees: IntVector) -> FloatVector:
    return 1.2 + 0.62 * np.sqrt(np.minimum(degrees, 250))


def _by_count(values: pa.ChunkedArray) -> tuple[str, ...]:
    """The distinct values, the most frequent first."""
    pairs = pc.value_counts(values).to_pylist()
    return tuple(pair["values"] for pair in sorted(pairs, key=lambda pair: (-pair["counts"], pair["values"])))


def _drawn_communities(communities: pa.Table, limit: int) -> tuple[IntVector, IntVector]:
    """Rows of the communities to draw, coarsest level first and largest first, and the place of each one's parent."""
    sizes, levels = communities["n_entities"].to_numpy(), communities["level"].to_numpy()
    order = np.lexsort((np.arange(len(sizes)), levels, -sizes))  # a parent is at least as large as its child
    drawn = order[sizes[order] > 1][:limit]
    drawn = drawn[np.lexsort((drawn, -sizes[drawn], levels[drawn]))]
    place = np.full(len(sizes) + 1, -1)
    place[drawn] = np.arange(len(drawn))
    parents = rows_of(pc.fill_null(communities["parent_id"], ""), communities["community_id"])
    return drawn, place[parents[drawn]]


def _memberships(communities: pa.Table, drawn: IntVector, entity_ids: pa.ChunkedArray) -> tuple[IntVector, IntVector]:
    """Pairs of (place among the drawn communities, entity row)."""
    lists = communities["entity_ids"].take(pa.array(drawn)).combine_chunks()
    rows = rows_of(pa.chunked_array([lists.flatten()]), entity_ids)
    owners = np.repeat(np.arange(len(drawn)), lists.value_lengths().to_numpy(zero_copy_only=False))
    return owners[rows >= 0], rows[rows >= 0]


def _prominent(order: IntVector, homes: IntVector, limit: int) -> IntVector:
    """The rows to draw, most prominent first.

    Args:
        order: all rows, most prominent first.
        homes: the deepest drawn community of each entity.
    """
    if len(order) <= limit:
        return order
    n_first = limit * 3 // 5
    rest = order[n_first:]
    by_home = np.argsort(homes[rest], kind="stable")
    sorted_homes = homes[rest][by_home]
    turn = np.empty(len(rest), dtype=np.int64)  # 0 for the most prominent of its community, 1 for the next, …
    turn[by_home] = np.arange(len(rest)) - np.searchsorted(sorted_homes, sorted_homes)
    turn[homes[rest] < 0] = len(rest)
    chosen = np.argsort(turn, kind="stable")[: limit - n_first]
    return np.concatenate([order[:n_first], rest[np.sort(chosen)]])


def _stand_in_titles(
    owners: IntVector, members: IntVector, prominence: IntVector, n_drawn: int, names: pa.ChunkedArray
) -> list[str]:
    """For each drawn community the names of its two most prominent members."""
    order = np.lexsort((prominence[members], owners))
    starts = np.searchsorted(owners[order], np.arange(n_drawn + 1))
    titles = []
    for first, last in pairwise(starts.tolist()):
        pair = [names[row].as_py() for row in members[order[first : min(first + 2, last)]].tolist()]
        titles.append(", ".join(shorten(one_line(name), _NAME_CHARS // 2) for name in pair) + ", …")
    return titles


def _entities(entities: pa.Table, types: Sequence[str]) -> dict[str, Sequence[Any]]:
    numbers = {name: number for number, name in enumerate(types)}
    return {
        "id": entities["entity_id"].to_pylist(),
        "name": [shorten(one_line(name), _NAME_CHARS) for name in entities["name"].to_pylist()],
        "type": [numbers[name] for name in entities["type"].to_pylist()],
        "layer": entities["layer"].to_pylist(),
        "about": shorten_all(entities["description"].to_pylist(), _DESCRIPTION_CHARS, _DESCRIPTION_BYTES),
    }


def _relations(
    relations: pa.Table, ends: list[IntVector], kinds: Sequence[str], limit: int
) -> dict[str, Sequence[Any]]:
    inside = np.flatnonzero((ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1]))
    weights = relations["weight"].to_numpy()
    rows = inside[np.argsort(-weights[inside], kind="stable")[:limit]]
    numbers = {name: number for number, name in enumerate(kinds)}
    chosen = relations.select(["kind", "description"]).take(pa.array(rows))
    return {
        "source": ends[0][rows].tolist(),
        "target": ends[1][rows].tolist(),
        "kind": [numbers[name] for name in chosen["kind"].to_pylist()],
        "weight": [float(f"{weight:.4g}") for weight in weights[rows].tolist()],
        "about": shorten_all(chosen["description"].to_pylist(), _RELATION_CHARS, _RELATION_BYTES),
    }


def _summaries(relations: pa.Table, ends: list[IntVector], limit: int) -> dict[str, Sequence[int]]:
    """The pairs of a member and its summary among the drawn entities, the heaviest at most `limit`."""
    is_summary = pc.equal(relations["kind"], "summary").to_numpy()
    rows = np.flatnonzero(is_summary & (ends[0] >= 0) & (ends[1] >= 0))
    rows = rows[np.argsort(-relations["weight"].to_numpy()[rows], kind="stable")[:limit]]
    return {"member": ends[0][rows].tolist(), "summary": ends[1][rows].tolist()}


def _communities(communities: pa.Table, reports: pa.Table, stand_ins: list[str]) -> dict[str, Sequence[Any]]:
    at = rows_of(communities["community_id"], reports["community_id"])
    names = ["title", "summary", "rating", "findings"]
    known = np.flatnonzero(at >= 0)
    found = reports.select(names).take(pa.array(at[known])).to_pylist()
    sizes = communities["n_entities"].to_pylist()
    titles, summaries = list(stand_ins), [""] * len(sizes)
    ratings: list[float | None] = [None] * len(sizes)
    findings: list[list[list[str]]] = [[] for _ in sizes]
    spent = 0
    by_size = sorted(zip(known.tolist(), found, strict=True), key=lambda pair: (-sizes[pair[0]], pair[0]))
    for place, report in by_size:
        titles[place], ratings[place] = shorten(one_line(report["title"]), _NAME_CHARS), round(report["rating"], 1)
        if spent < 2 * _REPORT_BYTES:
            summaries[place] = shorten(one_line(report["summary"]), 700 if spent < _REPORT_BYTES else 240)
            spent += _n_bytes(summaries[place])
        if spent < _REPORT_BYTES:
            findings[place] = [
                [shorten(one_line(item["summary"]), 140), shorten(one_line(item["explanation"]), 420)]
                for item in report["findings"][:6]
            ]
            spent += sum(_n_bytes(text) for pair in findings[place] for text in pair)
    return {
        "id": communities["community_id"].to_pylist(),
        "title": titles,
        "level": communities["level"].to_pylist(),
        "size": sizes,
        "relations": communities["n_relations"].to_pylist(),
        "rating": ratings,
        "summary": summaries,
        "findings": findings,
    }


def shorten_all(texts: Sequence[str], n_chars: int, max_bytes: int) -> list[str]:
    """Return the texts on one line each, none longer than `n_chars`, together no longer than `max_bytes` of UTF-8.

    Where they are longer together, every text is cut to fewer characters, in the end to none.
    """
    short = [shorten(one_line(text[: 4 * n_chars]), n_chars) for text in texts]
    while n_chars and sum(map(_n_bytes, short)) > max_bytes:
        n_chars = n_chars * 3 // 4 if n_chars > 12 else 0
        short = [shorten(text, n_chars) for text in short] if n_chars else [""] * len(short)
    return short


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8"))
