"""Pairs of names that may be one entity, from blocks of names that have something in common, and how sure each is.

What is alike in two names is a kind of evidence with a weight in log odds; the context (descriptions, neighbours,
chunks, types) adds to it, and rivals share it. The sum is a probability, from which pairs are merged or asked about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, combinations

from hirag_dist.core.entities.resolution.acronyms import initials_of, stated_aliases
from hirag_dist.core.entities.resolution.entity_features import EntityFeatures
from hirag_dist.core.entities.resolution.name_forms import PERSON, UNKNOWN, NameForm, name_form
from hirag_dist.core.entities.resolution.negative_rules import (
    as_many_given_names,
    given_names,
    initial,
    is_slip,
    known_different,
    same_given_names,
)
from hirag_dist.core.entities.resolution.word_lists import SMALL_WORDS

USER, NORMALISE, ALIAS, SIMILAR, LLM = "user", "normalise", "alias", "similar", "llm"
TIERS = (USER, NORMALISE, ALIAS, SIMILAR, LLM)
MERGED_FROM = 0.9  # probability
ASKED_FROM = 0.4
_SPELLED = 3.5  # log odds of one spelling
_MAX_BLOCK = 64  # names that a word brings together: a word of more tells nothing
_MAX_RIVALS = 8  # a short name that more names could mean means none of them


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two rows that may be one entity.

    Attributes:
        left, right: rows, left < right.
        tier: the kind of evidence, one of `TIERS`.
        score: probability that they are one.
        evidence: for people.
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


def propose_pairs(view: EntityFeatures) -> list[CandidatePair]:
    """Return the pairs that are at least as likely as `ASKED_FROM` one entity, each once, sorted by rows."""
    found: dict[tuple[int, int], _Likeness] = {}
    for likeness in chain(
        _spellings(view), _acronyms(view), _stated(view), _people(view), _parts(view), _slips(view), _described(view)
    ):
        key = (min(likeness.one, likeness.other), max(likeness.one, likeness.other))
        known = found.get(key)
        if (known is None or likeness.weight > known.weight) and likeness.one != likeness.other:
            found[key] = likeness
    odds: dict[tuple[int, int], tuple[float, str]] = {}
    explained: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for key, likeness in found.items():
        if not known_different(view.forms[key[0]], view.forms[key[1]]):
            weight, reason = _context(view, likeness)
            if weight + likeness.weight >= _LEAST:
                odds[key] = (likeness.weight + weight, reason)
                explained.setdefault((likeness.one, likeness.reason), []).append(key)
    pairs = []
    for key in sorted(odds):
        likeness, (weight, reason) = found[key], odds[key]
        others = explained[likeness.one, likeness.reason] if likeness.tier == ALIAS else []
        if len(others) > _MAX_BLOCK:
            continue
        other = view.forms[likeness.other]
        rivals = [each for each in others if not compatible(other, view.forms[sum(each) - likeness.one])]
        share = 1.0 / (1.0 + sum(math.exp(min(odds[each][0] - weight, 50.0)) for each in rivals))
        score = round(share / (1.0 + math.exp(-weight)), 3)
        if score >= ASKED_FROM and len(rivals) <= _MAX_RIVALS:
            reasons = "; ".join(filter(None, (likeness.reason, reason)))
            pairs.append(CandidatePair(*key, likeness.tier, score, reasons))
    return pairs


_LEAST = math.log(ASKED_FROM / (1.0 - ASKED_FROM)) - 3.0  # log odds of a rival that counts


def compatible(one: NameForm, other: NameForm) -> bool:
    """Return whether two names can be one entity's: not known to differ, and not with words of its own on each side."""
    if len({one.family, other.family} - {UNKNOWN}) > 1:
        return False
    if one.text == other.text and one.aside == other.aside:
        return True
    if known_different(one, other):
        return False
    if one.acronym or other.acronym or one.text == other.text:
        return True
    if initials_of(one) & set(other.words) or initials_of(other) & set(one.words):
        return True
    if one.family == other.family == PERSON:
        mine, yours = given_names(one), given_names(other)
        return mine[-1:] == yours[-1:] or set(mine) <= set(yours) or set(yours) <= set(mine)
    ours, theirs = meaningful(one), meaningful(other)
    left, right = sorted(ours - theirs), sorted(theirs - ours)
    return not (left and right) or all(any(_close(word, twin) for twin in right) for word in left)


def meaningful(form: NameForm) -> frozenset[str]:
    """Return a name's words without small ones."""
    return frozenset(form.words) - SMALL_WORDS


