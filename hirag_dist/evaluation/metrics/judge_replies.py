"""Parser of a judge's reply: verdicts on two answers in the many forms that models give them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hirag_dist.core.prompts.records import json_object
from hirag_dist.core.prompts.reply_validation import MalformedReply, usable_text
from hirag_dist.core.text.normalize import one_line
from hirag_dist.types import ChatReply

FIRST, SECOND, TIE = 1, 2, 0

_ONE = r"1|a|one|first|①|１"
_TWO = r"2|b|two|second|②|２"
_NOUN = r"(?:answer|response|assistant|option|candidate|system|model|text|the)"
_FORMS: Final = tuple(
    (winner, re.compile(rf"(?:the\s+)?(?:{_NOUN}\s*[-_#:]?\s*)?(?:{names})(?:\s+{_NOUN})?(?:\s+(?:wins|is\s+better))?"))
    for winner, names in ((FIRST, _ONE), (SECOND, _TWO))
)
_TIE: Final = re.compile(
    r"(?:it(?:['’]s|\s+is)\s+)?(?:a\s+)?(?:tie|draw)|tied|drawn|even|equal(?:s|ly)?|same|similar|0|c|no(?:\s+winner|ne)"
    r"|(?:both|neither)(?:\s+answers?)?|both\s+are\s+equal|unentschieden|égalité|empate|pareggio|ничья|平局|引き分け"
    r"|무승부"
)
_BARE_LIST: Final = re.compile(r"\A\s*(?:```\w*\s*)?(\[\s*\{.*\}\s*,?\s*\])\s*(?:```)?\s*\Z", re.DOTALL)
_ITEM: Final = re.compile(r"\A\s*(?:\(?\d{1,2}[.)]\s+|[-*•#>]+\s*)+")
_EDGES = " \t\r\n\"'`*_.,;:!()[]{}<>“”‘’«»"
_WINNER_KEYS = ("winner", "better", "verdict", "preferred", "choice", "decision", "result", "answer")
_REASON_KEYS = ("reason", "explanation", "reasoning", "rationale", "justification", "why")
_CRITERION_KEYS = ("criterion", "criteria", "dimension", "metric", "measure", "name")
_ROUNDED = {1.0: FIRST, 2.0: SECOND, 0.0: TIE}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The better answer by one criterion: `FIRST` or `SECOND` as they were shown, or `TIE`; and the reason."""

    winner: int
    reason: str = ""


def winner_of(said: object) -> int | None:
    """Return the answer that a value names as the better one, or None where that is ambiguous.

    Args:
        said: "Answer 1", "1", 1, "A", "[[B]]", "first", "tie", 0, …

    >>> winner_of("**Answer 2**"), winner_of("[[A]]"), winner_of("tie"), winner_of("Answer 1 or Answer 2")
    (2, 1, 0, None)
    """
    if isinstance(said, bool) or said is None:
        return None
    if isinstance(said, int | float):
        return _ROUNDED.get(float(said))
    if not isinstance(said, str):
        return None
    shown = one_line(said).strip(_EDGES)
    text = shown.casefold()
    if _TIE.fullmatch(text):
        return TIE
    for winner, form in _FORMS:
        if form.fullmatch(text):
            return winner
    return None


def parse_verdicts(reply: ChatReply, criteria: Sequence[str]) -> dict[str, Verdict]:
    """Return a judge's verdict on every criterion, in the order of `criteria`.

    Read are the requested form, its list alone, an object with a key for each criterion, one with a bare winner where
    one criterion was asked for, and lines "criterion: winner". What else is said is left out.

    Raises:
        MalformedReply: the reply can't be used, or a criterion has no plain verdict, or two that contradict each other.
    """
    text = usable_text(reply)
    bare = _BARE_LIST.match(text)
    data = json_object(f'{{"verdicts": {bare[1]}}}' if bare else text)
    found = _from_lines(text, criteria) if data is None else _from_object(data, criteria)
    verdicts: dict[str, Verdict] = {}
    for criterion in criteria:
        said = found.get(criterion, [])
        winners = {winner_of(winner) for winner, _ in said}
        if not said:
            raise MalformedReply(f"there is no verdict on {criterion}")
        if None in winners:
            raise MalformedReply(f"the winner of {criterion} is not 1, 2 or tie: {one_line(str(said[0][0]))[:60]}")
        if len(winners) > 1:
            raise MalformedReply(f"there are contradicting verdicts on {criterion}")
        winner = winners.pop()
        assert winner is not None
        verdicts[criterion] = Verdict(winner, said[0][1])
    return verdicts


_Said = dict[str, list[tuple[object, str]]]


def _from_object(data: Mapping[str, Any], criteria: Sequence[str]) -> _Said:
    folded = {_key(name): value for name, value in data.items()}
    inner = folded.get("verdicts")
    if isinstance(inner, dict):  # by criterion, not in a list
        folded = {_key(name): value for name, value in inner.items()}
    listed = next((value for value in folded.values() if _holds_objects(value)), None)  # other lists may hold reasons
    found: _Said = {}
    if listed is not None:
        for item in listed:
            if isinstance(item, dict):
                entry = {_key(name): value for name, value in item.items()}
                named = _criterion(_first(entry, _CRITERION_KEYS), criteria)
                if named:
                    found.setdefault(named, []).append(_entry(entry))
        return found
    for name, value in folded.items():
        named = _criterion(name, criteria)
        if named:
            entry = {_key(part): said for part, said in value.items()} if isinstance(value, dict) else {"winner": value}
            found.setdefault(named, []).append(_entry(entry))
    if not found and len(criteria) == 1 and _first(folded, _WINNER_KEYS) is not None:
        found[criteria[0]] = [_entry(folded)]
    return found


def _holds_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _from_lines(text: str, criteria: Sequence[str]) -> _Said:
    found: _Said = {}
    for line in text.splitlines():
        name, mark, rest = _ITEM.sub("", line).partition(":")
        named = _criterion(name, criteria)
        if mark and named and rest.strip():
            found.setdefault(named, []).append((rest, ""))
    if not found and len(criteria) == 1:
        boxed = re.findall(r"\[\[\s*([^\[\]]{1,20}?)\s*\]\]", text)
        if boxed:
            found[criteria[0]] = [(boxed[-1], "")]
    return found


def _entry(entry: Mapping[str, Any]) -> tuple[object, str]:
    reason = _first(entry, _REASON_KEYS)
    return _first(entry, _WINNER_KEYS), reason if isinstance(reason, str) else ""


def _first(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((entry[key] for key in keys if entry.get(key) is not None), None)


def _criterion(name: object, criteria: Sequence[str]) -> str | None:
    """Return the criterion that a name means; a judge may write "Overall Winner"."""
    if not isinstance(name, str):
        return None
    folded = _key(name)
    return next((each for each in criteria if folded.removesuffix("winner").strip() == _key(each)), None)


def _key(name: str) -> str:
    return one_line(name.replace("_", " ")).strip(_EDGES).casefold()
