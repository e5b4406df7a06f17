"""Clusters of pairs: names are one entity where each two of them can be, so that no chain joins what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from hirag_dist.core.entities.resolution.name_forms import NameForm, compatible
from hirag_dist.core.entities.resolution.scores import USER, ScoredPair

_MAX_COMPARED = 200  # pairs of names of two groups: nothing has so many names


class Alias(NamedTuple):
    """A row that is another row's entity, because of a pair with that row or another of its group."""

    row: int
    canonical: int
    pair: ScoredPair


def group_pairs(
    forms: Sequence[NameForm], n_mentions: Sequence[int], pairs: Sequence[ScoredPair], apart: Set[tuple[int, int]]
) -> Iterator[Alias]:
    """Yield each row that is merged into another, by row.

    The surest pairs are joined first. A join is refused where a name of one side and one of the other cannot be one
    entity's, unless that pair was found itself, or a user joins the names. The canonical row of a group is its most
    mentioned one, the first among equals.

    Args:
        forms: Forms of each row, in an order that does not depend on which names are there.
        apart: (left, right) of pairs that somebody held apart.
    """
    direct = {(pair.left, pair.right) for pair in pairs}
    groups = {row: [row] for ends in direct for row in ends}
    joined: dict[int, list[ScoredPair]] = defaultdict(list)  # by row: the pairs that hold its group together
    for pair in sorted(pairs, key=lambda pair: (pair.tier != USER, -pair.score, pair.left, pair.right)):
        one, other = groups[pair.left], groups[pair.right]
        if one is other:
            continue
        crossed = {(min(left, right), max(left, right)) for left in one for right in other}
        if not crossed.isdisjoint(apart):
            continue
        if pair.tier != USER and (
            len(crossed) > _MAX_COMPARED
            or not all(compatible(forms[left], forms[right]) for left, right in crossed - direct)
        ):
            continue
        one += other
        groups |= dict.fromkeys(other, one)
        joined[pair.left].append(pair)
        joined[pair.right].append(pair)
    for row, group in sorted(groups.items()):
        canonical = min(group, key=lambda row: (-n_mentions[row], row))
        if row != canonical:
            pair = min(joined[row], key=lambda pair: canonical not in (pair.left, pair.right))
            yield Alias(row, canonical, pair)
