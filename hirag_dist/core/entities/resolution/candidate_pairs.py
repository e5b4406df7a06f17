"""Candidate pairs of entity resolution, by tier: the cheap and sure ones first, with the evidence for each.

A pair is merged where its rule leaves little doubt, asked about where it does not, and not proposed at all where the
names are known to differ.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

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
from hirag_dist.core.entities.resolution.neighbours import near_pairs
from hirag_dist.core.entities.resolution.word_lists import FEMALE_TITLES, SMALL_WORDS
from hirag_dist.types import FloatMatrix

NORMALISE, ALIAS, VECTOR, LLM = "normalise", "alias", "vector", "llm"
TIERS = (NORMALISE, ALIAS, VECTOR, LLM)
_N_NEAREST = 5  # of each entity that vectors propose
_ASK_LIKENESS = 0.4  # of names whose vectors are near
_MAX_NAMESAKES = 500  # of one surname and initial: among more a name identifies no person
_MAX_RIVALS = 8  # a short name that more names could mean is not asked about: it means none of them


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two rows that may be one entity.

    Attributes:
        left, right: rows, left < right.
        tier: the rule that proposes it, one of `TIERS`.
        score: how sure it is, 0 to 1; for vectors their cosine.
        evidence: for people.
        ask: whether a model has to say so.
    """

    left: int
    right: int
    tier: str
    score: float
    evidence: str
    ask: bool = False


@dataclass(frozen=True)
class PairRules:
    """Rules of the pairs that may be proposed.

    Attributes:
        threshold: cosine from which vectors may merge by themselves.
        ask_from: cosine from which vectors may propose a pair to a model.
    """

    threshold: float
    ask_from: float


def propose_pairs(view: EntityFeatures, vectors: FloatMatrix, rules: PairRules, seed: int = 0) -> list[CandidatePair]:
    """Return the pairs that are to be merged or asked about, each once, sorted by rows.

    Args:
        vectors: (n, dim) of unit length, by row of the view.
        seed: for the partitions of a large index.
    """
    found: dict[tuple[int, int], CandidatePair] = {}
    for pair in chain(
        _spellings(view), _acronyms(view), _stated(view), _people(view), _neighbours(view, vectors, rules, seed)
    ):
        key = (pair.left, pair.right)
        known = found.get(key)
        if known is not None and (pair.ask or not known.ask):
            continue
        if not known_different(view.forms[pair.left], view.forms[pair.right]):
            found[key] = pair
    return [found[key] for key in sorted(found)]


def _pair(one: int, other: int, tier: str, score: float, evidence: str, ask: bool = False) -> CandidatePair:
    return CandidatePair(min(one, other), max(one, other), tier, score, evidence, ask)


def _spellings(view: EntityFeatures) -> Iterator[CandidatePair]:
    """Names of one form, or of one but for the spaces in it."""
    women = {form.text.partition(" ")[2] for form in view.forms if form.words and form.words[0] in FEMALE_TITLES}
    for text, rows in view.by_text.items():
        yield from _one_spelling(view, rows, 1.0, "spelling", text in women)
    squashed: dict[str, list[int]] = {}
    for text, rows in view.by_text.items():
        squashed.setdefault(text.replace(" ", ""), []).append(view.first(rows)[0])
    for text, rows in squashed.items():
        if len(rows) > 1 and len(text) > 3:
            yield from _one_spelling(view, rows, 0.95, "spelling, but for spaces", False)


