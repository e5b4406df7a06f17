"""Entities and relations of one chunk: names and terms, the sentences about them, and their co-occurrence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.core.entities.association import strongest
from hirag_dist.core.prompts.templates import BAR
from hirag_dist.core.text.normalize import is_name, name_key
from hirag_dist.llm.rule_based.cjk import find_unspaced
from hirag_dist.llm.rule_based.entity_types import TypeWords, listed_types
from hirag_dist.llm.rule_based.excerpts import about, around
from hirag_dist.llm.rule_based.key_phrases import find_terms
from hirag_dist.llm.rule_based.language import is_unspaced
from hirag_dist.llm.rule_based.names import NameOccurrence, Spelling, find_names
from hirag_dist.llm.rule_based.records import EntityLine, RelationLine, safe_name, write
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.sentences import clean, sentences, tokens

_WORDS_PER_ENTITY = 32
_CHARS_PER_ENTITY = 60  # in unspaced scripts
_MIN_ENTITIES, _MAX_ENTITIES = 4, 60
_MISSED_OF_LESSER = 0.15  # of the lower two thirds: 10 % of all


@dataclass(frozen=True, slots=True)
class _Pair:
    first: int
    second: int
    score: float
    sentence: int
    other: int


def extract(ask: ParsedRequest) -> str:
    """Return the reply to extract-graph, extract-entities or extract-relations, of a first pass or a gleaning."""
    text = clean(ask.between("text"))
    lines = sentences(text)
    if ask.task == "extract-relations":
        rows = [line.split(BAR) for line in ask.between("entities").split("\n") if line.strip()]
        listed = [BAR.join(row[1:-1]).strip() for row in rows]
        number_of = {safe_name(name): at for at, name in reversed(list(enumerate(listed, start=1)))}
        found = _listed(listed, lines, candidates(lines))
        numbers = [number_of[one.name] for one in found]
        pairs = _pairs(found)
        missed = _missed([f"{found[pair.first].name}\n{found[pair.second].name}" for pair in pairs], ask)
        chosen = [pair for pair, late in zip(pairs, missed, strict=True) if late == (ask.round == 1)]
        return write(None, _relations(found, chosen, lines, numbers) if ask.round < 2 else [], ask.form)
    found = _best(candidates(lines), lines)
    wanted = "relations" in ask.task or ask.task == "extract-graph"
    if ask.round > 1:
        return write([], [] if wanted else None, ask.form)
    late = _missed([one.name for one in found], ask)
    words = TypeWords(listed_types(ask.system))
    told = [about(one.name, [place[0] for place in one.places], lines) for one in found]
    order = sorted(range(len(found)), key=lambda at: late[at])  # what is missed is numbered on in the next reply
    entities = [
        EntityLine(found[at].name, words.word(found[at].kind), told[at]) for at in order if late[at] == (ask.round == 1)
    ]
    first = 1 if ask.round == 0 else late.count(False) + 1
    if not wanted:
        return write(entities, None, ask.form, first)
    numbers = [order.index(at) + 1 for at in range(len(found))]
    pairs = [pair for pair in _pairs(found) if (late[pair.first] or late[pair.second]) == (ask.round == 1)]
    return write(entities, _relations(found, pairs, lines, numbers), ask.form, first, [told[at] for at in order])


def candidates(lines: Sequence[str]) -> list[NameOccurrence]:
    """Return the names and terms that sentences hold, the same one at several places once."""
    if is_unspaced(" ".join(lines)):
        return find_unspaced(lines)
    words = [tokens(line) for line in lines]
    spelling = Spelling(words)
    return find_names(words, spelling) + find_terms(words, spelling)


def _best(candidates: Sequence[NameOccurrence], lines: Sequence[str]) -> list[NameOccurrence]:
    size = sum(line.count(" ") + 1 for line in lines)
    wanted = size // _WORDS_PER_ENTITY
    if candidates and is_unspaced(" ".join(lines)):
        wanted = sum(map(len, lines)) // _CHARS_PER_ENTITY
    limit = min(max(wanted, _MIN_ENTITIES), _MAX_ENTITIES)
    taken: set[str] = set()
    best: list[NameOccurrence] = []
    for one in sorted(candidates, key=lambda one: (-one.score, one.places[0], one.name)):
        one.name = safe_name(one.name)
        key = name_key(one.name)
        if is_name(key) and key not in taken:
            taken.add(key)
            best.append(one)
            if len(best) == limit:
                break
    return best


def _listed(names: Sequence[str], lines: Sequence[str], candidates: Sequence[NameOccurrence]) -> list[NameOccurrence]:
    """Return where the listed entities stand in the text, most often named first."""
    known = {name_key(one.name): one.places for one in candidates}
    lowered = [line.lower() for line in lines]
    found: dict[str, NameOccurrence] = {}
    for name in names:
        key = name_key(name)
        if not is_name(key) or key in found:
            continue
        places = known.get(key)
        if places is None:
            spots = [(number, line.find(name.lower())) for number, line in enumerate(lowered)]
            places = [(number, at // 6) for number, at in spots if at >= 0]
        found[key] = NameOccurrence(safe_name(name), places=places, score=float(len(places)))
    return sorted(found.values(), key=lambda one: (-one.score, one.name))


def _missed(keys: Sequence[str], ask: ParsedRequest) -> list[bool]:
    """Return the records, best first, that a first pass overlooks: a fixed share of the lesser ones."""
    salt = f"{ask.seed}\n{ask.body}".encode("utf-8", "surrogatepass")
    base = hashlib.blake2b(salt, digest_size=16).digest()
    late = []
    for rank, key in enumerate(keys):
        data = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=base, digest_size=4).digest()
        share = int.from_bytes(data, "little") / 2**32
        late.append(rank * 3 >= len(keys) and rank > 1 and share < _MISSED_OF_LESSER)
    return late


def _pairs(found: Sequence[NameOccurrence]) -> list[_Pair]:
    """Return the pairs of entities that the text names close together, best first, one at least for each entity."""
    at: dict[int, dict[int, int]] = {}
    for number, found_one in enumerate(found):
        for sentence, word in found_one.places:
            at.setdefault(sentence, {}).setdefault(number, word)
    best: dict[tuple[int, int], list[float]] = {}
    for sentence in sorted(at):
        here = sorted(at[sentence].items(), key=lambda item: (item[1], item[0]))
        for rank, (one, word) in enumerate(here):
            for other, later in here[rank + 1 : rank + 9]:
                _add(best, one, other, 0.35 + 2.6 / (4 + later - word), sentence, sentence)
        after = at.get(sentence + 1)
        if after and len(here) < 7 and len(after) < 7:
            for one, _ in here:
                for other in sorted(after):
                    if other != one:
                        _add(best, one, other, 0.12, sentence, sentence + 1)
    for number in range(len(found)):
        _link_lonely(best, number, found)
    pairs = [_Pair(*key, value[0], int(value[2]), int(value[3])) for key, value in best.items()]
    pairs.sort(key=lambda pair: (-pair.score, pair.first, pair.second))
    return strongest(pairs, len(found))


def _add(best: dict[tuple[int, int], list[float]], one: int, other: int, score: float, here: int, there: int) -> None:
    key = (one, other) if one < other else (other, one)
    value = best.get(key)
    if value is None:
        best[key] = [score, score, here, there]
        return
    value[0] += score
    if score > value[1]:
        value[1:] = [score, here, there]


def _link_lonely(best: dict[tuple[int, int], list[float]], number: int, found: Sequence[NameOccurrence]) -> None:
    """Tie an entity that stands alone in its sentences to what is named nearest before or after."""
    one = found[number]
    if not one.places or any(number in key for key in best):
        return
    here = one.places[0][0]
    near = [
        (abs(place - here), other, place)
        for other, them in enumerate(found)
        if other != number
        for place, _ in them.places[:20]
        if abs(place - here) < 6
    ]
    if near:
        _, other, there = min(near)
        _add(best, number, other, 0.1, min(here, there), max(here, there))


def _relations(
    found: Sequence[NameOccurrence], pairs: Sequence[_Pair], lines: Sequence[str], numbers: Sequence[int]
) -> list[RelationLine]:
    return [
        RelationLine(
            numbers[pair.first],
            numbers[pair.second],
            around(found[pair.first].name, found[pair.second].name, lines[pair.sentence], lines[pair.other]),
        )
        for pair in pairs
    ]
