"""How sure it is that two names are one entity's: what is alike in them, their context, and rivals.

What is alike in two names is a kind of evidence with a weight in log odds; the context (descriptions, neighbours,
chunks, types) adds to it, and rivals share it. The sum is a probability, from which pairs are merged or asked about.
It depends on the two names and on the candidates of the one that the other explains, never on the names' order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.merging import merge_groups
from hirag_dist.core.entities.resolution.blocks import KNOWN_AS, SHORT, Mask
from hirag_dist.core.entities.resolution.name_forms import (
    PERSON,
    UNKNOWN,
    NameForm,
    is_acronym_of,
    name_form,
    tokens_of,
)
from hirag_dist.core.entities.resolution.negative_rules import (
    compatible,
    given_alone,
    is_close,
    known_different,
    same_given_names,
)
from hirag_dist.core.entities.resolution.word_lists import SMALL_WORDS
from hirag_dist.types import IntVector

USER, NORMALISE, ALIAS, SIMILAR, LLM = "user", "normalise", "alias", "similar", "llm"
TIERS = (USER, NORMALISE, ALIAS, SIMILAR, LLM)
MERGED_FROM = 0.9  # probability
ASKED_FROM = 0.4
_SPELLED = 3.5  # log odds of one spelling
_LEAST = math.log(ASKED_FROM / (1.0 - ASKED_FROM)) - 3.0  # log odds of a rival that counts
_MAX_RIVALS = 8  # a short name that more names could mean means none of them
_LONGEST = 9  # words of a long form
_FEW = 3  # meaningful words of a description that says something
_YEAR = re.compile(r"\b[12]\d{3}\b")
_WORD = re.compile(r"[\w&]+")
_KNOWN_AS, _SHORT = (re.compile(pattern.replace(r"\p{L}", r"[^\W\d_]")) for pattern in (KNOWN_AS, SHORT))


@dataclass(frozen=True)
class Name:
    """A name before it is resolved, as all its mentions have it.

    Attributes:
        text: the most frequent form.
        description: the distinct ones, one a line.
    """

    key: str
    text: str
    type: str
    description: str
    n_mentions: int
    chunks: frozenset[str]

    @cached_property
    def form(self) -> NameForm:
        """The name as it is compared."""
        return name_form(self.text, self.type)

    @cached_property
    def told(self) -> frozenset[str]:
        """The meaningful words of its description, without its own."""
        return frozenset(_WORD.findall(self.description.casefold())) - SMALL_WORDS - set(self.form.words)

    @cached_property
    def lines(self) -> dict[str, int]:
        """The lines of its description that say something, with the number of meaningful words in each."""
        lines = (line.strip(" .") for line in self.description.lower().split("\n"))
        return {line: n for line in lines if (n := len(set(line.split()) - SMALL_WORDS)) >= _FEW}

    @cached_property
    def stated(self) -> dict[str, float]:
        """What its description calls it, with weights: "also known as the Bard", "Long Form (LF)"."""
        found = {name_form(each.group("text"), self.type).text: 1.5 for each in _KNOWN_AS.finditer(self.description)}
        for match in _SHORT.finditer(self.description):
            short = match.group("text").rstrip(".-")
            for word in [*_WORD.finditer(self.description, 0, match.start())][-_LONGEST:]:
                long = self.description[word.start() : match.start()].strip()
                if is_acronym_of(short, long):
                    text = name_form(long, self.type).text
                    found |= (
                        {text: 3.5} if self.form.acronym == short else {short: 3.5} if self.form.text == text else {}
                    )
        return found


class Names:
    """The names of a graph by row, read from mentions where they are asked for."""

    def __init__(self, keys: pa.Array, rows: IntVector, mentions: pa.Table, relation_mentions: pa.Table) -> None:
        """Read the tables.

        Args:
            keys: (n_names,) distinct name keys, ascending.
            rows: (n_mentions,) the name of each mention.
            mentions: MENTIONS, in any order.
            relation_mentions: RELATION_MENTIONS, in any order.
        """
        self._keys, self._rows, self._mentions = keys, rows, mentions
        ends = [pc.index_in(relation_mentions[name], value_set=keys) for name in ("source_key", "target_key")]
        source, target = (end.to_numpy().astype(np.int64) for end in ends)
        self._strengths = np.tile(relation_mentions["strength"].to_numpy(), 2)
        sources, self._targets = np.concatenate([source, target]), np.concatenate([target, source])
        self._by_source = np.argsort(sources, kind="stable")
        self._starts = np.searchsorted(sources[self._by_source], np.arange(len(keys) + 1))
        self._names: dict[int, Name] = {}

    def __getitem__(self, row: int) -> Name:
        return self._names[row]

    def load(self, rows: IntVector) -> None:
        """Read names that were not read before."""
        wanted = np.zeros(len(self._keys), bool)
        wanted[rows] = True
        wanted[list(self._names)] = False
        new = np.flatnonzero(wanted)
        places = np.cumsum(wanted) - 1
        picked = np.flatnonzero(wanted[self._rows])
        own = merge_groups(self._mentions.take(picked), places[self._rows[picked]], self._keys.take(new).to_pylist())
        for row, said in zip(new.tolist(), own.to_pylist(), strict=True):
            chunks = frozenset(said["chunk_ids"])
            told = said["name"], said["type"], said["description"]
            self._names[row] = Name(said["entity_id"], *told, said["n_mentions"], chunks)

    def neighbours(self, row: int) -> set[int]:
        """Return the names that a relation joins to a name."""
        return set(self._targets[self._by_source[self._starts[row] : self._starts[row + 1]]].tolist())

    def nearest(self, row: int, n: int) -> list[str]:
        """Return the keys of the most strongly related names."""
        found = self._by_source[self._starts[row] : self._starts[row + 1]]
        near, place = np.unique(self._targets[found], return_inverse=True)
        order = np.lexsort((near, -np.bincount(place, self._strengths[found]))) if len(near) else near
        return list(self._keys.take(near[order[:n]]).to_pylist())


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


@dataclass(frozen=True, slots=True)
class _Likeness:
    """Likeness of two names: `one` is the shorter or less clear, which `other` may explain; `weight` in log odds."""

    one: int
    other: int
    tier: str
    weight: float
    reason: str


class PairScores:
    """Scores of candidate pairs, computed where they are asked for."""

    def __init__(self, names: Names, pairs: IntVector, n_names: int) -> None:
        """Take candidates.

        Args:
            names: the names.
            pairs: (n_pairs,) left · n_names + right, ascending.
            n_names: number of rows.
        """
        self._names = names
        self._left, self._right = np.divmod(pairs, max(n_names, 1))
        self._judged = np.zeros(len(pairs), bool)
        self._odds: dict[int, tuple[_Likeness, float, str]] = {}
        self._explained: dict[tuple[int, str], list[int]] = {}

    def of(self, rows: Mask) -> Iterator[ScoredPair]:
        """Yield the pairs with an end in some rows that are at least as likely as `ASKED_FROM` one entity.

        Args:
            rows: (n_names,) mask.
        """
        pairs = np.flatnonzero(rows[self._left] | rows[self._right])
        self._judge(pairs)
        odds = [(pair, *self._odds[pair]) for pair in pairs.tolist() if pair in self._odds]
        explained = rows.copy()
        explained[[likeness.one for _, likeness, *_ in odds if likeness.tier == ALIAS]] = True
        self._judge(np.flatnonzero(explained[self._left] | explained[self._right]))  # the rivals
        for pair, likeness, weight, reason in odds:
            rivals = self._rivals(pair, likeness)
            share = 1.0 / (1.0 + sum(math.exp(min(rival - weight, 50.0)) for rival in rivals))
            score = round(share / (1.0 + math.exp(-weight)), 3)
            if score >= ASKED_FROM and len(rivals) <= _MAX_RIVALS:
                reasons = "; ".join(filter(None, (likeness.reason, reason)))
                yield ScoredPair(int(self._left[pair]), int(self._right[pair]), likeness.tier, score, reasons)

    def _rivals(self, pair: int, likeness: _Likeness) -> list[float]:
        """Return the log odds of what else a name could be short for in the same way."""
        if likeness.tier != ALIAS:
            return []
        form, found = self._names[likeness.other].form, []
        for each in self._explained[likeness.one, likeness.reason]:
            own, weight, _ = self._odds[each]
            if each != pair and not compatible(form, self._names[own.other].form):
                found.append(weight)
        return sorted(found)

    def _judge(self, pairs: IntVector) -> None:
        pairs = pairs[~self._judged[pairs]]
        self._judged[pairs] = True
        self._names.load(np.concatenate([self._left[pairs], self._right[pairs]]))
        ends = zip(pairs.tolist(), self._left[pairs].tolist(), self._right[pairs].tolist(), strict=True)
        for pair, left, right in ends:
            likeness = _likeness(self._names, left, right)
            if likeness is None or known_different(self._names[left].form, self._names[right].form):
                continue
            weight, reason = _context(self._names, likeness)
            if weight + likeness.weight >= _LEAST:
                self._odds[pair] = likeness, weight + likeness.weight, reason
                self._explained.setdefault((likeness.one, likeness.reason), []).append(pair)


def _likeness(names: Names, left: int, right: int) -> _Likeness | None:
    """Return what is most alike in two names."""
    found = [*_spelling(names, left, right), *_description(names, left, right)]
    for one, other in ((left, right), (right, left)):
        short, long = names[one], names[other]
        for rule in (_acronym, _stated, _person, _part):
            found += [_Likeness(one, other, ALIAS, *why) for why in rule(short, long)]
    return max(found, key=lambda likeness: likeness.weight, default=None)


def _spelling(names: Names, left: int, right: int) -> Iterator[_Likeness]:
    """Names of one form, or of one but for the spaces in it or the order of its words."""
    one, other = names[left].form, names[right].form
    if one.text == other.text and one.text:
        doubt = 0.0
        if one.legal and other.legal and one.legal != other.legal:
            doubt += 2.0
        if one.plural != other.plural:
            doubt += 2.5 if len(one.words) == 1 else 0.8
        if one.aside != other.aside:
            told = names[right if one.aside else left].description
            doubt += 1.5 if set((one.aside or other.aside).split()) <= set(tokens_of(told)) else 3.0
        if one.title and other.title and one.title != other.title:
            doubt += 2.5
        yield _Likeness(left, right, NORMALISE, _SPELLED - doubt, "spelling")
    if one.text != other.text and one.unordered & other.unordered:
        yield _Likeness(left, right, NORMALISE, 3.0, "spelling, but for spaces or order")


def _acronym(short: Name, long: Name) -> Iterator[tuple[float, str]]:
    """A name in capitals and the name that it is short for: stated in parentheses, or by its words' initials."""
    letters = short.form.acronym.casefold()
    if letters and len(short.form.words) == 1 and len(long.form.words) > 1:
        if long.form.acronym.casefold() == letters:
            yield 4.0, f"{long.form.acronym} stands in the name"
        if letters in long.form.initials:
            yield (0.5 if len(letters) > 2 else -1.0), f"{letters.upper()} are the initials"