def _one_spelling(
    view: EntityFeatures, rows: list[int], score: float, evidence: str, ambiguous: bool
) -> Iterator[CandidatePair]:
    """Pairs among names of one form: within a kind each with the most mentioned one, and the kinds' heads in doubt."""
    kinds: dict[tuple[str, str], list[int]] = {}
    rows = view.first(rows)
    if len(rows) < 2:
        return
    known = next((view.forms[row].family for row in rows if view.forms[row].family != UNKNOWN), UNKNOWN)
    for row in rows:
        form = view.forms[row]
        kinds.setdefault((known if form.family == UNKNOWN else form.family, form.aside), []).append(row)
    for (family, _), group in kinds.items():
        head = view.forms[group[0]]
        for row in group[1:]:
            form = view.forms[row]
            doubt = (
                (ambiguous and form.title != head.title)
                or bool(form.legal and head.legal and form.legal != head.legal)
                # A word and its plural are often two things: Time and The Times; titles too: Big Eye, Big Eyes.
                or (
                    form.plural != head.plural
                    and (len(form.words) == 1 or form.family == head.family == UNKNOWN)
                    and not view.shared(group[0], row)
                )
                or _plural_of_a_proper_name(view, group[0], row)
            )
            yield _pair(group[0], row, NORMALISE, score, f"{evidence}, {family}", doubt)
    heads = [group[0] for group in kinds.values()]
    for row in heads[1:]:
        if view.forms[row].plural != view.forms[heads[0]].plural:
            continue  # ghosts are a concept, the Ghost is a person
        reason = f"{evidence}, {view.forms[heads[0]].family} and {view.forms[row].family}"
        yield _pair(heads[0], row, NORMALISE, 0.5, reason, ask=True)


def _plural_of_a_proper_name(view: EntityFeatures, one: int, other: int) -> bool:
    """Return whether two names differ by a plural and one is no kind's name: Windows is no more than one Window."""
    return view.forms[one].plural != view.forms[other].plural and any(
        is_proper(view.names[row], view.descriptions[row]) for row in (one, other)
    )


def _alike(one: NameForm, other: NameForm) -> bool:
    return one.family == other.family or UNKNOWN in (one.family, other.family)


def _acronyms(view: EntityFeatures) -> Iterator[CandidatePair]:
    """A name in capitals and the name that it is short for: stated in parentheses, or by its words' initials."""
    shorts = view.by_acronym
    longs: dict[str, list[int]] = {}
    for row, form in enumerate(view.forms):
        if form.acronym and len(form.words) > 1:
            for short in shorts.get(form.acronym.casefold(), ()):
                doubt = not _alike(form, view.forms[short])
                yield _pair(row, short, ALIAS, 1.0, f"{form.acronym} stands in its name", doubt)
        for letters in sorted(initials_of(form)):
            if letters in shorts:
                longs.setdefault(letters, []).append(row)
    for letters, rows in longs.items():
        n_rivals = len({(view.forms[row].text, view.forms[row].aside) for row in rows})
        if n_rivals > _MAX_RIVALS:
            continue
        for short in shorts[letters]:
            for row in rows:
                if row == short or not _alike(view.forms[row], view.forms[short]):
                    continue
                shared = view.shared(row, short)
                sure = n_rivals == 1 and len(letters) > 2 and bool(shared) and not shared.related
                if shared or (n_rivals == 1 and len(letters) > 2):
                    yield _pair(row, short, ALIAS, 0.9, f"{letters.upper()} are its initials, {shared}", not sure)


def _stated(view: EntityFeatures) -> Iterator[CandidatePair]:
    """Yield pairs that descriptions state: "World Health Organization (WHO)", "also known as the Bard"."""
    for row, text in enumerate(view.descriptions):
        for stated in stated_aliases(text):
            if not stated.long:
                for other in view.by_text.get(name_form(stated.short, view.types[row]).text, ()):
                    if other != row and _alike(view.forms[row], view.forms[other]):
                        yield _pair(row, other, ALIAS, 0.9, f"“also known as {stated.short}”", ask=True)
                continue
            for short in view.by_acronym.get(stated.short.replace(".", "").casefold(), ()):
                for long in view.by_text.get(name_form(stated.long, view.types[short]).text, ()):
                    if long != short and row in (long, short) and _alike(view.forms[long], view.forms[short]):
                        yield _pair(long, short, ALIAS, 1.0, f"“{stated.long} ({stated.short})”")


