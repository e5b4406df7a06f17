"""Words by which a question shows its type, in German, English, Spanish, French and Chinese.

They are evidence for the choice of a mode (`mode_choice`), and never necessary: a question with none of them, as in any
other language, is classified by what the index says of it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Phrases are separated by bars or ends of lines, and languages follow each other. A phrase is words as
# `entity_linking.words` cuts them; in Chinese, every character is a word.
_FACT = """
who|whom|whose|when|where|which|what year|what time|how many|how much|how long|how old|how far|what is the name
wer|wem|wessen|wann|wo|welche|welcher|welches|wie viele|wie viel|wie lange|wie alt|wie weit|wie heisst
quien|quién|quienes|cuando|cuándo|dónde|cuál|cuánto|cuántos|cuántas|cuánta|en qué año|cómo se llama
qui|quand|où|quel|quelle|quels|quelles|combien|en quelle année|comment s appelle
谁|何时|什么时候|哪里|哪儿|哪年|哪个|哪一|多少|几个|多久|叫什么
"""
_COMPARISON = """
both|or|than|in common|difference between|differ|differs|different from|compare|compared to|compared with|the same
versus|vs|before|after|first or|earlier|older|oldest|larger|longer|bigger|more popular|which of the two
beide|beiden|oder|gemeinsam|unterschied zwischen|unterschiede zwischen|unterscheiden|unterscheidet|verglichen mit
im vergleich|derselbe|dieselbe|dasselbe|früher|älter|grösser|länger|bevor|nachdem
ambos|ambas|en común|diferencia entre|diferencias entre|diferencian|se diferencia|comparado con|comparación|mismo
misma|mayor que|más antiguo|más grande|antes de|después de
les deux|ou|en commun|différence entre|différences entre|diffèrent|diffère|comparé à|par rapport à|le même|la même
plus ancien|plus grand|avant de|avant que|après que
都是|都在|都有|还是|相同|不同|区别|差异|比较|相比|之前|之后|更早|更大|共同
"""
_PATH = """
connected|connection|connections|connect|connects|relationship|relation|related|relate|relates|link|links|linked
tied|associated with|have to do with|belong together|path from|leads to
verbunden|verbindung|verbindet|zusammenhang|hängt|hängen|beziehung|verhältnis|verknüpft|zu tun
conectado|conectados|conectada|conexión|relacionado|relacionada|relacionados|relación|vínculo|vinculado|que ver
lié|liée|liés|lien|liens|relation|rapport entre|connecté|connectés|à voir avec
关系|联系|关联|相关|有何关
"""
_CORPUS = """
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
"""
# Words of questions of every class: they show that the language is one of these.
_OTHER = """
what|why|how|is|are|was|were|did|does|do|has|have|can
wie|warum|ist|sind|hat|haben|wurde|wurden
qué|cómo|por qué|es|son|fue|fueron
que|quoi|comment|pourquoi|est|sont|ont
什么|怎么|为什么|如何|是|吗
"""


def _phrases(text: str) -> frozenset[str]:
    found: set[str] = set()
    for phrase in text.replace("\n", "|").split("|"):
        if phrase:
            ideographs = phrase[0] >= "\u4e00"
            found.add(" ".join(phrase) if ideographs else phrase)
    return frozenset(found)


WORDS_OF_CLASS: Final = {
    "fact": _phrases(_FACT),
    "comparison": _phrases(_COMPARISON),
    "path": _phrases(_PATH),
    "corpus-wide": _phrases(_CORPUS),
    "other": _phrases(_OTHER),
}
_ALL: Final = {phrase: name for name, phrases in WORDS_OF_CLASS.items() for phrase in sorted(phrases)}
_MAX_LENGTH: Final = max(phrase.count(" ") + 1 for phrase in _ALL)
MAX_READ: Final = 128  # words of a question


def question_words(read: Sequence[str]) -> dict[str, list[str]]:
    """Return the listed phrases of a question by class, in its order; only classes with one, "other" among them.

    Args:
        read: its normalised words (`entity_linking.words`).

    >>> question_words(["how", "are", "a", "and", "b", "connected"])
    {'other': ['how', 'are'], 'path': ['connected']}
    """
    found: dict[str, list[str]] = {}
    words = list(read[:MAX_READ])
    for start in range(len(words)):
        phrase = ""
        for word in words[start : start + _MAX_LENGTH]:
            phrase = f"{phrase} {word}" if phrase else word
            name = _ALL.get(phrase)
            if name is not None and phrase not in found.setdefault(name, []):
                found[name].append(phrase)
    return found
