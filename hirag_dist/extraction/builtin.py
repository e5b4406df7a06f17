"""Names and noun phrases of texts, by the rules that suit their writing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hirag_dist.core.text.normalize import clean_name, is_name, name_key
from hirag_dist.extraction.phrases import find_phrases
from hirag_dist.extraction.scripts import Script, is_english, scripts_of
from hirag_dist.extraction.unspaced import find_terms as find_unspaced_terms
from hirag_dist.llm.rule_based.cjk import find_unspaced
from hirag_dist.llm.rule_based.entity_types import TypeWords
from hirag_dist.llm.rule_based.key_phrases import find_terms
from hirag_dist.llm.rule_based.names import NameOccurrence, Spelling
from hirag_dist.llm.rule_based.names import find_names as find_capitalised
from hirag_dist.llm.rule_based.records import safe_name
from hirag_dist.llm.rule_based.sentences import tokens
from hirag_dist.types import FoundName

_PARTICLE = re.compile("(?<=[A-Za-z0-9])(?=[가-힣])")  # between a Latin name and the Korean particle that follows


def find_names(texts: Sequence[Sequence[str]], types: Sequence[str]) -> list[list[FoundName]]:
    """Return the names and terms of each text, best first, each once.

    English: names by capitals and noun phrases by word lists. Other writing with capitals: names by capitals, and
    recurring phrases. Without capitals: recurring phrases. Chinese and Japanese, and other writing without spaces:
    recurring strings of characters.

    Args:
        texts: the sentences of each text (`split_sentences`).
        types: types that a name may have.
    """
    words = TypeWords(types)
    return [[_found(one, words) for one in _distinct(_candidates(lines))] for lines in texts]


def _candidates(lines: Sequence[str]) -> list[NameOccurrence]:
    text = " ".join(lines)
    scripts = scripts_of(text)
    if Script.IDEOGRAPHIC in scripts:
        return find_unspaced(lines)  # with Latin names
    found: list[NameOccurrence] = []
    if Script.UNSPACED in scripts:
        found += find_unspaced_terms(lines)
    if Script.CASED in scripts:
        words = [tokens(_PARTICLE.sub(" ", line)) for line in lines]
        spelling = Spelling(words)
        names = find_capitalised(words, spelling)
        found += names
        if scripts[0] is Script.CASED:
            found += find_terms(words, spelling) if is_english(text) else _others(find_phrases(lines), names)
    if Script.CASELESS in scripts:
        found += find_phrases(lines)
    return found


def _others(phrases: Sequence[NameOccurrence], names: Sequence[NameOccurrence]) -> list[NameOccurrence]:
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


def _distinct(candidates: Sequence[NameOccurrence]) -> list[NameOccurrence]:
    """Return the candidates best first, each name once."""
    found: dict[str, NameOccurrence] = {}
    for one in sorted(candidates, key=lambda one: (-one.score, one.places[0], one.name)):
        one.name = clean_name(safe_name(one.name))
        key = name_key(one.name)
        if is_name(key):
            found.setdefault(key, one)
    return list(found.values())


def _found(one: NameOccurrence, words: TypeWords) -> FoundName:
    return FoundName(one.name, words.word(one.kind), tuple(sorted(set(one.places))), one.score)
