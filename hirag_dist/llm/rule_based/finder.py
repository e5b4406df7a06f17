"""Names and noun phrases of a text, and the records of entities and relations that are made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hirag_dist.core.entities.association import associations
from hirag_dist.core.prompts.records import EntityRecord, ExtractionReply, RelationRecord
from hirag_dist.core.text.normalize import clean_name, is_name, name_key
from hirag_dist.llm.rule_based.entity_types import TypeWords
from hirag_dist.llm.rule_based.excerpts import about, around
from hirag_dist.llm.rule_based.language import Script, is_english, scripts_of
from hirag_dist.llm.rule_based.names import Spelling, find_names
from hirag_dist.llm.rule_based.phrases import find_phrases
from hirag_dist.llm.rule_based.requests import safe_name
from hirag_dist.llm.rule_based.sentences import split_sentences, tokens
from hirag_dist.llm.rule_based.unspaced import find_characters, find_clusters
from hirag_dist.types import FoundName

_PARTICLE = re.compile("(?<=[A-Za-z0-9])(?=[가-힣])")  # between a Latin name and the Korean particle that follows
_WORDS_PER_NAME = 32
_CHARS_PER_NAME = {Script.IDEOGRAPHIC: 60, Script.UNSPACED: 150}
_MIN_NAMES, _MAX_NAMES = 4, 60


def extract_records(text: str, types: Sequence[str]) -> ExtractionReply:
    """Return the best names of a text with the sentences that tell most about them, and how they are related.

    Args:
        types: types that a name may have.
    """
    lines = split_sentences(text)
    words = TypeWords(types)
    names = best_names(lines)
    entities = [EntityRecord(one.name, words.word(one.type).lower(), described(one, lines)) for one in names]
    return ExtractionReply(tuple(entities), tuple(related(names, lines)))


def best_names(lines: Sequence[str]) -> list[FoundName]:
    """Return the names and phrases of sentences, best first, in proportion to the text."""
    scripts = scripts_of(" ".join(lines))
    per_name = _CHARS_PER_NAME.get(scripts[0]) if scripts else None
    if per_name:
        wanted = sum(map(len, lines)) // per_name
    else:
        wanted = sum(line.count(" ") + 1 for line in lines) // _WORDS_PER_NAME
    return find_entities(lines)[: min(max(wanted, _MIN_NAMES), _MAX_NAMES)]


def described(one: FoundName, lines: Sequence[str]) -> str:
    """Return the sentences that tell most about a name."""
    return about(one.name, [place for place, _ in one.places], lines)


def related(names: Sequence[FoundName], lines: Sequence[str]) -> list[RelationRecord]:
    """Return the relations of names that stand close together, strongest first."""
    return [
        RelationRecord(
            names[pair.first].name,
            names[pair.second].name,
            around(names[pair.first].name, names[pair.second].name, *(lines[place] for place in pair.sentences)),
            pair.strength,
        )
        for pair in associations(names)
    ]


def find_entities(lines: Sequence[str]) -> list[FoundName]:
    """Return the names and noun phrases of sentences with their built-in kinds, best first, each once.

    English: names by capitals and noun phrases by word classes. Other writing with capitals: names by capitals, and
    recurring phrases. Without capitals: recurring phrases. Chinese and Japanese, and other writing without spaces:
    recurring strings of characters.
    """
    found: dict[str, FoundName] = {}
    for one in sorted(_candidates(lines), key=lambda one: (-one.score, one.places[0], one.name)):
        name = clean_name(safe_name(one.name))
        key = name_key(name)
        if is_name(key):
            found.setdefault(key, replace(one, name=name))
    return list(found.values())


def _candidates(lines: Sequence[str]) -> list[FoundName]:
    text = " ".join(lines)
    scripts = scripts_of(text)
    if Script.IDEOGRAPHIC in scripts:
        return find_characters(lines)  # with Latin names
    found = find_clusters(lines) if Script.UNSPACED in scripts else []
    words = [tokens(_PARTICLE.sub(" ", line)) for line in lines]
    if Script.CASED in scripts:
        spelling = Spelling(words)
        names = find_names(words, spelling)
        found += names
        if scripts[0] is Script.CASED and is_english(text):
            found += find_phrases(words, spelling)
        elif scripts[0] is Script.CASED:
            found += _others(find_phrases(words, None), names)
    if Script.CASELESS in scripts:
        found += find_phrases(words, None)
    return found


def _others(phrases: Sequence[FoundName], names: Sequence[FoundName]) -> list[FoundName]:
    """Return the phrases that are not a part of a name wherever they occur."""
    places: dict[str, set[int]] = {}  # word of a name → sentences with the name
    for one in names:
        for word in name_key(one.name).split():
            places.setdefault(word, set()).update(sentence for sentence, _ in one.places)
    return [
        one
        for one in phrases
        if not all(
            {sentence for sentence, _ in one.places} <= places.get(word, set()) for word in name_key(one.name).split()
        )
    ]
