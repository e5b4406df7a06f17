"""How sure it is that two names are one entity's: what is alike in them, their context, and rivals.

A rule joins names that have something in common and gives each pair a weight in log odds. The context (descriptions,
neighbours, chunks, types) adds to the weight, and rivals share it. The sum is a probability, from which pairs are
merged or asked about. It depends on the two names, on how many names have the same in common, and on the candidates of
the one that the other explains.

Pairs make groups: names are one entity where each two of them can be, so that no chain joins what differs.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.entities.resolution.name_forms import (
    PERSON,
    UNKNOWN,
    NameForm,
    compatible,
    is_close,
    known_different,
    same_given_names,
    tokens_of,
)
from hirag_dist.core.entities.resolution.names import MEANINGFUL, Name, Names, common, sets
from hirag_dist.types import FloatVector, IntVector

USER, NORMALISE, ALIAS, SIMILAR, LLM = "user", "normalise", "alias", "similar", "llm"
TIERS = (USER, NORMALISE, ALIAS, SIMILAR, LLM)
MERGED_FROM = 0.9  # probability
ASKED_FROM = 0.4
_SPELLED = 3.5  # log odds of one spelling
_LEAST = math.log(ASKED_FROM / (1.0 - ASKED_FROM)) - 3.0  # log odds of a rival that counts
_MAX_BLOCK = 64  # names that something brings together: what more names have tells nothing
_MAX_COMPARED = 200  # pairs of names of two groups: nothing has so many names
_YEAR = re.compile(r"\b[12]\d{3}\b")
_Keys = Callable[[Name], Iterable[str]]


class ScoredPair(NamedTuple):
    """Two rows that may be one entity.

    Attributes:
        left, right: rows, left < right.
        tier: the kind of evidence, one of `TIERS`.
        score: probability that they are one.
        evidence: Reasons, for people.
    """

    left: int
    right: int
    tier: str
    score: float
    evidence: str


class _Rule(NamedTuple):
    """What two names can have in common: a key. Names with a key in common are compared.

    Attributes:
        weigh: (one, other) → log odds of their being one, None if the rule does not hold for them.
        keys: Keys of the one name, which is shorter or less clear.
        others: keys of the other, which may explain it. None: the same, and the one is the name with fewer words.
    """

    tier: str
    reason: str
    weigh: Callable[[Name, Name], float | None]
    keys: _Keys
    others: _Keys | None = None


def scored_pairs(names: Names) -> Iterator[ScoredPair]:
    """Yield the pairs of names that are at least as likely as `ASKED_FROM` one entity, by left and right row."""
    rules, forms = _rules(names), [name.form for name in names.rows]
    one, other, rule, likeness = _alike(names.rows, rules)
    is_alias = np.array([each.tier == ALIAS for each in rules])[rule]
    weight, reasons = _in_context(names, one, other, is_alias, likeness)
    likely = [at for at in np.flatnonzero(weight >= _LEAST) if not known_different(forms[one[at]], forms[other[at]])]
    explained = defaultdict(list)
    for at in likely:
        explained[one[at], rule[at]].append(at)
    for at in likely:
        candidates = explained[one[at], rule[at]] if is_alias[at] else []
        rivals = [weight[each] for each in candidates if not compatible(forms[other[at]], forms[other[each]])]
        share = 1.0 / (1.0 + sum(math.exp(min(rival - weight[at], 50.0)) for rival in sorted(rivals)))
        score = round(float(share / (1.0 + math.exp(-weight[at]))), 3)
        if score >= ASKED_FROM:
            left, right = sorted((int(one[at]), int(other[at])))
            evidence = "; ".join(filter(None, (rules[rule[at]].reason, reasons(int(at)))))
            yield ScoredPair(left, right, rules[rule[at]].tier, score, evidence)


def _alike(names: list[Name], rules: list[_Rule]) -> tuple[IntVector, IntVector, IntVector, FloatVector]:
    """Return the pairs that rules find, each once with the largest weight: one, other, rule, weight."""
    best: dict[tuple[int, int], tuple[float, int, int, int]] = {}
    for number, rule in enumerate(rules):
        for one, other in _joined(names, rule):
            if rule.others is None and (len(names[one].form.words), one) > (len(names[other].form.words), other):
                continue
            weight = None if one == other else rule.weigh(names[one], names[other])
            if weight is not None:
                pair, ends = (weight, -number, -one, other), (min(one, other), max(one, other))
                best[ends] = max(pair, best.get(ends, pair))
    table = np.array([best[ends] for ends in sorted(best)], np.float64).reshape(-1, 4)
    number, one, other = np.abs(table[:, 1:]).astype(np.int64).T
    return one, other, number, table[:, 0]


def _joined(names: list[Name], rule: _Rule) -> Iterator[tuple[int, int]]:
    """Return the rows of each one and other that share a key, which at most `_MAX_BLOCK` others have."""
    sides = [rule.keys, rule.others] if rule.others else [rule.keys]
    found, _ = sets(pa.array([list(keys_of(name)) for keys_of in sides for name in names], pa.list_(pa.string())))
    one, other = found[: len(names)], found[-len(names) :]
    rare = other.sum(axis=0) <= _MAX_BLOCK
    return zip(*(rows.tolist() for rows in (one[:, rare] @ other[:, rare].T).nonzero()), strict=True)


def _rules(names: Names) -> list[_Rule]:
    """Return the rules; of two with the same weight the first counts."""
    spread = Counter(word for name in names.rows for word in name.form.meaningful)
    starts, lines = names.lines.indptr.tolist(), list(map(str, names.lines.indices.tolist()))

    def rarest(name: Name) -> list[str]:
        words = name.form.meaningful if len(name.form.person) != 1 else name.form.person
        return [" ".join(sorted(sorted(words, key=lambda word: (spread[word], word))[:2]))]

    def described(name: Name) -> list[str]:
        return lines[starts[name.row] : starts[name.row + 1]]

    return [
        _Rule(NORMALISE, "spelling", _spelling, lambda name: name.form.spellings),
        _Rule(SIMILAR, "", _described_alike, described),
        _Rule(ALIAS, "stated", _stated, lambda name: name.form.called, lambda name: name.stated),
        _Rule(ALIAS, "initials", _acronym, lambda name: name.form.called, lambda name: name.form.initials),
        _Rule(ALIAS, "given names agree", _given_names, lambda name: name.form.namesakes),
        _Rule(ALIAS, "part of the name", _part, rarest, lambda name: name.form.parts),
    ]


def _spelling(one: Name, other: Name) -> float:
    """Return the weight of names that differ in spaces, order, or what their forms forget."""
    mine, yours, doubt = one.form, other.form, 0.0 if one.form.text == other.form.text else 0.5
    if mine.addition and yours.addition and mine.addition != yours.addition:
        doubt += 2.5
    if mine.plural != yours.plural:
        doubt += 2.5 if len(mine.words) == 1 else 0.8
    if mine.aside != yours.aside:
        bare = other if mine.aside else one
        missing = set((mine.aside or yours.aside).split()) - set(bare.form.words)
        doubt += 0.0 if not missing else 1.5 if missing <= set(tokens_of(bare.description)) else 3.0
    return _SPELLED - doubt


def _described_alike(one: Name, other: Name) -> float:
    """Return the weight of a description in common, with words spelled alike or with two years, as of one life."""
    words = one.form.words, other.form.words
    if len(words[0]) == len(words[1]) and all(map(is_close, *words)):
        return -1.2
    lines = one.description.split("\n") if one.form.family == other.form.family == PERSON else []
    is_life = any(len(set(_YEAR.findall(line))) > 1 and line in other.description for line in lines)
    return -1.5 if is_life else -3.5


def _stated(short: Name, long: Name) -> float:
    return max(long.stated[text] for text in short.form.called & long.stated.keys())


def _acronym(short: Name, _: Name) -> float:
    return 0.5 if len(short.form.acronym) > 2 else -1.0


def _given_names(short: Name, long: Name) -> float | None:
    mine, yours = short.form.given, long.form.given
    weight = 1.2 if len(mine) == len(yours) else 0.2
    return weight if same_given_names(mine, yours) else None


def _part(short: Name, long: Name) -> float | None:
    """Return the weight of a name whose words are all another name's, such as a surname or first name alone."""
    name, full = short.form.person, long.form.person
    if len(name) == 1 and len(full) > 1 and len(name[0]) > 2 and name[0] in (full[0], full[-1]):
        is_alone = short.form.words == name and not short.form.addition
        return -0.8 if name[0] != full[-1] else 0.8 if is_alone else -1.0
    words = short.form.meaningful
    if not words < long.form.meaningful or (short.form.family == PERSON and len(words) < 2):
        return None
    return -0.5 if short.form.family == PERSON else -2.0


