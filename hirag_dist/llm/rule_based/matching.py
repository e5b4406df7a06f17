"""Test of two entities for identity, by the words of their names and descriptions."""

from __future__ import annotations

import json
import re

from hirag_dist.core.prompts.templates import DONE, FIELD
from hirag_dist.core.text.normalize import name_key
from hirag_dist.llm.rule_based.language import content_words
from hirag_dist.llm.rule_based.records import safe
from hirag_dist.llm.rule_based.requests import ParsedRequest

_ENTITY = re.compile(r"^\d+\. (.*?) \(([^()]{0,80})\)(?:: (.*))?$")
_MIN_SHARED = 0.6  # of the words that the shorter description has


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
