"""Documents for benchmarks of updates: a corpus, its copies under other names, and a document with another sentence.

A copy replaces every word that fewer than a fifth of the documents use, by a cipher of vowels and consonants of its
own: the same word becomes the same new word all over the copy, so that names are consistent and its entities are new,
while common words, lengths and structure stay.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.settings import rows_of

_WORD = re.compile(r"[A-Za-z]+")
_VOWELS = "aeiou"
_CONSONANTS = "".join(letter for letter in string.ascii_lowercase if letter not in _VOWELS)
_COMMON_SHARE = 0.2
_SUFFIX = 3  # letters at the end of a word of more than twice as many: they tell what kind of word it is
_INSERTED = "Ottoline Farquhar of the Brindlewick Observatory disputed this account in a letter to Casimir Vanterpool."


@dataclass(frozen=True)
class CorpusFolder:
    """A folder with a text file for each document, which is changed between runs.

    Attributes:
        path: the folder, INPUT of the index.
    """

    path: Path

    def write(self, documents: Mapping[str, str]) -> None:
        """Have the folder hold these documents, name → text, and no others."""
        self.path.mkdir(parents=True, exist_ok=True)
        for old in self.path.glob("*.txt"):
            if old.stem not in documents:
                old.unlink()
        for name, text in documents.items():
            (self.path / f"{name}.txt").write_text(text, encoding="utf-8")


def read_corpus(path: Path, n_documents: int | None = None, copies: int = 1, seed: int = 0) -> dict[str, str]:
    """Return name → text of a corpus and its copies under other names, shuffled.

    Args:
        path: JSON lines with `text`.
        n_documents: how many of the first documents are taken; None for all.
        copies: how many times as many documents there are, the corpus itself included.
    """
    texts = [row["text"] for row in rows_of(path)][:n_documents]
    common = common_words(texts)
    documents = {
        f"c{copy:03d}-d{number:05d}": text if copy == 0 else renamed(text, copy, common)
        for copy in range(copies)
        for number, text in enumerate(texts)
    }
    names = sorted(documents)
    random.Random(seed).shuffle(names)
    return {name: documents[name] for name in names}


def common_words(texts: Sequence[str]) -> frozenset[str]:
    """Return the words, in lower case, that a fifth of the texts or more use."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({word.lower() for word in _WORD.findall(text)})
    return frozenset(word for word, count in counts.items() if count >= _COMMON_SHARE * len(texts))


def renamed(text: str, copy: int, common: frozenset[str]) -> str:
    """Return a text with all words replaced that are not common.

    >>> renamed("The Witch of Atlas", 1, frozenset({"the", "of"})) != "The Witch of Atlas"
    True
    >>> renamed("of the", 1, frozenset({"the", "of"}))
    'of the'
    """
    drawn = random.Random(copy)
    plain, coded = "", ""
    for letters in (_VOWELS, _CONSONANTS):
        cycle = "".join(drawn.sample(letters, len(letters)))  # each letter becomes the next one
        turned = cycle[1:] + cycle[0]
        plain, coded = plain + cycle + cycle.upper(), coded + turned + turned.upper()
    table = str.maketrans(plain, coded)

    def replaced(match: re.Match[str]) -> str:
        word = match[0]
        if word.lower() in common:
            return word
        kept = _SUFFIX if len(word) > 2 * _SUFFIX else 0
        return word[: len(word) - kept].translate(table) + word[len(word) - kept :]

    return _WORD.sub(replaced, text)


def with_new_sentence(text: str) -> str:
    """Return a text with one sentence in its middle replaced by one about new names.

    >>> with_new_sentence("One. Two and three. Four.").count(".")
    3
    """
    ends = [match.end() for match in re.finditer(r"[.!?]\s", text)]
    if len(ends) < 2:
        return f"{text.rstrip()} {_INSERTED}"
    at = len(ends) // 2
    first, last = ends[at - 1], ends[at]
    return f"{text[:first]}{_INSERTED}{text[last - 1 :]}"


def of_median_length(documents: Mapping[str, str]) -> str:
    """Return the name of the document of median length."""
    return sorted(documents, key=lambda name: (len(documents[name]), name))[len(documents) // 2]