def _people(view: EntityFeatures) -> Iterator[CandidatePair]:
    """A surname and a full name, initials and the names that they stand for, with and without a middle name."""
    given: dict[int, tuple[str, ...]] = {}
    full: dict[tuple[str, str], list[int]] = {}  # full names by each of their parts, and by surname and initial
    for row, form in enumerate(view.forms):
        if form.family == PERSON and form.words and not form.possessive and "and" not in form.words and not form.aside:
            given[row] = given_names(form)
            if len(given[row]) > 1:
                first, last = given[row][0], given[row][-1]
                for key in dict.fromkeys([(first, ""), (last, ""), (last, initial(first))]):
                    full.setdefault(key, []).append(row)
    candidates = {row: _who_may_be(row, own, given, full) for row, own in given.items()}
    clear = {row: _agree(others, given) for row, others in candidates.items()}
    for row, own in given.items():
        alone = len(own) == 1
        for other in candidates[row]:
            shared = view.shared(row, other)
            named, begins = _named(view.names[other], view.descriptions[row])
            if not shared and not named and (alone or not clear[row]):
                continue
            if alone:
                # Of one family many are in a text: a chunk in common says too little, and so does the colonel's rank.
                context = shared.neighbours > 0 and view.forms[row].words == own
                sure = clear[row] and own[0] == given[other][-1] and (begins or context)
            else:
                # Texts that tell a father from a son by a middle name have both in one chunk.
                context = bool(shared) and as_many_given_names(own, given[other])
                sure = clear[row] and clear[other] and (begins or context)
            # "Son of Bobby Vinton": a description that names the other only later describes another person.
            named_back, begins_back = (False, False) if alone else _named(view.names[row], view.descriptions[other])
            two = shared.related or (named and not begins) or (named_back and not begins_back)
            evidence = f"part of the name, {'in its description, ' if named else ''}{shared}"
            yield _pair(row, other, ALIAS, 0.8, evidence, two or not sure)


def _named(name: str, description: str) -> tuple[bool, bool]:
    """Return whether a description contains a name, and whether it begins with the name and so describes its bearer.

    "John Adams's son" begins with the name of another.
    """
    text, name = description.casefold(), name.casefold()
    return name in text, text.startswith(name) and not text[len(name) :].startswith(("'", "’"))


_Given = Mapping[int, tuple[str, ...]]


def _who_may_be(
    row: int, own: tuple[str, ...], given: _Given, full: Mapping[tuple[str, str], Sequence[int]]
) -> list[int]:
    """Return the full names that a person's name may be short for; none where it may be short for too many."""
    if len(own) == 1:
        found = [other for other in full.get((own[0], ""), ()) if len(own[0]) > 2]
    else:
        namesakes = full[own[-1], initial(own[0])]
        found = [other for other in namesakes if len(namesakes) <= _MAX_NAMESAKES and _one_person(own, given[other])]
    found = [other for other in found if other != row]
    return found if len({given[other] for other in found}) <= _MAX_RIVALS else []


def _agree(rows: Sequence[int], given: _Given) -> bool:
    """Return whether any two of the full names can be one person's: there is no rival among them."""
    names = list(dict.fromkeys(given[row] for row in rows))
    return all(_one_person(one, other) for at, one in enumerate(names) for other in names[:at])


