"""How sure it is that two names are one entity's: what is alike in them, their context, and rivals.

A rule joins names that have something in common and gives each pair a weight in log odds. The context (descriptions,
neighbours, chunks, types) adds to the weight, and rivals share it. The sum is a probability, from which pairs are
merged or asked about. It depends on the two names, on how many names have the same in common, and on the candidates of
the one that the other explains.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.entities.resolution.name_forms import PERSON, UNKNOWN, tokens_of
from hirag_dist.core.entities.resolution.names import MEANINGFUL, Name, Names, common
from hirag_dist.core.entities.resolution.negative_rules import (
    compatible,
    given_alone,
    is_close,
    known_different,
    same_given_names,
)
from hirag_dist.core.entities.resolution.word_lists import NICKNAMES
from hirag_dist.types import FloatVector, IntVector

USER, NORMALISE, ALIAS, SIMILAR, LLM = "user", "normalise", "alias", "similar", "llm"
TIERS = (USER, NORMALISE, ALIAS, SIMILAR, LLM)
MERGED_FROM = 0.9  # probability
ASKED_FROM = 0.4
_SPELLED = 3.5  # log odds of one spelling
_LEAST = math.log(ASKED_FROM / (1.0 - ASKED_FROM)) - 3.0  # log odds of a rival that counts
_MAX_RIVALS = 8  # a short name that more names could mean means none of them
_MAX_BLOCK = 64  # names that something brings together: what more names have tells nothing
_MAX_DESCRIBED = 12  # names that texts describe in the same words
_LONGEST = 12  # words of a name of which another name can be a part
_YEAR = re.compile(r"\b[12]\d{3}\b")


@dataclass(frozen=True, slots=True)
class ScoredPair:
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


@dataclass(frozen=True)
class _Rule:
    """What two names can have in common.

    Attributes:
        keys: Functions that give the keys of the one name, which is shorter or less clear, and of the other, which may
            explain it. Names with a key in common are compared.
        weigh: (one, other) → log odds of their being one, None if the rule does not hold for them.
        either_way: `weigh` is the same both ways; the one is the name with fewer words.
    """

    tier: str
    reason: str
    keys: tuple[Callable[[Name], Iterable[str]], Callable[[Name], Iterable[str]]]
    weigh: Callable[[Name, Name], float | None]
    either_way: bool = False
    limit: int = _MAX_BLOCK


def scored_pairs(names: Names) -> Iterator[ScoredPair]:
    """Yield the pairs of names that are at least as likely as `ASKED_FROM` one entity, by left and right row."""
    rules = _rules(names)
    one, other, rule, weight = _alike(names.rows, rules)
    context = _Context(names, one, other, np.array([each.tier == ALIAS for each in rules])[rule], weight)
    weight = weight + context.weights
    likely = [
        at
        for at in np.flatnonzero(weight >= _LEAST).tolist()
        if not known_different(names.rows[one[at]].form, names.rows[other[at]].form)
    ]
    explained: dict[tuple[int, int], list[int]] = {}
    for at in likely:
        explained.setdefault((int(one[at]), int(rule[at])), []).append(at)
    for at in likely:
        form = names.rows[other[at]].form
        rivals = [
            float(weight[each])
            for each in explained[int(one[at]), int(rule[at])]
            if rules[rule[at]].tier == ALIAS and each != at and not compatible(form, names.rows[other[each]].form)
        ]
        share = 1.0 / (1.0 + sum(math.exp(min(rival - weight[at], 50.0)) for rival in sorted(rivals)))
        score = round(share / (1.0 + math.exp(-weight[at])), 3)
        if score >= ASKED_FROM and len(rivals) <= _MAX_RIVALS:
            left, right = sorted((int(one[at]), int(other[at])))
            evidence = "; ".join(filter(None, (rules[rule[at]].reason, context.reasons(at))))
            yield ScoredPair(left, right, rules[rule[at]].tier, score, evidence)


def _alike(names: list[Name], rules: list[_Rule]) -> tuple[IntVector, IntVector, IntVector, FloatVector]:
    """Return the pairs that rules find, each once with the largest weight: one, other, rule, weight."""
    found = []
    for number, rule in enumerate(rules):
        for one, other in zip(*(rows.tolist() for rows in _joined(names, rule)), strict=True):
            if rule.either_way and (len(names[one].form.words), one) > (len(names[other].form.words), other):
                continue
            weight = None if one == other else rule.weigh(names[one], names[other])
            if weight is not None:
                found.append((one, other, number, weight))
    table = np.array(found, np.float64).reshape(-1, 4)
    rows, weights = table[:, :3].astype(np.int64), table[:, 3]
    left, right = rows[:, :2].min(axis=1), rows[:, :2].max(axis=1)
    order = np.lexsort((rows[:, 0], rows[:, 2], -weights, right, left))
    pairs = left[order] * len(names) + right[order]
    best = order[np.flatnonzero(np.diff(pairs, prepend=-1))]
    return rows[best, 0], rows[best, 1], rows[best, 2], weights[best]


def _joined(names: list[Name], rule: _Rule) -> tuple[IntVector, IntVector]:
    """Return the rows of the ones and of the others that share a key, which at most `limit` others have."""
    keys = [[tuple(keys_of(name)) for name in names] for keys_of in dict.fromkeys(rule.keys)]
    keys = [keys[0], keys[-1]]
    one, other = (np.repeat(np.arange(len(names)), [len(own) for own in side]) for side in keys)
    flat = pa.array(chain.from_iterable(chain(*keys)), pa.string()).dictionary_encode().indices.to_numpy()
    left, right = np.split(flat, [len(one)])
    order = np.argsort(right, kind="stable")
    starts = np.searchsorted(right, left, sorter=order)
    counts = np.searchsorted(right, left, side="right", sorter=order) - starts
    counts[counts > rule.limit] = 0
    first = np.repeat(np.arange(len(left)), counts)
    second = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(len(first))
    return one[first], other[order[second]]


def _rules(names: Names) -> list[_Rule]:
    """Return the rules; of two with the same weight the first counts."""
    spread = Counter(word for name in names.rows for word in name.form.meaningful)
    starts, lines = names.lines.indptr.tolist(), list(map(str, names.lines.indices.tolist()))

    def part(name: Name) -> list[str]:
        return [" ".join(sorted(sorted(name.form.meaningful, key=lambda word: (spread[word], word))[:2]))]

    def described(name: Name) -> list[str]:
        return lines[starts[name.row] : starts[name.row + 1]]

    def spelled(name: Name) -> list[str]:
        return [name.form.text] if name.form.text else []

    def capitals(name: Name) -> list[str]:
        return [name.form.acronym.casefold()] if name.form.acronym else []

    return [
        _Rule(NORMALISE, "spelling", (spelled, spelled), _spelling, True),
        _Rule(NORMALISE, "spelling, but for spaces or order", (_unordered, _unordered), _order, True),
        _Rule(SIMILAR, "spelled alike", (described, described), _spelled_alike, True, _MAX_DESCRIBED),
        _Rule(SIMILAR, "years of a life", (described, described), _one_life, True, _MAX_DESCRIBED),
        _Rule(SIMILAR, "", (described, described), lambda *_: -3.5, True, _MAX_DESCRIBED),
        _Rule(ALIAS, "the acronym stands in the name", (capitals, capitals), _acronym),
        _Rule(ALIAS, "initials", (capitals, lambda name: name.form.initials), _initials),
        _Rule(
            ALIAS,
            "in parentheses",
            (spelled, lambda name: [name.form.aside] if name.form.aside else []),
            lambda *_: -2.0,
        ),
        _Rule(
            ALIAS,
            "stands in the description",
            (lambda name: {name.form.text, name.form.acronym} - {""}, lambda name: name.stated),
            lambda short, long: max(
                long.stated[text] for text in {short.form.text, short.form.acronym} & long.stated.keys()
            ),
        ),
        _Rule(ALIAS, "surname", (lambda name: _person(name)[:1], lambda name: _person(name)[-1:]), _surname),
        _Rule(ALIAS, "first name", (lambda name: _person(name)[:1], lambda name: _person(name)[:1]), _first_name),
        _Rule(ALIAS, "given names agree", (_namesakes, _namesakes), _given_names, True),
        _Rule(ALIAS, "part of the name", (part, _parts), _part),
    ]


def _spelling(one: Name, other: Name) -> float | None:
    """Names of one form."""
    mine, yours, doubt = one.form, other.form, 0.0
    if mine.legal and yours.legal and mine.legal != yours.legal:
        doubt += 2.0
    if mine.plural != yours.plural:
        doubt += 2.5 if len(mine.words) == 1 else 0.8
    if mine.aside != yours.aside:
        told = set(tokens_of((other if mine.aside else one).description))
        doubt += 1.5 if set((mine.aside or yours.aside).split()) <= told else 3.0
    if mine.title and yours.title and mine.title != yours.title:
        doubt += 2.5
    return _SPELLED - doubt


def _unordered(name: Name) -> frozenset[str]:
    return name.form.unordered


def _order(one: Name, other: Name) -> float | None:
    return 3.0 if one.form.text != other.form.text else None


def _acronym(short: Name, long: Name) -> float | None:
    """A name in capitals, and a name with these in parentheses."""
    return 4.0 if len(short.form.words) == 1 < len(long.form.words) else None


def _initials(short: Name, long: Name) -> float | None:
    if len(short.form.words) != 1 or len(long.form.words) < 2:
        return None
    return 0.5 if len(short.form.acronym) > 2 else -1.0


def _person(name: Name) -> tuple[str, ...]:
    """Return a person's words without titles, none for names of other things and of several people."""
    form = name.form
    return () if form.family != PERSON or form.possessive or "and" in form.words or form.aside else form.given