def _stated(short: Name, long: Name) -> Iterator[tuple[float, str]]:
    """Names that a description or a name states: "World Health Organization (WHO)", "also known as the Bard"."""
    if short.form.text and short.form.text == long.form.aside:
        yield -2.0, "in parentheses"
    for text in {short.form.text, short.form.acronym} & long.stated.keys():
        yield long.stated[text], f"“{short.text}” stands in the description"


def _person(short: Name, long: Name) -> Iterator[tuple[float, str]]:
    """A surname and a full name, initials and the names that they stand for, with and without a middle name."""
    one, other = short.form, long.form
    if any(form.family != PERSON or form.possessive or "and" in form.words or form.aside for form in (one, other)):
        return
    mine, yours = one.given, other.given
    if len(mine) == 1 < len(yours) and len(mine[0]) > 2:
        if mine[0] == yours[-1]:
            yield (0.8 if one.words == mine and not one.title else -1.0), "surname"
        elif mine[0] == yours[0]:
            yield -0.8, "first name"
    elif len(mine) > 1 and mine[-1:] == yours[-1:] and not mine[-1].isdigit():
        if mine == yours and short.key < long.key:
            yield 1.0, "rank or title"
        elif (len(mine), short.key) < (len(yours), long.key) and mine != yours and same_given_names(mine, yours):
            yield (1.2 if len(given_alone(mine)) == len(given_alone(yours)) else 0.2), "given names agree"


