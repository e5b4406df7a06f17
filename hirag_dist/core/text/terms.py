"""Terms of a text, by which texts are found word for word: one tokenisation for chunks and for questions.

No language is assumed: there is no stemming and no list of stop words. Case, the width of letters, and the accents of
Latin letters do not matter.

  words       of scripts with spaces, with the vowel signs of Indian scripts
  bigrams     of two characters, where words are not set apart (Chinese, Japanese, Thai, Lao, Khmer, Myanmar, Tibetan)
              and in Korean, where particles are attached to words; a character that stands alone is a term
  codes       of letters and digits, with signs between them (`AB-1234/5`, `3.14`, `v2`): the whole, and its parts
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from hirag_dist.core.text.normalize import UNSPACED

MAX_CHARS: Final = 64  # of a term: longer ones, such as encoded data, are cut
_BIGRAMS = UNSPACED + "\u1100-\u11ff\uac00-\ud7a3"  # with Korean
MARKS: Final = "\u0300-\u036f\u0483-\u0487\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0d7f\u200c\u200d"
_LETTERS = rf"(?:[^\W_{_BIGRAMS}][{MARKS}]*)+"
_RUN = re.compile(rf"[{_BIGRAMS}]+|{_LETTERS}(?:[-.,/:_&@+#]{_LETTERS})*[+#]*")
_ASCII_RUN = re.compile(r"[a-z0-9]+(?:[-.,/:_&@+#][a-z0-9]+)*[+#]*")
_WORD = re.compile(_LETTERS)
_PIECE = re.compile(r"\d+|\D+")
_BIGRAM_RUN = re.compile(rf"[{_BIGRAMS}]")
_CODE = re.compile(r"[\d+#_@&]")
_ACCENTS = re.compile(
    "(?<=[a-z])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670]"
)


def terms(text: str) -> list[str]:
    """Return the terms of a text, in its order.

    >>> terms("Curie's AB-12, 3.14")
    ['curie', 's', 'ab-12', 'ab', '12', '3.14', '3', '14']
    >>> terms("東京都 GPT4")
    ['東京', '京都', 'gpt4', 'gpt', '4']
    """
    return [term for run in runs(text) for term in terms_of_run(run)]


def runs(text: str) -> list[str]:
    """Return the runs of a text that are tokenised each for itself."""
    if text.isascii():
        return _ASCII_RUN.findall(text.lower())
    folded = unicodedata.normalize("NFKD", text).casefold()
    bare = _ACCENTS.sub("", folded)  # with the points of Hebrew and Arabic, which are written seldom
    return _RUN.findall(unicodedata.normalize("NFC", bare))


@lru_cache(1 << 16)
def terms_of_run(run: str) -> tuple[str, ...]:
    """Return the terms of one run."""
    if _BIGRAM_RUN.match(run):
        return tuple(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    if run.isalpha():
        return (run[:MAX_CHARS],)
    found = [run] if _CODE.search(run) else []
    for word in _WORD.findall(run):
        if word != run or not found:
            found.append(word)
        pieces = _PIECE.findall(word)
        if len(pieces) > 1:
            found += pieces
    return tuple(term[:MAX_CHARS] for term in found)
