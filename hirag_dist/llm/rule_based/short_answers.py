"""Answers of a few words: a number, a date, a name or yes or no, picked from the sentences that match the question.

The question's first words, in English, determine the kind of answer; for other questions it is a name. A rule cannot
reason over several sentences, so on questions that need it this is a stand-in and a floor, not a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hirag_dist.llm.rule_based.answers import NOT_KNOWN, best_sentences, wanted_words
from hirag_dist.llm.rule_based.cjk import find_unspaced
from hirag_dist.llm.rule_based.language import UNSPACED, content_words
from hirag_dist.llm.rule_based.map_reduce import points_of
from hirag_dist.llm.rule_based.names import Spelling, find_names
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.sentences import tokens
from hirag_dist.llm.rule_based.word_lists import word_set

_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(rf"(?:{_DAY} )?{_MONTH}(?: {_DAY}\b)?(?:,? \d{{4}})?|\b1\d{{3}}\b|\b20\d{{2}}\b")
_YEAR = re.compile(r"\b(?:1\d{3}|20\d{2})\b")
_AMOUNT = re.compile(r"[$€£]?\d[\d,.]*\d(?: (?:million|billion|thousand|percent))?%?|\d%?")
_WHEN = re.compile(r"\b(?:when|what (?:date|day|month)|which (?:date|day|month))\b", re.IGNORECASE)
_WHAT_YEAR = re.compile(r"\b(?:what|which) year\b", re.IGNORECASE)
_HOW_MANY = re.compile(r"\bhow (?:many|much|long|old|far|tall|high|large|big)\b|\bpopulation\b", re.IGNORECASE)
_YES_NO = word_set("is are was were do does did has have had can could will would should may might")
_EITHER = re.compile(r",? or ", re.IGNORECASE)
_MIN_HELD = 0.75  # share of the question's words in the sentences from which on it is answered by yes


def short_answer(ask: ParsedRequest) -> str:
    """Return the reply to short-answer: a few words of the context, yes or no, or that it is not known."""
    question = ask.between("question")
    context = ask.between("context")
    texts = [each.text for each in best_sentences(context, wanted_words(question))] or points_of(context)
    if not texts:
        return NOT_KNOWN.rstrip(".")
    if question.split(maxsplit=1)[0].lower() in _YES_NO and not _EITHER.search(question):
        words = frozenset(content_words(question))
        held = words.intersection(content_words(" ".join(texts)))
        return "yes" if len(held) >= _MIN_HELD * len(words) else "no"
    for asked_for, pick in _PICKS.items():
        if asked_for.search(question) and (found := _first(texts, pick, question)):
            return found
    return _name(texts, question) or NOT_KNOWN.rstrip(".")


def _first(texts: Sequence[str], pick: re.Pattern[str], question: str) -> str:
    """Return the first match in the best sentence that has one which the question does not name."""
    return next((match[0] for text in texts for match in pick.finditer(text) if match[0] not in question), "")


def _name(texts: Sequence[str], question: str) -> str:
    """Return the name that stands in the best sentences and not in the question; of equal ones the first."""
    spaced = [words for text in texts if (words := tokens(text))]
    found = (
        find_unspaced(texts) if any(UNSPACED.search(text) for text in texts) else find_names(spaced, Spelling(spaced))
    )
    asked_about = frozenset(content_words(question))
    options = [one for one in found if not asked_about.issuperset(content_words(one.name))]
    if _EITHER.search(question):  # one of the things that the question names
        options = [one for one in found if one.name.lower() in question.lower()] or options
    best = min(options, key=lambda one: (-sum(1 / (1 + row) for row, _ in one.places), one.places), default=None)
    return best.name if best else ""


_PICKS: Mapping[re.Pattern[str], re.Pattern[str]] = {_WHAT_YEAR: _YEAR, _WHEN: _DATE, _HOW_MANY: _AMOUNT}
