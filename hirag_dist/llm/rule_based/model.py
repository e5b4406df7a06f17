"""The built-in model: a conversation in, the reply out. Rules and counting, no language model.

Extraction, descriptions and reports are here; summaries and answers have files of their own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hirag_dist.core.prompts.templates import BAR, DONE, FIELD
from hirag_dist.core.text.normalize import is_name, name_key, shorten
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based.answers import answer, map_answer, reduce_answer, short_answer, summarise
from hirag_dist.llm.rule_based.finder import best_names, described, find_entities, related
from hirag_dist.llm.rule_based.language import UNSPACED, content_words, is_alike, sentences, split_sentences
from hirag_dist.llm.rule_based.requests import (
    EntityLine,
    ParsedRequest,
    asked,
    each_unit,
    listed_types,
    safe,
    safe_name,
    type_word,
    write,
)
from hirag_dist.types import ChatReply, ChatRequest, FoundName, Message, RateLimits

_RECORD = re.compile(r"^\s*\[?([ERC]\d+)\]?[.:)]?\s+(.*)$")
_NAMED = re.compile(r"^(.*?)(?: \([^()]{0,80}\))?(?:: (.*))?$")
_PAIR = re.compile(r"^(.*?) (?:—|–|->|--|→|-) (.*?)(?: \([^()]{0,80}\))?(?:: (.*))?$")
_SHOWN = re.compile(r"^(E\d+)-(E\d+)(?:: (.*))?$")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+")
_N_FINDINGS = 6


@dataclass(frozen=True, slots=True)
class _Line:
    """A record of a community: an entity, a relation with the names of both ends, or the report of a part."""

    ref: str
    names: tuple[str, ...]
    text: str


class _Finding(NamedTuple):
    summary: str
    explanation: str
    references: list[str]


def report(ask: ParsedRequest) -> str:
    """Return the reply to report."""
    entities = [_entity(*one) for one in _lines(ask.between("entities"))]
    shown = {line.ref: line for line in entities}
    relations = [_relation(*one, shown) for one in _lines(ask.between("relations"))]
    below = [_entity(*one) for one in _lines(ask.between("reports"))]
    ties = Counter(name_key(name) for line in relations for name in line.names)
    ranked = sorted(entities, key=lambda line: -ties[name_key(line.names[0])])
    main = ranked[:3] or below[:3] or [line for line in relations[:2] if line.names]
    title = safe(" · ".join(shorten(line.names[0], 60) for line in main) or "unknown", 200)
    told = [_sentence(line.text) for line in [*main, *ranked[3:6], *below[:3], *relations[:3]] if line.text]
    names = ", ".join(line.names[0] for line in ranked[:12])
    summary = safe(" ".join(list(dict.fromkeys(told))[:5]) or names or "unknown", 900)
    findings = _findings(ranked, relations, below)
    if ask.form is not None:
        found = [one._asdict() for one in findings]
        return json.dumps({"title": title, "summary": summary, "findings": found}, ensure_ascii=False)
    lines = [BAR.join(("finding", one.summary, one.explanation, " ".join(one.references))) for one in findings]
    return "\n".join([f"title{BAR}{title}", f"summary{BAR}{summary}", *lines, DONE])


def _lines(text: str) -> list[tuple[str, str]]:
    """Return (reference, rest) of each record; lines without a reference belong to the record above."""
    found: list[tuple[str, str]] = []
    for line in text.split("\n"):
        match = _RECORD.match(line)
        if match:
            found.append((match.group(1), match.group(2)))
        elif found and line.strip():
            ref, before = found[-1]
            found[-1] = (ref, f"{before} {line.strip()}" if len(before) < 1200 else before)
    return found


def _entity(ref: str, rest: str) -> _Line:
    match = _NAMED.match(rest)
    name, text = match.groups() if match else (rest, "")
    return _Line(ref, (safe(name, 120),), safe(text or "", 600))


def _relation(ref: str, rest: str, shown: Mapping[str, _Line]) -> _Line:
    """Return a relation; one without a text of its own has that of its first entity."""
    match = _SHOWN.match(rest) or _PAIR.match(rest)
    if match is None:
        return _Line(ref, (), safe(rest, 400))
    ends = [shown[end] if end in shown else _Line(end, (safe(end, 120),), "") for end in match.groups()[:2]]
    told = match.group(3) or next((end.text for end in ends if end.text), "")
    return _Line(ref, (ends[0].names[0], ends[1].names[0]), safe(told, 400))


def _sentence(text: str) -> str:
    cut = shorten(_SENTENCE.split(text.strip(), maxsplit=1)[0], 260)
    return cut if cut.endswith((".", "!", "?", "…", "。", "！", "？")) else f"{cut}."


def _findings(ranked: Sequence[_Line], relations: Sequence[_Line], below: Sequence[_Line]) -> list[_Finding]:
    """Return a finding for each leading entity with its relations, then for sub-communities; at least two."""
    findings: list[_Finding] = []
    used: set[str] = set()
    for line in [*ranked[:8], *below[:4]]:
        own = name_key(line.names[0])
        mine = [one for one in relations if one.ref not in used and own in map(name_key, one.names)][:3]
        texts = list(dict.fromkeys(_sentence(one.text) for one in [line, *mine] if one.text))
        if texts and len(findings) < _N_FINDINGS:
            used.update(one.ref for one in mine)
            others = dict.fromkeys(name for one in mine for name in one.names if name_key(name) != own)
            about = ", ".join(others) or shorten(texts[0], 120)
            refs = [line.ref, *(one.ref for one in mine)]
            findings.append(_Finding(safe(f"{line.names[0]}: {about}", 240), safe(" ".join(texts), 800), refs))
    for line in [*ranked, *relations, *below]:
        if len(findings) > 1:
            break
        summary = " — ".join(line.names) or shorten(line.text, 120)
        findings.append(_Finding(safe(summary, 240), line.text or summary, [line.ref]))
    return findings


_MAX_META_TYPES = 7
_ALWAYS = ("concept", "field", "process")  # what groups of things are about, however few excerpts say so


def extract(ask: ParsedRequest) -> str:
    """Return the reply to extract-graph, extract-entities or extract-relations; nothing is left for a gleaning."""
    lines = [] if ask.round else split_sentences(ask.between("text"))
    if ask.task == "extract-relations":
        return _listed_relations(ask, lines)
    found = best_names(lines)
    types = listed_types(ask.system)
    entities = [EntityLine(one.name, type_word(one.type, types), described(one, lines)) for one in found]
    if ask.task == "extract-entities":
        return write(entities, None, ask.form)
    number_of = {one.name: number for number, one in enumerate(found, start=1)}
    return write(entities, related(found, lines), ask.form, number_of)


def _listed_relations(ask: ParsedRequest, lines: Sequence[str]) -> str:
    """Return the relations of the entities that a request lists."""
    rows = [line.split(BAR) for line in ask.between("entities").split("\n") if line.strip()]
    listed = [BAR.join(row[1:-1]).strip() for row in rows]
    number_of = {safe_name(name): at for at, name in reversed(list(enumerate(listed, start=1)))}
    return write(None, related(_placed(listed, lines), lines), ask.form, number_of)


def _placed(names: Sequence[str], lines: Sequence[str]) -> list[FoundName]:
    """Return where the listed entities stand in the text, most often named first."""
    known = {name_key(one.name): one.places for one in find_entities(lines)}
    lowered = [line.lower() for line in lines]
    found: dict[str, FoundName] = {}
    for name in names:
        key = name_key(name)
        if not is_name(key) or key in found:
            continue
        spots = ((number, line.find(name.lower())) for number, line in enumerate(lowered))
        places = known.get(key) or tuple((number, at // 6) for number, at in spots if at >= 0)
        found[key] = FoundName(safe_name(name), "", places, float(len(places)))
    return sorted(found.values(), key=lambda one: (-one.score, one.name))


def meta_types(ask: ParsedRequest) -> str:
    """Return the reply to meta-types: one a line, the most frequent first."""
    counts: Counter[str] = Counter()
    for piece in ask.body.split("<excerpt>")[1:]:
        lines = split_sentences(piece.partition("</excerpt>")[0])
        counts.update(found.type for found in find_entities(lines))
    ranked = sorted(counts, key=lambda kind: (-counts[kind], kind))[:_MAX_META_TYPES]
    return "\n".join(dict.fromkeys([*ranked, *_ALWAYS]))


_MAX_WORDS = re.compile(r"at most\s+(\d+)\s+words|(\d+)\s+words")
_MAX_PIECES = 40  # maximum pieces of a description
_DEFAULT_WORDS = 120
_ALIKE = 0.75  # share of the shorter piece's words
_ENTITY = re.compile(r"^\d+\. (.*?) \(([^()]{0,80})\)(?:: (.*))?$")


def describe(ask: ParsedRequest) -> str:
    """Return the reply to describe."""
    match = _MAX_WORDS.search(ask.system)
    limit = int(match.group(1) or match.group(2)) if match else _DEFAULT_WORDS
    given = [line.removeprefix("- ") for line in ask.between("descriptions").split("\n") if line.strip()]
    pieces = [safe(sentence, 600) for text in given for sentence in sentences(text)]
    text = " ".join(central([piece for piece in pieces if piece], limit))
    return text or ask.between("entity") or "unknown"


def central(pieces: Sequence[str], n_words: int) -> list[str]:
    """Return the pieces that say most of what the others say too, without repeating, within a number of words."""
    bags = [frozenset(content_words(piece)) for piece in pieces]
    shared = Counter(word for bag in dict.fromkeys(bags) for word in sorted(bag))
    worth = [sum(shared[word] for word in sorted(bag)) / (8 + len(bag)) for bag in bags]
    chosen: list[int] = []
    left = n_words
    for place in sorted(range(len(pieces)), key=lambda place: (-worth[place], place))[:200]:
        if any(is_alike(bags[place], bags[other], _ALIKE) for other in chosen):
            continue
        # Two characters of an unspaced script count as a word.
        size = pieces[place].count(" ") + 1 + len(UNSPACED.findall(pieces[place])) // 2
        if size > left:
            continue
        chosen.append(place)
        left -= size
        if len(chosen) == _MAX_PIECES:
            break
    if not chosen and pieces:
        first = pieces[0]
        return [shorten(first, 2 * n_words) if UNSPACED.search(first) else " ".join(first.split(" ")[:n_words])]
    return [pieces[place] for place in chosen]


def same_entity(ask: ParsedRequest) -> str:
    """Return the reply to same-entity: yes where the description of the shorter name spells the longer one out."""
    found = [_ENTITY.match(line) for line in ask.between("entities").split("\n")]
    told = sorted(((each.group(1), each.group(3) or "") for each in found if each), key=lambda one: len(one[0]))[:2]
    keys = [name_key(name) for name, _ in told]
    same = len(told) > 1 and set(keys[0].split()) <= set(keys[1].split()) and keys[1] in name_key(told[0][1])
    reason = f"the description of {told[0][0]} says {told[1][0]}" if same else "nothing says that they are one"
    if ask.form is not None:
        return json.dumps({"same": same, "reason": safe(reason)}, ensure_ascii=False)
    return f"answer{FIELD}{'yes' if same else 'no'}{FIELD}{safe(reason)}\n{DONE}"


_PIECES = re.compile(r"\s*\S{1,24}|\s+")

_TASKS: Mapping[str, Callable[[ParsedRequest], str]] = {
    "extract-graph": extract,
    "extract-entities": extract,
    "extract-relations": extract,
    "describe": describe,
    "meta-types": meta_types,
    "short-answer": short_answer,
    "summarise": summarise,
    "summarise-pack": each_unit(summarise),
    "report": report,
    "report-pack": each_unit(report),
    "same-entity": same_entity,
    "same-entity-pack": each_unit(same_entity),
    "answer": answer,
    "map-answer": map_answer,
    "reduce-answer": reduce_answer,
}


def reply_to(messages: Sequence[Message], form: str | None) -> str:
    """Return the reply to a conversation: the same text for the same input, on any machine.

    Args:
        messages: system message first; its first line ("Task: extract-graph") says what is asked.
        form: name of the JSON form that is asked for, None for delimited or plain text.

    Raises:
        RequestRejected: the task is one of those that need a language model, or none of this package's.
    """
    ask = asked(messages, form)
    task = _TASKS.get(ask.task)
    if task is None:
        what = f"the task {ask.task!r}" if ask.task else "a message without a 'Task:' line"
        raise RequestRejected(
            f"{what} needs a language model; configure an endpoint for its role: the built-in model 'extractive' "
            f"does only {', '.join(_TASKS)}"
        )
    return task(ask)


class ExtractiveModel:
    """Replies made by rules and counting from the messages alone. This is not a language model.

    It finds names and terms by their form and frequency, relations by words that stand close together, and puts
    summaries, reports and answers together from sentences that are already there. It understands nothing: it makes
    demonstrations, tests and throughput measurements possible where no model is configured, and says nothing about
    the quality that a language model would give. Tasks that need judgement (judge, claims, questions) it refuses.
    """

    name = "extractive"
    rate_limits: RateLimits | None = None

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self._count_tokens = count_tokens

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply. Raises RequestRejected for a task that needs a language model."""
        text = reply_to(request.messages, request.form)
        return ChatReply(
            text=text,
            model=self.name,
            input_tokens=sum(self._count_tokens(message.content) for message in request.messages),
            output_tokens=self._count_tokens(text),
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text in pieces of about a word, white space kept, and then the reply."""
        reply = await self.complete(request)
        for piece in _PIECES.findall(reply.text):
            yield piece
        yield reply

    async def close(self) -> None:
        """Do nothing: no connection is open."""