def _context(view: EntityFeatures, likeness: _Likeness) -> tuple[float, str]:
    """Return what the context of two names adds to the log odds of their being one entity, and why."""
    one, other = likeness.one, likeness.other
    weight, reasons = 0.0, []
    families = {view.forms[one].family, view.forms[other].family} - {UNKNOWN}
    if len(families) > 1:
        weight -= 3.5
        reasons.append(f"types {' and '.join(sorted(families))}")
    together = bool(view.chunks(one) & view.chunks(other))
    if together:
        # A text that spells two names slightly differently has two things in mind: Laon and Lyon.
        sure = likeness.tier == ALIAS or likeness.weight >= _SPELLED
        weight += 0.4 if sure else -1.0
        reasons.append("in one chunk")
    ours_said, theirs_said = view.lines(one), view.lines(other)
    if common := max((n_words for line, n_words in ours_said.items() if line in theirs_said), default=0):
        weight += 0.5 if together else min(1.1 * common, 4.5)  # one text says the same of all names in a list
        reasons.append("one description")
    else:
        ours, theirs = view.described_by(one), view.described_by(other)
        few = min(len(ours), len(theirs))
        if few >= 3:
            share = len(ours & theirs) / (few + 2)
            weight += 3.0 * (share - 0.25)
            reasons.append(f"{share:.0%} of the descriptions' words in common")
    near, theirs_near = view.neighbours(one), view.neighbours(other)
    if other in near:
        weight -= 1.5
        reasons.append("related to each other")
    if n_shared := len(near & theirs_near):
        weight += 1.2 if n_shared == 1 else 1.8
        reasons.append(f"{n_shared} neighbour{'s' if n_shared > 1 else ''} in common")
    if likeness.tier == ALIAS:
        named, begins = _named(view.names[other], view.descriptions[one])
        if begins:
            weight += 2.5
            reasons.append("described by the other name")
        elif named and view.forms[one].family == PERSON:
            weight -= 1.0
    return weight, ", ".join(reasons)


def _named(name: str, description: str) -> tuple[bool, bool]:
    """Return whether a description contains a name, and whether it begins with the name and so describes its bearer.

    "John Adams's son" begins with the name of another.
    """
    text, name = description.casefold(), name.casefold()
    return name in text, text.startswith(name) and not text[len(name) :].startswith(("'", "’"))


def _spellings(view: EntityFeatures) -> Iterator[_Likeness]:
    """Names of one form, of one but for the spaces in it, or of the same words in another order."""
    titles: dict[str, set[str]] = {}
    for form in view.forms:
        if form.title:
            titles.setdefault(form.text, set()).add(form.title)
    blocks: dict[str, list[int]] = {}
    for text, rows in view.by_text.items():
        for row in rows[1:]:
            head, form = view.forms[rows[0]], view.forms[row]
            doubt = 0.0
            if head.legal and form.legal and head.legal != form.legal:
                doubt += 2.0
            if head.plural != form.plural:
                doubt += 2.5 if len(form.words) == 1 else 0.8
            if head.aside != form.aside:
                told = view.descriptions[row if head.aside else rows[0]]
                doubt += 1.5 if _says(told, head.aside or form.aside) else 3.0
            if head.title != form.title and len(titles.get(text, ())) > 1:
                doubt += 2.5
            yield _Likeness(row, rows[0], NORMALISE, _SPELLED - doubt, "spelling")
    for row, form in enumerate(view.forms):
        words = (*form.words, *form.aside.split())
        in_order = sorted(word for word in words if form.family == PERSON or word not in SMALL_WORDS)
        for key in {"".join(words), " ".join(in_order) if len(in_order) > 1 else ""}:
            if len(key) > 3:
                blocks.setdefault(key, []).append(row)
    for rows in blocks.values():
        for one, other in combinations(view.first(rows)[:_MAX_RIVALS], 2):
            if view.forms[one].text != view.forms[other].text:
                yield _Likeness(other, one, NORMALISE, 3.0, "spelling, but for spaces or order")


def _says(description: str, aside: str) -> bool:
    """Return whether a description has the words that another name has in parentheses or behind a comma."""
    return set(aside.split()) <= set(name_form(description, "").words)


def _acronyms(view: EntityFeatures) -> Iterator[_Likeness]:
    """A name in capitals and the name that it is short for: stated in parentheses, or by its words' initials."""
    shorts = view.by_acronym
    for row, form in enumerate(view.forms):
        if len(form.words) < 2:
            continue
        for short in shorts.get(form.acronym.casefold(), ()) if form.acronym else ():
            yield _Likeness(short, row, ALIAS, 4.0, f"{form.acronym} stands in the name")
        for letters in initials_of(form):
            for short in shorts.get(letters, ())[:_MAX_BLOCK]:
                weight = 0.5 if len(letters) > 2 else -1.0
                yield _Likeness(short, row, ALIAS, weight, f"{letters.upper()} are the initials")


def _stated(view: EntityFeatures) -> Iterator[_Likeness]:
    """Names that descriptions state: "World Health Organization (WHO)", "also known as the Bard"."""
    for row, text in enumerate(view.descriptions):
        for other in view.by_text.get(view.forms[row].aside, ())[:_MAX_RIVALS]:
            yield _Likeness(other, row, ALIAS, -2.0, "in parentheses")
        for stated in stated_aliases(text):
            if not stated.long:
                for other in view.by_text.get(name_form(stated.short, view.types[row]).text, ())[:_MAX_RIVALS]:
                    yield _Likeness(row, other, ALIAS, 1.5, f"“also known as {stated.short}”")
                continue
            for short in view.by_acronym.get(stated.short.replace(".", "").casefold(), ()):
                for long in view.by_text.get(name_form(stated.long, view.types[short]).text, ()):
                    if row in (long, short):
                        yield _Likeness(short, long, ALIAS, 3.5, f"“{stated.long} ({stated.short})”")