def _surname(short: Name, long: Name) -> float | None:
    mine = short.form.given
    if len(mine) != 1 or len(mine[0]) < 3 or len(long.form.given) < 2:
        return None
    return 0.8 if short.form.words == mine and not short.form.title else -1.0


def _first_name(short: Name, long: Name) -> float | None:
    return None if _surname(short, long) is None else -0.8


def _namesakes(name: Name) -> set[str]:
    """Return keys of a surname and a given name's first letters."""
    words = _person(name)
    if len(words) < 2 or words[-1].isdigit():
        return set()
    first = NICKNAMES.get(words[0], words[0])
    return {f"{words[-1]} {first[:3]}", f"{words[-1]} {first[0]}"}


def _given_names(short: Name, long: Name) -> float | None:
    mine, yours = short.form.given, long.form.given
    if mine == yours:
        return 1.0 if short.form.words != long.form.words else None
    if not same_given_names(mine, yours):
        return None
    return 1.2 if len(given_alone(mine)) == len(given_alone(yours)) else 0.2


def _parts(name: Name) -> list[str]:
    """Return a name's words and pairs of words: one of them is the key of a name whose words are all there."""
    words = sorted(name.form.meaningful)[:_LONGEST]
    return [*words, *map(" ".join, combinations(words, 2))]


