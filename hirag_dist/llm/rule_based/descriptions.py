"""Replies about descriptions: one of many, by the most central sentences; and whether two are of one entity."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from hirag_dist.core.prompts.templates import DONE, FIELD
from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.language import UNSPACED, content_words
from hirag_dist.llm.rule_based.requests import ParsedRequest, safe
from hirag_dist.llm.rule_based.sentences import sentences

_MAX_WORDS = re.compile(r"at most\s+(\d+)\s+words|(\d+)\s+words")
_DEFAULT_WORDS = 120
_ENTITY = re.compile(r"^\d+\. (.*?) \(([^()]{0,80})\)(?:: (.*))?$")
_MIN_SHARED = 0.6  # of the words that the shorter description has


def describe(ask: ParsedRequest) -> str:
    """Return the reply to describe."""
    match = _MAX_WORDS.search(ask.system)
    limit = int(match.group(1) or match.group(2)) if match else _DEFAULT_WORDS
    given = [line.removeprefix("- ") for line in ask.between("descriptions").split("\n") if line.strip()]
    pieces = [safe(sentence, 600) for text in given for sentence in sentences(text)]
    text = " ".join(central([piece for piece in pieces if piece], limit))
    return text or ask.between("entity") or "unknown"


def central(pieces: Sequence[str], n_words: int, n_most: int = 40) -> list[str]:
    """Return the pieces that say most of what the others say too, without repeating, within a number of words."""
    bags = [frozenset(content_words(piece)) for piece in pieces]
    shared = Counter(word for bag in dict.fromkeys(bags) for word in sorted(bag))
    worth = [sum(shared[word] for word in sorted(bag)) / (8 + len(bag)) for bag in bags]
    chosen: list[int] = []
    left = n_words
    for place in sorted(range(len(pieces)), key=lambda place: (-worth[place], place))[:200]:
        if any(_near(bags[place], bags[other]) for other in chosen):
            continue
        size = words_in(pieces[place])
        if size > left:
            continue
        chosen.append(place)
        left -= size
        if len(chosen) == n_most:
            break
    if not chosen and pieces:
        return [_cut(pieces[0], n_words)]
    return [pieces[place] for place in chosen]


def words_in(text: str) -> int:
    """Return the length of a text in words; two characters of an unspaced script count as one."""
    return text.count(" ") + 1 + len(UNSPACED.findall(text)) // 2


def _near(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= 0.75 * max(min(len(one), len(other)), 1)


def _cut(text: str, n_words: int) -> str:
    if UNSPACED.search(text):
        return shorten(text, 2 * n_words)
    return " ".join(text.split(" ")[:n_words])


def same_entity(ask: ParsedRequest) -> str:
    """Return the reply to same-entity: yes where one description spells the other name out, or says much the same."""
    found = [_ENTITY.match(line) for line in ask.between("entities").split("\n")]
    told = [(each.group(1), each.group(3) or "") for each in found if each is not None]
    same, reason = _judged(*told[:2]) if len(told) >= 2 else (False, "there are not two entities")
    if ask.form is not None:
        return json.dumps({"same": same, "reason": reason}, ensure_ascii=False)
    return f"answer{FIELD}{'yes' if same else 'no'}{FIELD}{reason}\n{DONE}"


def _judged(one: tuple[str, str], other: tuple[str, str]) -> tuple[bool, str]:
    (short, of_short), (long, of_long) = sorted((one, other), key=lambda told: len(told[0]))
    words, all_words = set(name_key(short).split()), set(name_key(long).split())
    if not words <= all_words:
        return False, "each name has words of its own"
    if name_key(long) in name_key(of_short):
        return True, safe(f"the description of {short} says {long}")
    ours, theirs = set(content_words(of_short)) - words, set(content_words(of_long)) - words
    fewer = min(len(ours), len(theirs))
    if fewer >= 4 and len(ours & theirs) >= _MIN_SHARED * fewer:
        return True, "the descriptions say much the same"
    return False, "nothing says that they are one"
