"""Entities that a question names: one for each named phrase, for the local level and as endpoints of the bridge.

"How is A connected to B?" asks for the path from A to B. The paper joins key entities of communities alone (Eq. 14–15);
here the named entities come before them, so that the first paths are the ones that were asked for. In the local level
(Eq. 12) the named entities come before the nearest ones. `retrieval.fidelity: paper` leaves both out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from hirag_dist.core.retrieval.entity_linking import NamePhrase, spelled_words, words

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
        question: text.
        phrases: its longest names (`entity_linking.longest_phrases`).
        layers: (n_entities,) of each entity.
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
        named: by the question, in its order.
        nearest: to the question.
        closeness: row → similarity to the question, of the named ones.
        limit: entities in all.

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
    pairs: list[list[int]] = ends[[row for row, _ in ranked]].tolist()
    step = {row: steps.get((min(pair), max(pair)), len(steps)) for (row, _), pair in zip(ranked, pairs, strict=True)}
    return sorted(ranked, key=lambda one: step[one[0]])