def _part(short: Name, long: Name) -> float | None:
    """All words of a name are another name's; those of people have rules of their own."""
    words, is_person = short.form.meaningful, short.form.family == PERSON
    if not words < long.form.meaningful or (is_person and len(words) < 2):
        return None
    return -0.5 if is_person else -2.0


def _spelled_alike(one: Name, other: Name) -> float | None:
    words = one.form.words, other.form.words
    return -1.2 if len(words[0]) == len(words[1]) and all(map(is_close, *words)) else None


def _one_life(one: Name, other: Name) -> float | None:
    """People of one description with two years in it, as of birth and death, are one whatever they are called."""
    if not one.form.family == other.form.family == PERSON:
        return None
    lines = {line.strip(" .") for line in one.description.lower().split("\n")}
    shared = lines & {line.strip(" .") for line in other.description.lower().split("\n")}
    return -1.5 if any(len(set(_YEAR.findall(line))) > 1 for line in shared) else None


class _Context:
    """What the context of pairs adds to the log odds of their being one entity, and why."""

    def __init__(
        self, names: Names, one: IntVector, other: IntVector, is_alias: NDArray[np.bool_], likeness: FloatVector
    ) -> None:
        """Compare descriptions, neighbours, chunks and types of the ends of pairs."""
        self._families = [name.form.family for name in names.rows]
        self._ends = one, other
        family_of = np.array(self._families, object)
        known = (family_of[one] != UNKNOWN) & (family_of[other] != UNKNOWN)
        self.weights = np.where(known & (family_of[one] != family_of[other]), -3.5, 0.0)
        # A text that spells two names slightly differently has two things in mind: Laon and Lyon.
        self._together = common(names.chunks, one, other) > 0
        self.weights += self._together * np.where(is_alias | (likeness >= _SPELLED), 0.4, -1.0)
        # One text says the same of all names in a list.
        self._lines = np.sqrt(common(names.lines, one, other))
        self.weights += np.where(self._together, 0.5 * (self._lines > 0), np.minimum(1.1 * self._lines, 4.5))
        told = names.told.sum(axis=1)
        few = np.minimum(told[one], told[other])
        self._share = np.where((few >= MEANINGFUL) & (self._lines == 0), common(names.told, one, other) / (few + 2), -1)
        self.weights += np.where(self._share >= 0, 3.0 * (self._share - 0.25), 0.0)
        edges = names.neighbours.tocoo()
        self._related = np.isin(one * len(names.rows) + other, edges.row * len(names.rows) + edges.col)
        self._shared = common((names.neighbours != 0).astype(np.float64), one, other)
        self.weights += -1.5 * self._related + np.array([0.0, 1.2, 1.8])[np.minimum(self._shared, 2).astype(int)]
        self._described = np.zeros(len(one))
        for at in np.flatnonzero(is_alias).tolist():
            self._described[at] = _described_by(names.rows[one[at]], names.rows[other[at]])
        self.weights += self._described

    def reasons(self, at: int) -> str:
        """Return the reasons for the weight of a pair."""
        families = sorted({self._families[end[at]] for end in self._ends} - {UNKNOWN})
        shared = int(self._shared[at])
        found = {
            f"types {' and '.join(families)}": len(families) > 1,
            "in one chunk": self._together[at],
            "one description": self._lines[at] > 0,
            f"{self._share[at]:.0%} of the descriptions' words in common": self._share[at] >= 0,
            "related to each other": self._related[at],
            f"{shared} neighbour{'s' if shared > 1 else ''} in common": shared,
            "described by the other name": self._described[at] > 0,
        }
        return ", ".join(reason for reason, holds in found.items() if holds)


def _described_by(short: Name, long: Name) -> float:
    text, name = short.description.casefold(), long.text.casefold()
    if text.startswith(name) and not text[len(name) :].startswith(("'", "’")):  # "John Adams's son" is another
        return 2.5
    return -1.0 if name in text and short.form.family == PERSON else 0.0