def _in_context(
    names: Names, one: IntVector, other: IntVector, is_alias: NDArray[np.bool_], likeness: FloatVector
) -> tuple[FloatVector, Callable[[int], str]]:
    """Return the log odds of pairs' being one entity, their likeness with the context, and the reasons of a pair."""
    families = np.array([name.form.family for name in names.rows], object)
    unlike = (families[one] != families[other]) & (families[one] != UNKNOWN) & (families[other] != UNKNOWN)
    together = common(names.chunks, one, other) > 0
    lines = np.sqrt(common(names.lines, one, other))
    told = names.told.sum(axis=1)
    few = np.minimum(told[one], told[other])
    is_told = (few >= MEANINGFUL) & (lines == 0)
    share = common(names.told, one, other) / (few + 2)
    related = names.neighbours[one, other] != 0
    shared = common((names.neighbours != 0).astype(np.float64), one, other)
    described = np.zeros(len(one))
    for at in np.flatnonzero(is_alias):
        described[at] = _described_by(names.rows[one[at]], names.rows[other[at]])
    # A text that spells two names slightly differently has two things in mind, Laon and Lyon, and it says the same of
    # all names in a list.
    in_chunk = np.where(is_alias | (likeness >= _SPELLED), 0.4, -1.0) + 0.5 * (lines > 0)
    weights = np.where(together, in_chunk, np.minimum(1.1 * lines, 4.5)) + is_told * 3.0 * (share - 0.25)
    weights += np.minimum(1.2 * shared, 1.8) - 1.5 * related - 3.5 * unlike + described

    def reasons(at: int) -> str:
        found = {
            f"types {' and '.join(sorted({families[one[at]], families[other[at]]}))}": unlike[at],
            "in one chunk": together[at],
            "one description": lines[at] > 0,
            f"{share[at]:.0%} of the descriptions' words in common": is_told[at],
            "related to each other": related[at],
            f"{shared[at]:.0f} neighbour{'s' if shared[at] > 1 else ''} in common": shared[at],
            "described by the other name": described[at] > 0,
        }
        return ", ".join(reason for reason, holds in found.items() if holds)

    return likeness + weights, reasons


def _described_by(short: Name, long: Name) -> float:
    text, name = short.description.casefold(), long.text.casefold()
    if text.startswith(name) and not text.removeprefix(name).startswith(("'", "’")):  # "John Adams's son" is another
        return 2.5
    return -1.0 if name in text and short.form.family == PERSON else 0.0


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