def _people(view: EntityFeatures) -> Iterator[_Likeness]:
    """A surname and a full name, initials and the names that they stand for, with and without a middle name."""
    given: dict[int, tuple[str, ...]] = {}
    full: dict[tuple[str, str], list[int]] = {}  # full names by each of their ends, and by surname and initial
    for row, form in enumerate(view.forms):
        if form.family == PERSON and form.words and not form.possessive and "and" not in form.words and not form.aside:
            given[row] = own = given_names(form)
            if len(own) > 1:
                for key in {(own[0], ""), (own[-1], ""), (own[-1], initial(own[0]))}:
                    full.setdefault(key, []).append(row)
    for row, own in given.items():
        if len(own) == 1:
            for other in full.get((own[0], ""), ())[: _MAX_BLOCK if len(own[0]) > 2 else 0]:
                last, bare = own[0] == given[other][-1], view.forms[row].words == own and not view.forms[row].title
                weight = (0.8 if bare else -1.0) if last else -0.8
                yield _Likeness(row, other, ALIAS, weight, "surname" if last else "first name")
            continue
        namesakes = full[own[-1], initial(own[0])]
        for other in namesakes if len(namesakes) <= 4 * _MAX_BLOCK else ():
            theirs = given[other]
            if (len(own), row) < (len(theirs), other) and own != theirs and not own[-1].isdigit():
                if same_given_names(own, theirs):
                    equal = as_many_given_names(own, theirs)
                    yield _Likeness(row, other, ALIAS, 1.2 if equal else 0.2, "given names agree")
            elif own == theirs and row < other:
                yield _Likeness(row, other, ALIAS, 1.0, "rank or title")


def _parts(view: EntityFeatures) -> Iterator[_Likeness]:
    """Names with all words of another name; those of people have rules of their own."""
    rows_of: dict[str, list[int]] = {}
    words = [meaningful(form) for form in view.forms]
    for row, own in enumerate(words):
        for word in own:
            rows_of.setdefault(word, []).append(row)
    for row, own in enumerate(words):
        person = view.forms[row].family == PERSON
        if person and len(own) < 2:
            continue
        rarest = min((rows_of[word] for word in own), key=len, default=[])
        if len(rarest) > _MAX_BLOCK:
            continue
        for other in rarest:
            if own < words[other]:
                yield _Likeness(row, other, ALIAS, -0.5 if person else -2.0, "part of the name")


def _slips(view: EntityFeatures) -> Iterator[_Likeness]:
    """Names that differ in one word, by one letter missing, added, changed or swapped."""
    words = [meaningful(form) for form in view.forms]
    rows_of: dict[str, list[int]] = {}
    for row, own in enumerate(words):
        for word in own:
            rows_of.setdefault(word, []).append(row)
    variants: dict[str, list[str]] = {}
    for word, rows in rows_of.items():
        if len(word) >= 4 and word.isalpha() and len(rows) <= _MAX_BLOCK:
            for short in {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}:
                variants.setdefault(short, []).append(word)
    near = {
        pair for block in variants.values() if 1 < len(block) <= _MAX_BLOCK for pair in combinations(sorted(block), 2)
    }
    for one, other in sorted(near):
        sure = is_slip(one, other)
        if not sure and not _close(one, other):
            continue
        for left in rows_of[one]:
            for right in rows_of[other]:
                if left != right and words[left] - {one} == words[right] - {other}:
                    alone = len(words[left]) == 1
                    weight = (0.3 if alone else 1.5) if sure else -1.2
                    yield _Likeness(max(left, right), min(left, right), SIMILAR, weight, f"{one} and {other}")


def _described(view: EntityFeatures) -> Iterator[_Likeness]:
    """Names that texts describe in the same words: spelled much alike, or unlike and asked about.

    People of one description with two years in it, as of birth and death, are one whatever they are called.
    """
    blocks: dict[str, list[int]] = {}
    for row in range(len(view)):
        for line in view.lines(row):
            blocks.setdefault(line, []).append(row)
    for line, rows in blocks.items():
        dated = len(set(_YEAR.findall(line))) > 1
        for one, other in combinations(rows if len(rows) <= _MAX_RIVALS else (), 2):
            ours, theirs = view.forms[one], view.forms[other]
            alike = len(ours.words) == len(theirs.words) and all(map(_close, ours.words, theirs.words))
            born = dated and ours.family == theirs.family == PERSON
            weight = -1.2 if alike else -1.5 if born else -3.5
            yield _Likeness(
                other, one, SIMILAR, weight, "spelled alike" if alike else "years of a life" if born else ""
            )


_YEAR = re.compile(r"\b[12]\d{3}\b")


def _close(one: str, other: str) -> bool:
    """Return whether two words are spelled much alike: the same first letter, and three letters of four in order."""
    if one == other:
        return True
    return one[0] == other[0] and min(len(one), len(other)) > 3 and SequenceMatcher(None, one, other).ratio() >= 0.7
