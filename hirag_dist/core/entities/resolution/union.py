"""Union of candidate pairs into groups, unless two names of a group are known to differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hirag_dist.core.entities.resolution.candidate_pairs import TIERS, CandidatePair
from hirag_dist.core.entities.resolution.entity_features import EntityFeatures
from hirag_dist.core.entities.resolution.name_forms import UNKNOWN
from hirag_dist.core.entities.resolution.negative_rules import known_different

_MAX_MEMBERS = 200  # of two groups that are compared member by member; nothing has so many names


@dataclass(frozen=True, slots=True)
class Alias:
    """A row that is another row's entity: `row` goes to `canonical` because of `pair`.

    Attributes:
        via: the row that `pair` joins it with: the canonical one, or another of the group.
    """

    row: int
    canonical: int
    pair: CandidatePair
    via: int


def group_pairs(
    view: EntityFeatures, pairs: Sequence[CandidatePair], apart: Mapping[tuple[int, int], str]
) -> list[Alias]:
    """Return each row that is merged into another, by row.

    The surest pairs are joined first. A join is refused where a member of one side is known to differ from one of the
    other: by their names, by the families of their types, or by a model. The canonical row of a group is
    its most mentioned one; ties by id.

    Args:
        pairs: that are to be merged.
        apart: (left, right) → reason, of pairs that a model held apart.
    """
    order = sorted(pairs, key=lambda pair: (TIERS.index(pair.tier), -pair.score, pair.left, pair.right))
    members: dict[int, list[int]] = {}
    home: dict[int, int] = {}
    joined: dict[int, list[CandidatePair]] = {}  # by row: the pairs that hold its group together
    direct = {(pair.left, pair.right) for pair in pairs}
    for pair in order:
        one, other = home.get(pair.left, pair.left), home.get(pair.right, pair.right)
        if one == other:
            continue
        left, right = members.get(one, [one]), members.get(other, [other])
        if len(left) * len(right) > _MAX_MEMBERS:
            continue
        if any(_differ(view, a, b, apart, direct) for a in left for b in right):
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
        canonical = view.first(group)[0]
        for row in group:
            if row != canonical:
                pair = _reason(row, canonical, joined)
                aliases.append(Alias(row, canonical, pair, pair.left + pair.right - row))
    return sorted(aliases, key=lambda alias: alias.row)


def _differ(
    view: EntityFeatures, one: int, other: int, apart: Mapping[tuple[int, int], str], direct: set[tuple[int, int]]
) -> bool:
    pair = (min(one, other), max(one, other))
    if pair in direct:
        return False  # proposed and accepted itself: what stands against it was weighed there
    if pair in apart or known_different(view.forms[one], view.forms[other]):
        return True
    families = {view.forms[one].family, view.forms[other].family} - {UNKNOWN}
    return len(families) > 1


def _reason(row: int, canonical: int, joined: Mapping[int, Sequence[CandidatePair]]) -> CandidatePair:
    """Return the pair that best says why a row is in its group: the one with the canonical row, or its surest."""
    own = joined[row]
    return next((pair for pair in own if canonical in (pair.left, pair.right)), own[0])