def _one_person(own: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two full names can be one person's. A king's number is no surname: all the rest must be equal."""
    if own[-1] != other[-1]:
        return False
    return own == other if own[-1].isdigit() else same_given_names(own, other)


def _neighbours(view: EntityFeatures, vectors: FloatMatrix, rules: PairRules, seed: int) -> Iterator[CandidatePair]:
    """Near vectors of one family that share a neighbour or a chunk.

    Nearness proposes, and the names decide: of what a text describes alike most are siblings (two towns of a county,
    two ghosts), so only names of the same words are merged without asking, and names that share few words are not
    proposed at all.
    """
    families = np.array([form.family for form in view.forms])
    for family in sorted(set(families.tolist()) - {UNKNOWN}):
        lefts, rights, cosines = near_pairs(
            vectors, np.flatnonzero(families == family), rules.ask_from, _N_NEAREST, seed
        )
        for left, right, cosine in zip(lefts.tolist(), rights.tolist(), cosines.tolist(), strict=True):
            shared = view.shared(left, right)
            if not shared:
                continue
            one, other = view.forms[left], view.forms[right]
            likeness = likeness_of(one, other)
            certain = cosine >= rules.threshold
            # Names that each have words of their own are siblings nearly always: Rowan County, Carter County.
            akin = likeness == 1.0 or _contains(one, other) or (certain and shared.neighbours > 0)
            if likeness < _ASK_LIKENESS or not akin:
                continue
            sure = certain and not shared.related and _same_words(one, other)
            sure = sure and not _plural_of_a_proper_name(view, left, right)
            yield _pair(left, right, VECTOR, round(cosine, 3), f"cosine {cosine:.2f}, {shared}", not sure)


def likeness_of(one: NameForm, other: NameForm) -> float:
    """Return how many of two names' meaningful words are the same or a slip apart: matched / all, 1.0 where all are.

    >>> likeness_of(name_form("Ghost of Jacob Marley", "person"), name_form("Jacob Marely's ghost", "person"))
    1.0
    """
    ours, theirs = _meaningful(one), _meaningful(other)
    same = ours & theirs
    left, right = sorted(ours - same), sorted(theirs - same)
    matched = len(same)
    for word in left:
        twin = next((other for other in right if is_slip(word, other)), None)
        if twin is not None:
            right.remove(twin)
            matched += 1
    every = len(ours) + len(theirs) - matched
    return matched / every if every else 0.0


def _contains(one: NameForm, other: NameForm) -> bool:
    """Return whether one name has every meaningful word of the other."""
    ours, theirs = _meaningful(one), _meaningful(other)
    return ours <= theirs or theirs <= ours


def _meaningful(form: NameForm) -> set[str]:
    """Return a name's words without small ones; of a script without spaces its characters."""
    return {
        part
        for word in form.words
        if word not in SMALL_WORDS
        for part in (word if unicodedata.category(word[0]) == "Lo" and not word[0].isascii() else (word,))
    }


def _same_words(one: NameForm, other: NameForm) -> bool:
    """Return whether two names differ in order, small words or a slip alone; one word by itself must be equal."""
    lengthy = min(len(one.words), len(other.words)) > 1
    return one.aside == other.aside and likeness_of(one, other) == 1.0 and (lengthy or one.text == other.text)


_ARTICLE = re.compile(r"(?:the|an?)\s+", re.IGNORECASE)
_BEFORE_A_SENTENCE = re.compile(r"(?:^|[.!?:;\n])[\s\"“'‘(]*(?:(?:The|An?)\s+)?$")


def is_proper(name: str, description: str) -> bool:
    """Test of whether a name is that of one thing rather than of a kind.

    The description decides: a proper name has its capital within a sentence, a common one is in lower case somewhere.
    Where it does not say, one word that begins with a capital is taken for proper, and several words are not: models
    write names like titles.

    >>> is_proper("Windows", "Sold by Microsoft as Windows."), is_proper("Bees", "Insects; bees make honey.")
    (True, False)
    """
    bare = _ARTICLE.sub("", name, count=1) if _ARTICLE.match(name) else name
    if not bare[:1].isupper():
        return False
    proper = len(bare.split()) == 1
    for found in re.finditer(rf"(?<!\w){re.escape(bare)}(?!\w)", description, re.IGNORECASE):
        if found.group()[0].islower():
            return False
        proper = proper or not _BEFORE_A_SENTENCE.search(description, 0, found.start())
    return proper
