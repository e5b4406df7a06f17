"""Comparison of the language of a reply with that of its source text; reports only clear differences.

Names and quotations in another language are ordinary, so all descriptions of a reply are tested together. Texts that
are too short, mixed, or in an unknown language pass.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_SAMPLE_CHARS = 4000  # characters of each text that are examined
_MIN_READ, _MIN_WRITTEN = 200, 80  # letters needed in the source and in the reply
_MIN_MAIN_SHARE, _MAX_FOREIGN_SHARE = 0.85, 0.2  # share of one script in the source, and its largest share in the reply
_MIN_WORDS, _MIN_COMMON = 40, 6  # words needed, and distinct common words of a language among them
_MIN_OWN_SHARE, _MAX_OTHER_SHARE = 0.2, 0.04  # share of common words: of the language of the text, of another language

_SCRIPTS: Mapping[str, str] = {
    "Latin": "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ",
    "Cyrillic": "Ѐ-ԯ",
    "Greek": "Ͱ-Ͽἀ-῾",
    "Arabic": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    "Hebrew": "\u0590-\u05ff",
    "Devanagari": "\u0900-\u097f",
    "Thai": "\u0e00-\u0e7f",
    "Chinese or Japanese": "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
    "Korean": "\u1100-\u11ff\uac00-\ud7af",
}
_LETTERS = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}
_KANA = re.compile("[\u3041-\u30fa]")
_ASCII = re.compile(r"[\x00-\x7f]+")
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())
_WORD = re.compile(r"[^\W\d_]+")

# Words that make up much of any text in one language and stand in few texts of the others.
_COMMON: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "English": "the and of to is was that with for from by which are were this his her their has have as at",
        "German": "der und ist das den dem von mit zu ein eine einer eines des sich auf für nicht wird als auch bei im",
        "French": "le les et est des du une dans par qui que pour sur avec au aux ce cette sont été ses sa il elle",
        "Spanish": "el los las y es del una que en por con para como su sus se lo al fue está son más entre",
        "Italian": "il gli è di che della delle dei del nel nella con per una sono come dal dalla alla si suo ed",
        "Portuguese": "os um uma do da dos das em no na que com para por é são como foi seu sua ao pelo pela mais não",
        "Dutch": "het een van en is dat op te met voor zijn niet aan door wordt als bij ook naar deze werd",
        "Swedish": "och att det som en ett av är på för med den till inte har om var från hans",
        "Polish": "na się jest do nie że przez to jak oraz od który która jego dla był po są",
    }.items()
}


def other_language(written: Iterable[str], read: str) -> str:
    """Return a message if the descriptions and the text are clearly in different languages, else an empty text.

    Args:
        written: the descriptions of one reply.
        read: what the model was given to read.

    >>> other_language(["孙悟空是花果山水帘洞的美猴王，神通广大。" * 5], "The monk went west. " * 20)
    'the descriptions are in Chinese or Japanese script, the text is in Latin script'
    """
    written_text = " ".join(written)[:_SAMPLE_CHARS]
    text = read[:_SAMPLE_CHARS]
    here, there = _scripts(written_text), _scripts(text)
    if here.total() < _MIN_WRITTEN or there.total() < _MIN_READ:
        return ""
    own, n_own = there.most_common(1)[0]
    used, n_used = here.most_common(1)[0]
    if n_own < _MIN_MAIN_SHARE * there.total():
        return ""
    if here[own] <= _MAX_FOREIGN_SHARE * here.total() and n_used > here.total() / 2:
        return f"the descriptions are in {used} script, the text is in {own} script"
    if own == used == "Latin":
        written_words, words = _words(written_text), _words(text)
        text_language = _language(words)
        if text_language and _share(written_words, text_language, least=0) <= _MAX_OTHER_SHARE:
            reply_language = _language(written_words)
            return f"the descriptions are in {reply_language}, the text is in {text_language}" if reply_language else ""
    if own == used == "Chinese or Japanese" and _kana(text) > 0.2 and _kana(written_text) == 0:
        return "the descriptions are in Chinese, the text is in Japanese"
    return ""


def _scripts(text: str) -> Counter[str]:
    """Return letters by script. Most texts are mostly ASCII, so that is counted apart, and fast."""
    found = Counter({"Latin": len(text.encode("ascii", "ignore").translate(None, _NO_LETTERS))})
    if not text.isascii():
        rest = _ASCII.sub("", text)
        found.update({name: len(letters.findall(rest)) for name, letters in _LETTERS.items()})
    return found


def _kana(text: str) -> float:
    return len(_KANA.findall(text)) / max(len(_LETTERS["Chinese or Japanese"].findall(text)), 1)


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def _language(words: Counter[str]) -> str:
    """Return the language that a text in Latin script is surely in, or an empty text."""
    shares = sorted(((_share(words, name, _MIN_COMMON), name) for name in _COMMON), reverse=True)
    (best, name), (second, _) = shares[0], shares[1]
    return name if best >= _MIN_OWN_SHARE and best > 1.8 * second else ""


def _share(words: Counter[str], language: str, least: int) -> float:
    """Return the share of words among the commonest of a language; 0 for few words, or fewer kinds than `least`."""
    n_words = words.total()
    counts = [words[word] for word in _COMMON[language] if word in words]
    return sum(counts) / n_words if n_words >= _MIN_WORDS and len(counts) >= least else 0.0