def _part(short: Name, long: Name) -> Iterator[tuple[float, str]]:
    """All words of a name are another name's; those of people have rules of their own."""
    words, is_person = short.form.meaningful, short.form.family == PERSON
    if words and words < long.form.meaningful and not (is_person and len(words) < 2):
        yield (-0.5 if is_person else -2.0), "part of the name"


def _description(names: Names, left: int, right: int) -> Iterator[_Likeness]:
    """Names that texts describe in the same words: spelled much alike, or unlike and asked about.

    People of one description with two years in it, as of birth and death, are one whatever they are called.
    """
    common = names[left].lines.keys() & names[right].lines.keys()
    if common:
        one, other = names[left].form, names[right].form
        dated = any(len(set(_YEAR.findall(line))) > 1 for line in common)
        if len(one.words) == len(other.words) and all(map(is_close, one.words, other.words)):
            yield _Likeness(left, right, SIMILAR, -1.2, "spelled alike")
        elif dated and one.family == other.family == PERSON:
            yield _Likeness(left, right, SIMILAR, -1.5, "years of a life")
        else:
            yield _Likeness(left, right, SIMILAR, -3.5, "")


def _context(names: Names, likeness: _Likeness) -> tuple[float, str]:
    """Return what the context of two names adds to the log odds of their being one entity, and why."""
    one, other = names[likeness.one], names[likeness.other]
    weight, reasons = 0.0, []
    families = {one.form.family, other.form.family} - {UNKNOWN}
    if len(families) > 1:
        weight -= 3.5
        reasons.append(f"types {' and '.join(sorted(families))}")
    together = not one.chunks.isdisjoint(other.chunks)
    if together:
        # A text that spells two names slightly differently has two things in mind: Laon and Lyon.
        weight += 0.4 if likeness.tier == ALIAS or likeness.weight >= _SPELLED else -1.0
        reasons.append("in one chunk")
    if common := max((n_words for line, n_words in one.lines.items() if line in other.lines), default=0):
        weight += 0.5 if together else min(1.1 * common, 4.5)  # one text says the same of all names in a list
        reasons.append("one description")
    elif (few := min(len(one.told), len(other.told))) >= _FEW:
        share = len(one.told & other.told) / (few + 2)
        weight += 3.0 * (share - 0.25)
        reasons.append(f"{share:.0%} of the descriptions' words in common")
    near, theirs_near = names.neighbours(likeness.one), names.neighbours(likeness.other)
    if likeness.other in near:
        weight -= 1.5
        reasons.append("related to each other")
    if n_shared := len(near & theirs_near):
        weight += 1.2 if n_shared == 1 else 1.8
        reasons.append(f"{n_shared} neighbour{'s' if n_shared > 1 else ''} in common")
    if likeness.tier == ALIAS:
        text, name = one.description.casefold(), other.text.casefold()
        if text.startswith(name) and not text[len(name) :].startswith(("'", "’")):  # "John Adams's son" is another
            weight += 2.5
            reasons.append("described by the other name")
        elif name in text and one.form.family == PERSON:
            weight -= 1.0
    return weight, ", ".join(reasons)
