"""Exact match and F1 of a short answer against gold answers, as the evaluations to compare with define them.

The official scripts share one normalisation, that of SQuAD, and differ in three rules:

| | several gold answers | yes, no, noanswer | nothing left of both answers |
|---|---|---|---|
| HotpotQA, `hotpot_evaluate_v1.py` | there is one | a whole: F1 is 0 or 1 | exact match 1, F1 0 |
| 2WikiMultiHopQA, `2wikimultihop_evaluate_v1.1.py` | the best of each figure | as HotpotQA | as HotpotQA |
| MuSiQue, `metrics/answer.py`, after SQuAD 2 | the best of each figure | ordinary words | exact match 1, F1 1 |

The best over a single gold answer is its score, so `hotpotqa` is the definition of HotpotQA and 2WikiMultiHopQA. That
normalisation is made for English: it lowers letters, takes away the 32 punctuation marks of ASCII and the words a, an
and the, and splits at white space. Quotes like “ ” and « », full stops like 。 and articles of other languages stay,
composed and decomposed letters differ, and a text without spaces is one token, so that its F1 is its exact match.
`unicode` is a definition of our own for such texts; its figures are not comparable with published ones.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.core.text.tokens import encoding

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = {ord(mark): None for mark in string.punctuation}
_NO_WORD_NO_SPACE = re.compile(r"[^\w\s]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SENTENCE_END = re.compile(r"[.!?\n。！？]")

REFUSALS = (
    "I do not know",
    "I don't know",
    "Insufficient information",
    "Not enough information",
    "No answer",
    "NoAnswer",
    "Unanswerable",
    "Unknown",
)


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """One answer against its gold answers; every figure is the best over these, each by itself."""

    exact: float
    f1: float
    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class ScoreDefinition:
    """Definition of equal answers and of shared tokens.

    Attributes:
        form: text → what must be equal for an exact match.
        tokens: text → what F1 counts, as a multiset.
        whole: forms of which F1 is 0 unless both answers are equal.
        f1_of_nothing: F1, precision and recall where neither answer has a token.
    """

    form: Callable[[str], str]
    tokens: Callable[[str], Sequence[Hashable]]
    whole: frozenset[str] = frozenset()
    f1_of_nothing: float = 0.0


def normalised(text: str) -> str:
    """Return a text in the form that HotpotQA, 2WikiMultiHopQA and MuSiQue compare.

    >>> normalised("The  Beatles' “Let It Be”!")
    'beatles “let it be”'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def unicode_normalised(text: str) -> str:
    """Return a text in composed form and without case, punctuation and symbols of any script; articles stay.

    >>> unicode_normalised("«Straße», 東京。")
    'strasse 東京'
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(mark for mark in folded if unicodedata.category(mark)[0] not in "PS").split())


def _words(text: str) -> list[str]:
    return normalised(text).split()


def _unicode_words(text: str) -> list[str]:
    return _UNSPACED.sub(lambda letter: f" {letter[0]} ", unicode_normalised(text)).split()


def _reference_form(text: str) -> str:
    return " ".join(_NO_WORD_NO_SPACE.sub("", text.strip().lower()).split())


def _reference_tokens(text: str) -> list[int]:
    return encoding("cl100k_base").encode_ordinary(text)


_HOTPOTQA = ScoreDefinition(normalised, _words, frozenset({"yes", "no", "noanswer"}))

DEFINITIONS: Mapping[str, ScoreDefinition] = {
    "hotpotqa": _HOTPOTQA,
    "musique": ScoreDefinition(normalised, _words, f1_of_nothing=1.0),
    # the HiRAG reference's evaluation (Table 2 of its paper): articles stay, and F1 is over cl100k tokens as written
    "hirag": ScoreDefinition(_reference_form, _reference_tokens),
    "unicode": ScoreDefinition(unicode_normalised, _unicode_words, f1_of_nothing=1.0),
}


def score_answer(answer: str, gold: Sequence[str], definition: ScoreDefinition = _HOTPOTQA) -> AnswerScore:
    """Return how near an answer comes to the nearest of its gold answers.

    Args:
        answer: as given, at any length.
        gold: answers that are each right; a question's answer and its aliases.
        definition: one of `DEFINITIONS`.

    Raises:
        ValueError: no gold answer.

    >>> score_answer("the year 1755", ["1755"])
    AnswerScore(exact=0.0, f1=0.6666666666666666, precision=0.5, recall=1.0)
    """
    if not gold:
        raise ValueError("an answer needs at least one gold answer to be scored")
    scores = [_against(answer, one, definition) for one in gold]
    return AnswerScore(
        max(score.exact for score in scores),
        max(score.f1 for score in scores),
        max(score.precision for score in scores),
        max(score.recall for score in scores),
    )


def is_refusal(answer: str, refusals: Sequence[str] = REFUSALS) -> bool:
    """Check for a refusal: the whole answer, or its first sentence, is one of `refusals`.

    An answer that says so in words of its own is not recognised; add the words that a model uses.

    >>> is_refusal("I do not know. The context names no year."), is_refusal("Unknown Pleasures"), is_refusal("")
    (True, False, True)
    """
    forms = {unicode_normalised(refusal) for refusal in refusals}
    first = _SENTENCE_END.split(answer.strip(), maxsplit=1)[0]
    return not unicode_normalised(answer) or bool({unicode_normalised(answer), unicode_normalised(first)} & forms)


def _against(answer: str, gold: str, definition: ScoreDefinition) -> AnswerScore:
    form, wanted = definition.form(answer), definition.form(gold)
    exact = float(form == wanted)
    if not exact and (form in definition.whole or wanted in definition.whole):
        return AnswerScore(0.0, 0.0, 0.0, 0.0)
    given, right = definition.tokens(answer), definition.tokens(gold)
    if not given and not right:
        nothing = definition.f1_of_nothing
        return AnswerScore(exact, nothing, nothing, nothing)
    shared = sum((Counter(given) & Counter(right)).values())
    if not shared:
        return AnswerScore(exact, 0.0, 0.0, 0.0)
    precision, recall = shared / len(given), shared / len(right)
    return AnswerScore(exact, 2 * precision * recall / (precision + recall), precision, recall)
