"""Clusters of pairs: names are one entity where each two of them can be, so that no chain joins what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from hirag_dist.core.entities.resolution.name_forms import NameForm
from hirag_dist.core.entities.resolution.negative_rules import compatible
from hirag_dist.core.entities.resolution.scores import USER, ScoredPair

_MAX_MEMBERS = 200  # pairs of names of two groups that are compared; nothing has so many names


@dataclass(frozen=True, slots=True)
class Alias:
    """A row that is another row's entity: `row` goes to `canonical` because of `pair`.

    Attributes:
        via: the row that `pair` joins it with: the canonical one, or another of the group.
    """

    row: int
    canonical: int
    pair: ScoredPair
    via: int


def group_pairs(
    forms: Sequence[NameForm], n_mentions: Sequence[int], pairs: Sequence[ScoredPair], apart: Set[tuple[int, int]]
) -> list[Alias]:
    """Return each row that is merged into another, by row.

    The surest pairs are joined first. A join is refused where a name of one side and one of the other cannot be one
    entity's, unless that pair was found itself, or a user joins the names. The canonical row of a group is its most
    mentioned one, the first among equals.

    Args:
        forms: Forms of each row, in an order that does not depend on which names are there.
        n_mentions: Number of mentions of each row.
        pairs: that are to be merged.
        apart: (left, right) of pairs that somebody held apart.
    """
    order = sorted(pairs, key=lambda pair: (pair.tier != USER, -pair.score, pair.left, pair.right))
    members: dict[int, list[int]] = {}
    home: dict[int, int] = {}
    joined: dict[int, list[ScoredPair]] = {}  # by row: the pairs that hold its group together
    direct = {(pair.left, pair.right) for pair in pairs}
    for pair in order:
        one, other = home.get(pair.left, pair.left), home.get(pair.right, pair.right)
        if one == other:
            continue
        left, right = members.get(one, [one]), members.get(other, [other])
        crossed = [(min(a, b), max(a, b)) for a in left for b in right]
        if not apart.isdisjoint(crossed):
            continue
        if pair.tier != USER and (
            len(crossed) > _MAX_MEMBERS
            or not all(each in direct or compatible(forms[each[0]], forms[each[1]]) for each in crossed)
        ):
            continue
        for row in right:
            home[row] = one
        home[one] = one
        members[one] = [*left, *right]
        members.pop(other, None)
        joined.setdefault(pair.left, []).append(pair)
        joined.setdefault(pair.right, []).append(pair)
    aliases = []
    for group in members.values():
        canonical = min(group, key=lambda row: (-n_mentions[row], row))
        for row in group:
            if row != canonical:
                pair = _reason(row, canonical, joined)
                aliases.append(Alias(row, canonical, pair, pair.left + pair.right - row))
    return sorted(aliases, key=lambda alias: alias.row)


def _reason(row: int, canonical: int, joined: Mapping[int, Sequence[ScoredPair]]) -> ScoredPair:
    """Return the pair that best says why a row is in its group: the one with the canonical row, or its surest."""
    own = joined[row]
    return next((pair for pair in own if canonical in (pair.left, pair.right)), own[0])
