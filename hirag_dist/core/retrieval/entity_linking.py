"""Entity linking: phrases of a question are looked up among the names of entities.

A name matches a phrase with the same words, whatever the case, the width of the letters and the punctuation around
them. In scripts without spaces, every ideograph, kana and syllable (of the scripts of South-East Asia) is a word.

"How is A connected to B?" asks for the path from A to B. The paper joins key entities of communities alone (Eq. 14–15);
here one named entity for each phrase comes before them, so that the first paths are the ones that were asked for. In
the local level (Eq. 12) the named entities come before the nearest ones. `retrieval.fidelity: paper` leaves both out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import Flags
from hirag_dist.core.arrays import compiled, lower_bound
from hirag_dist.core.retrieval.lexical import kept_term_key, term_key
from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.types import IntVector

LOCAL_SHARE: Final = 4  # one in so many local entities may be there by its name
MAX_ENDPOINTS: Final = 8
MAX_READ: Final = 128  # words of a question that are compared with the listed ones

# Words by which a question shows its type, in German, English, Spanish, French and Chinese. Phrases are separated by
# bars or ends of lines. A phrase is words as `entity_linking.words` cuts them; in Chinese, every character is a word.
_OTHERS = """
who|whom|whose|when|where|which|what year|what time|how many|how much|how long|how old|how far|what is the name
wer|wem|wessen|wann|wo|welche|welcher|welches|wie viele|wie viel|wie lange|wie alt|wie weit|wie heisst
quien|quién|quienes|cuando|cuándo|dónde|cuál|cuánto|cuántos|cuántas|cuánta|en qué año|cómo se llama
qui|quand|où|quel|quelle|quels|quelles|combien|en quelle année|comment s appelle
谁|何时|什么时候|哪里|哪儿|哪年|哪个|哪一|多少|几个|多久|叫什么
both|or|than|in common|difference between|differ|differs|different from|compare|compared to|compared with|the same
versus|vs|before|after|first or|earlier|older|oldest|larger|longer|bigger|more popular|which of the two
beide|beiden|oder|gemeinsam|unterschied zwischen|unterschiede zwischen|unterscheiden|unterscheidet|verglichen mit
im vergleich|derselbe|dieselbe|dasselbe|früher|älter|grösser|länger|bevor|nachdem
ambos|ambas|en común|diferencia entre|diferencias entre|diferencian|se diferencia|comparado con|comparación|mismo
misma|mayor que|más antiguo|más grande|antes de|después de
les deux|ou|en commun|différence entre|différences entre|diffèrent|diffère|comparé à|par rapport à|le même|la même
plus ancien|plus grand|avant de|avant que|après que
都是|都在|都有|还是|相同|不同|区别|差异|比较|相比|之前|之后|更早|更大|共同
theme|themes|overall|overview|summarise|summarize|summary|significance|impact|influence|contribute|contributed
contribution|contributions|implications|challenges|key|main|role|roles|describe|explain|topics|trends|circumstances
context|achievements|limitations|objective|in general|how did|how does|how do|how has
themen|überblick|übersicht|zusammenfassung|fasse|fassen|bedeutung|einfluss|auswirkungen|wichtigsten|wesentlichen
rolle|herausforderungen|insgesamt|beschreibe|erkläre|beitrag
temas|resumen|resume|resumir|panorama|significado|importancia|impacto|influencia|influyó|principales|papel|desafíos
en general|describe|explica|contribución
thèmes|résumé|résume|résumer|aperçu|importance|impact|influence|principaux|principales|rôle|défis|dans l ensemble
décris|explique|contribution
主题|概述|总结|概括|意义|影响|主要|作用|角色|总体|整体|挑战|描述|贡献
what|why|how|is|are|was|were|did|does|do|has|have|can
wie|warum|ist|sind|hat|haben|wurde|wurden
qué|cómo|por qué|es|son|fue|fueron
que|quoi|comment|pourquoi|est|sont|ont
什么|怎么|为什么|如何|是|吗
"""
_CONNECTION = """
connected|connection|connections|connect|connects|relationship|relation|related|relate|relates|link|links|linked
tied|associated with|have to do with|belong together|path from|leads to
verbunden|verbindung|verbindet|zusammenhang|hängt|hängen|beziehung|verhältnis|verknüpft|zu tun
conectado|conectados|conectada|conexión|relacionado|relacionada|relacionados|relación|vínculo|vinculado|que ver
lié|liée|liés|lien|liens|relation|rapport entre|connecté|connectés|à voir avec
关系|联系|关联|相关|有何关
"""


def _phrases(text: str) -> frozenset[str]:
    found: set[str] = set()
    for phrase in text.replace("\n", "|").split("|"):
        if phrase:
            ideographs = phrase[0] >= "\u4e00"
            found.add(" ".join(phrase) if ideographs else phrase)
    return frozenset(found)


CONNECTION_WORDS: Final = _phrases(_CONNECTION)
QUESTION_WORDS: Final = CONNECTION_WORDS | _phrases(_OTHERS)
_MAX_LENGTH: Final = max(phrase.count(" ") + 1 for phrase in QUESTION_WORDS)


Ranked = list[tuple[int, float]]


class NamedEntity(NamedTuple):
    """An entity that a question names. `specific`: its name is written with a capital letter or a digit."""

    row: int
    specific: bool


def named_entities(
    question: str, phrases: Iterable[NamePhrase], layers: NDArray[Any], closeness: Mapping[int, float]
) -> list[NamedEntity]:
    """Return an entity for each name in a question, in its order.

    Of the entities of one name, that of the lowest layer counts, then the nearest to the question, then the lowest row.
    Names that only show the type of the question ("connection") do not count.

    Args:
        phrases: its longest names (`entity_linking.longest_phrases`).
        closeness: row → similarity to the question.
    """
    read, spelled = words(question), spelled_words(question)
    found = []
    for (start, end), own in groupby(phrases, key=lambda one: (one.start, one.end)):
        phrase = " ".join(read[start:end])
        if phrase in QUESTION_WORDS:
            continue
        row = min((one.row for one in own), key=lambda row: (int(layers[row]), -closeness[row], row))
        specific = any(letter.isupper() or letter.isdigit() for word in spelled[start:end] for letter in word)
        found.append(NamedEntity(row, specific))
    return found


def most_specific(named: Iterable[NamedEntity], limit: int) -> list[int]:
    """Return the rows of named entities, each once: those with specific names first, otherwise in their order.

    >>> most_specific([NamedEntity(5, False), NamedEntity(7, True), NamedEntity(5, False), NamedEntity(8, False)], 2)
    [7, 5]
    """
    return list(dict.fromkeys(one.row for one in sorted(named, key=lambda one: not one.specific)))[:limit]


def named_first(
    named: Sequence[NamedEntity], nearest: Ranked, closeness: Mapping[int, float], limit: int
) -> tuple[Ranked, frozenset[int]]:
    """Return (row, similarity) of the local entities, named ones first, and the rows of the named ones.

    A quarter of the entities at most are there by their names, the most specific ones, in the order of the question.
    The nearest follow in their order.

    Args:
        closeness: row → similarity to the question, of the named ones.

    >>> nearest = [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6)]
    >>> named_first([NamedEntity(9, True), NamedEntity(3, True)], nearest, {3: 0.7, 9: 0.1}, 4)
    ([(9, 0.1), (1, 0.9), (2, 0.8), (3, 0.7)], frozenset({9}))
    """
    chosen = frozenset(most_specific(named, limit // LOCAL_SHARE))
    first = {one.row: closeness[one.row] for one in named if one.row in chosen}
    rest = [(row, score) for row, score in nearest if row not in chosen]
    return [*first.items(), *rest][:limit], chosen


def named_endpoints(named: Sequence[NamedEntity]) -> list[int]:
    """Return the rows of the entities that the bridge joins first; none where the question names fewer than two.

    Those with specific names come before the others; otherwise the order is the question's.

    Args:
        named: an entity for each name in the question, in its order.
    """
    found = most_specific(named, MAX_ENDPOINTS)
    return found if len(found) > 1 else []


def joined_in_order(named: Ranked, keys: Ranked) -> Ranked:
    """Return (row, similarity) of the entities that the bridge joins, in order: the named ones, then the key entities.

    A row that is among both keeps its first position, as one that several communities give does (Eq. 14).
    """
    return list((dict(named) | dict(keys)).items())


def asks_for_paths(question: str) -> bool:
    """Return whether a question has a word for connections, or no listed word at all, as in another language.

    >>> asks_for_paths("How are A and B connected?"), asks_for_paths("Who met A and B?"), asks_for_paths("Jak A a B?")
    (True, False, True)
    """
    read = words(question)[:MAX_READ]
    spans = ((start, end) for start in range(len(read)) for end in range(start + 1, start + _MAX_LENGTH + 1))
    found = QUESTION_WORDS.intersection(" ".join(read[start:end]) for start, end in spans)
    return not found or not found.isdisjoint(CONNECTION_WORDS)


def along_first(ranked: Ranked, ends: NDArray[Any], paths: Sequence[Sequence[int]]) -> Ranked:
    """Return ranked relations with those along some paths first, in the order of the paths' steps.

    Args:
        ranked: (relation row, score), best first. Relations of one step keep this order, and so do all others.
        ends: (n_relations, 2) entity rows of all relations.
        paths: node rows of each.

    >>> import numpy as np
    >>> along_first([(0, 0.9), (1, 0.5), (2, 0.4)], np.array([[7, 8], [3, 2], [1, 2]]), [[1, 2, 3]])
    [(2, 0.4), (1, 0.5), (0, 0.9)]
    """
    steps: dict[tuple[int, int], int] = {}
    for path in paths:
        for one, other in pairwise(path):
            steps.setdefault((min(one, other), max(one, other)), len(steps))
    if not steps:
        return ranked
    pairs = np.sort(ends[[row for row, _ in ranked]], axis=1).tolist()
    step = [steps.get((one, other), len(steps)) for one, other in pairs]
    return [ranked[at] for at in sorted(range(len(ranked)), key=step.__getitem__)]


MAX_WORDS: Final = 16  # of a name; in scripts without spaces these are letters
_MAX_ROWS = 16  # entities of one name
_MAX_READ = 512  # words of a question
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1
_MAX_CHANGED_WORDS = 4  # of a name whose misspellings are looked up
_MAX_CHANGED_LETTERS = 24  # of a word
_OF_LENGTH = [n * pow(_FACTOR, n, 1 << 64) & _ALL_BITS for n in range(MAX_WORDS + 1)]  # added to a key of n words
_OF_LENGTHS = np.array(_OF_LENGTH, np.uint64)

Key = NDArray[np.uint64]


class NameIndex(NamedTuple):
    """Names of entities, by a hash of their words.

    Attributes:
        keys: (n,) uint64, ascending.
        rows: (n,) int32 entity of each; those of equal keys ascend.
    """

    keys: Key
    rows: NDArray[np.int32]


class NamePhrase(NamedTuple):
    """Words [start, end) of a question, and an entity of that name."""

    start: int
    end: int
    row: int


def words(text: str) -> list[str]:
    """Return the normalised words of a text.

    >>> words("Ｍarie Curie's 東京")
    ['marie', 'curie', 's', '東', '京']
    """
    return _WORD.findall(text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold())


def spelled_words(text: str) -> list[str]:
    """Return the words of a text as they are written; [] where case folding divides one of them.

    >>> spelled_words("Ｍarie Curie's work")
    ['Marie', 'Curie', 's', 'work']
    """
    found = _WORD.findall(text if text.isascii() else unicodedata.normalize("NFKC", text))
    return found if len(found) == len(words(text)) else []


def name_keys(names: Iterable[str]) -> tuple[Key, IntVector]:
    """Return (keys, positions) of the names of 1 to `MAX_WORDS` words.

    Returns:
        A key of each, and its position among the names.
    """
    keys, positions = [], []
    for position, name in enumerate(names):
        name_words = words(name)
        if 0 < len(name_words) <= MAX_WORDS:
            keys.append(_key(name_words))
            positions.append(position)
    return np.array(keys, np.uint64), np.array(positions, np.int64)


def sorted_names(keys: Key, rows: IntVector) -> NameIndex:
    """Return an index of names, sorted for look-ups."""
    order = np.lexsort((rows, keys))
    return NameIndex(keys[order], rows[order].astype(np.int32))


def found_names(
    names: NameIndex, read: Sequence[str], admits: Callable[[NDArray[np.int32]], Flags] | None = None
) -> list[NamePhrase]:
    """Return every phrase that is the name of an entity, by its start, end and row.

    Args:
        read: the words of the question; those after the first 512 are ignored.
        admits: entity rows → which of them count, before the first 16 of a name are taken; None: all.
    """
    numbers = np.fromiter(map(kept_term_key, read[:_MAX_READ]), np.uint64)
    spans = np.empty((len(numbers) * MAX_WORDS, 4), np.int64)
    count = _fill_spans(names.keys, numbers, _OF_LENGTHS, spans)
    phrases: list[NamePhrase] = []
    for start, end, first, last in spans[:count].tolist():
        rows = names.rows[first:last]
        rows = rows if admits is None else rows[admits(rows)]
        phrases += [NamePhrase(start, end, row) for row in rows[:_MAX_ROWS].tolist()]
    return phrases


@compiled
def _fill_spans(
    keys: Key, numbers: NDArray[np.uint64], of_lengths: NDArray[np.uint64], spans: NDArray[np.int64]
) -> Any:
    """Write (start, end, first, last) of every phrase with keys: its words, their positions. Return their number.

    Args:
        keys: of names, ascending.
        numbers: of the words of the question.
        of_lengths: added to a key, by its number of words.
    """
    count = 0
    for start in range(len(numbers)):
        phrase = np.uint64(0)
        for end in range(start + 1, min(start + MAX_WORDS, len(numbers)) + 1):
            phrase = phrase * np.uint64(_FACTOR) + numbers[end - 1]
            wanted = phrase + of_lengths[end - start]
            first = last = lower_bound(keys, 0, len(keys), wanted)
            while last < len(keys) and keys[last] == wanted:
                last += 1
            if last > first:
                spans[count, 0], spans[count, 1], spans[count, 2], spans[count, 3] = start, end, first, last
                count += 1
    return count


def similar_names(
    names: NameIndex, read: Sequence[str], admits: Callable[[NDArray[np.int32]], Flags] | None = None
) -> list[tuple[int, list[str]]]:
    """Return the entities whose names differ from a name by one letter: (row, words of the name), by row.

    A letter is missing, added or another, or two neighbours are exchanged. All such spellings are looked up by their
    hashes, so the time does not depend on the number of names.

    Args:
        read: the words of the name; longer words and longer names than names of entities usually have are not changed.
        admits: entity rows → which of them count; None: all.
    """
    if not 0 < len(read) <= MAX_WORDS:
        return []
    own, n = _key(read), len(read)
    changed: list[tuple[int, str]] = []
    keys = []
    for position, word in enumerate(read[:_MAX_CHANGED_WORDS]):
        factor = pow(_FACTOR, n - 1 - position, 1 << 64)
        for spelling in sorted(_spellings(word)):
            changed.append((position, spelling))
            keys.append((own + (term_key(spelling) - kept_term_key(word)) * factor) & _ALL_BITS)
    wanted = np.array(keys, np.uint64)
    first, last = (np.searchsorted(names.keys, wanted, side) for side in ("left", "right"))
    found = []
    for at in np.flatnonzero(last > first).tolist():
        rows = names.rows[first[at] : last[at]]
        rows = rows if admits is None else rows[admits(rows)]
        position, spelling = changed[at]
        found += [(row, [*read[:position], spelling, *read[position + 1 :]]) for row in rows[:_MAX_ROWS].tolist()]
    return sorted(found)


def _spellings(word: str) -> set[str]:
    """Return the words that differ from a word by one letter.

    >>> sorted(_spellings("ab") & {"ba", "a", "abs", "ax", "ab", "abcd"})
    ['a', 'abs', 'ax', 'ba']
    """
    if len(word) > _MAX_CHANGED_LETTERS:
        return set()
    letters = {*"abcdefghijklmnopqrstuvwxyz", *word}
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {head + tail[1:] for head, tail in splits if tail}
    found |= {head + tail[1] + tail[0] + tail[2:] for head, tail in splits if len(tail) > 1}
    found |= {head + letter + rest for head, tail in splits for letter in letters for rest in {tail, tail[1:]}}
    return found - {word, ""}


def rows_of(phrases: Iterable[NamePhrase]) -> list[int]:
    """Return the rows of some phrases in their order, each once."""
    return list(dict.fromkeys(phrase.row for phrase in phrases))


def longest_phrases(phrases: Iterable[NamePhrase]) -> list[NamePhrase]:
    """Return the longest phrases, in the order of the question; a word is part of one name.

    Of phrases that overlap the longest counts, of equally long ones the first. Entities of one name all count.

    >>> rows_of(longest_phrases([NamePhrase(0, 1, 5), NamePhrase(0, 2, 7), NamePhrase(0, 2, 9), NamePhrase(3, 4, 5)]))
    [7, 9, 5]
    """
    taken: set[int] = set()
    kept: dict[tuple[int, int], list[NamePhrase]] = {}
    for phrase in sorted(phrases, key=lambda one: (one.start - one.end, one.start, one.row)):
        span = (phrase.start, phrase.end)
        if span in kept:
            kept[span].append(phrase)
        elif taken.isdisjoint(range(*span)):
            taken.update(range(*span))
            kept[span] = [phrase]
    return [phrase for span in sorted(kept) for phrase in kept[span]]


def _key(phrase: Sequence[str]) -> int:
    key = 0
    for word in phrase:
        key = (key * _FACTOR + kept_term_key(word)) & _ALL_BITS
    return (key + _OF_LENGTH[len(phrase)]) & _ALL_BITS
