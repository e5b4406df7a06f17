"""Replies about a text: its entities and relations, of a first pass or a gleaning, and the types of its names."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from hirag_dist.core.prompts.templates import BAR
from hirag_dist.core.text.normalize import is_name, name_key
from hirag_dist.llm.rule_based.entity_types import DEFAULT_TYPES, TypeWords, listed_types
from hirag_dist.llm.rule_based.finder import best_names, described, find_entities, related
from hirag_dist.llm.rule_based.requests import EntityLine, ParsedRequest, RelationLine, safe_name, write
from hirag_dist.llm.rule_based.sentences import split_sentences
from hirag_dist.types import FoundName

_MISSED_OF_LESSER = 0.15  # of the lower two thirds: 10 % of all
_MAX_META_TYPES = 7
_ALWAYS = ("concept", "field", "process")  # what groups of things are about, however few excerpts say so


def extract(ask: ParsedRequest) -> str:
    """Return the reply to extract-graph, extract-entities or extract-relations, of a first pass or a gleaning."""
    lines = split_sentences(ask.between("text"))
    if ask.task == "extract-relations":
        return _listed_relations(ask, lines)
    wanted = ask.task == "extract-graph"
    if ask.round > 1:
        return write([], [] if wanted else None, ask.form)
    found = best_names(lines)
    late = _missed([one.name for one in found], ask)
    words = TypeWords(listed_types(ask.system))
    told = [described(one, lines) for one in found]
    order = sorted(range(len(found)), key=lambda at: late[at])  # what is missed is numbered on in the next reply
    entities = [
        EntityLine(found[at].name, words.word(found[at].type), told[at]) for at in order if late[at] == (ask.round == 1)
    ]
    first = 1 if ask.round == 0 else late.count(False) + 1
    if not wanted:
        return write(entities, None, ask.form, first)
    number_of = {found[at].name: number for number, at in enumerate(order, start=1)}
    missed = {one.name for one, is_late in zip(found, late, strict=True) if is_late}
    relations = [
        RelationLine(number_of[one.source], number_of[one.target], one.description)
        for one in related(found, lines)
        if (one.source in missed or one.target in missed) == (ask.round == 1)
    ]
    return write(entities, relations, ask.form, first, [told[at] for at in order])


def _listed_relations(ask: ParsedRequest, lines: Sequence[str]) -> str:
    """Return the relations of the entities that a request lists."""
    rows = [line.split(BAR) for line in ask.between("entities").split("\n") if line.strip()]
    listed = [BAR.join(row[1:-1]).strip() for row in rows]
    number_of = {safe_name(name): at for at, name in reversed(list(enumerate(listed, start=1)))}
    relations = related(_placed(listed, lines), lines)
    missed = _missed([f"{one.source}\n{one.target}" for one in relations], ask)
    chosen = [
        RelationLine(number_of[one.source], number_of[one.target], one.description)
        for one, is_late in zip(relations, missed, strict=True)
        if is_late == (ask.round == 1)
    ]
    return write(None, chosen if ask.round < 2 else [], ask.form)


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


def _missed(keys: Sequence[str], ask: ParsedRequest) -> list[bool]:
    """Return the records, best first, that a first pass overlooks: a fixed share of the lesser ones."""
    salt = f"{ask.seed}\n{ask.body}".encode("utf-8", "surrogatepass")
    base = hashlib.blake2b(salt, digest_size=16).digest()
    late = []
    for rank, key in enumerate(keys):
        data = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=base, digest_size=4).digest()
        share = int.from_bytes(data, "little") / 2**32
        late.append(rank * 3 >= len(keys) and rank > 1 and share < _MISSED_OF_LESSER)
    return late


def entity_types(ask: ParsedRequest) -> str:
    """Return the reply to entity-types: the built-in kinds, the most frequent in the excerpts first."""
    counts = _counts(ask)
    return "\n".join(sorted(DEFAULT_TYPES, key=lambda kind: (-counts[kind], DEFAULT_TYPES.index(kind))))


def meta_types(ask: ParsedRequest) -> str:
    """Return the reply to meta-types: one a line, the most frequent first."""
    counts = _counts(ask)
    ranked = sorted(counts, key=lambda kind: (-counts[kind], kind))[:_MAX_META_TYPES]
    return "\n".join(dict.fromkeys([*ranked, *_ALWAYS]))


def _counts(ask: ParsedRequest) -> Counter[str]:
    """Return how often the excerpts name each kind."""
    counts: Counter[str] = Counter()
    for piece in ask.body.split("<excerpt>")[1:]:
        lines = split_sentences(piece.partition("</excerpt>")[0])
        counts.update(found.type for found in find_entities(lines))
    return counts
