"""Names and terms of writing without spaces: strings of characters that recur in changing company."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.llm.rule_based.language import HAN_RUN, KANA
from hirag_dist.llm.rule_based.word_lists import CHINESE_SURNAMES, PLACES, words
from hirag_dist.types import FoundName

_STOP_CHARS = frozenset("".join(words("chinese_stop_characters")))
_ORDINARY = words("chinese_words")
_PLACE_ENDS = "山洞寺城县省府州河江海国宫殿观市区村镇庙湖岛街路"
_PERSON_ENDS = "王帝公君师祖佛仙真人僧"
_SPEAKING = re.compile("^[^，。]{0,2}(?:道|曰|说|笑|问|答|言|听|见|闻|喝|叫)")
_KANJI_KATA = re.compile("[\u30a0-\u30ff]{3,}|[々\u4e00-\u9fff]{2,6}")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9\-]{2,}(?: [A-Z][A-Za-z0-9\-]+)*")
_LETTER_RUN = re.compile(f"[{UNSPACED}]+")
_CLUSTER = re.compile(  # a letter of Thai and the like with the vowels before it and the signs around it
    "[\u0e40-\u0e44\u0ec0-\u0ec4]?[^\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd]"
    "[\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1060\u17b6-\u17d3\u0f71-\u0fbc]*"
)
_CHARACTERS, _CLUSTERS = range(2, 5), range(4, 13)  # sizes of a term: shorter strings are mostly function words
_MAX_TERMS = 120
_STEADY = 0.7  # share of one neighbour from which a string is a part of a longer one
_PART = 1.3  # times that a part occurs for each longer string, up to which it is nothing by itself


def find_characters(lines: Sequence[str]) -> list[FoundName]:
    """Return the recurring names and terms of sentences in Chinese or Japanese, those in Latin letters too."""
    text = "".join(lines[:400])
    if KANA.search(text) and len(KANA.findall(text)) * 8 > len(text):
        counts = Counter(word for line in lines for word in _KANJI_KATA.findall(line))
    else:
        runs = [list(run) for line in lines for run in HAN_RUN.findall(line)]
        counts = _recurring(runs, _CHARACTERS, _STOP_CHARS)
    counts.update(word for line in lines for word in _LATIN.findall(line))
    usable = [name for name in counts if name not in _ORDINARY and (counts[name] > 1 or name in PLACES)]
    found = []
    for name in sorted(usable, key=lambda name: (-counts[name], name))[:_MAX_TERMS]:
        places = [(number, line.find(name)) for number, line in enumerate(lines) if name in line]
        if not places:
            continue
        ends = [at + len(name) for _, at in places]
        speaks = sum(
            bool(_SPEAKING.match(lines[number][end : end + 4])) for (number, _), end in zip(places, ends, strict=True)
        )
        kind = _kind(name, speaks, len(places))
        size = (0.0, 0.5, 1.0, 1.5, 1.6)[min(len(name), 4)]
        score = len(places) * size * (1.5 if kind != "concept" else 1.0)
        found.append(FoundName(name, kind, tuple((number, at // 2) for number, at in places), score))
    return found


def find_clusters(lines: Sequence[str]) -> list[FoundName]:
    """Return the recurring terms of sentences in Thai, Lao, Khmer, Myanmar or Tibetan."""
    counts = _recurring([_CLUSTER.findall(run) for line in lines for run in _LETTER_RUN.findall(line)], _CLUSTERS)
    found = []
    for term in sorted(counts, key=lambda term: (-counts[term] * len(term), term))[:_MAX_TERMS]:
        places = tuple((number, line.find(term) // 4) for number, line in enumerate(lines) if term in line)
        if places:
            found.append(FoundName(term, "concept", places, len(places) * min(len(term), 12) / 8))
    return found


def _recurring(runs: Sequence[Sequence[str]], sizes: range, stops: frozenset[str] = frozenset()) -> Counter[str]:
    """Return the counts of the strings of units that recur with varying neighbours, without parts of longer ones.

    Args:
        stops: characters that a string neither begins nor ends with.
    """
    counts: Counter[str] = Counter()
    for run in runs:
        for size in sizes:
            counts.update("".join(run[at : at + size]) for at in range(len(run) - size + 1))
    beside: dict[str, tuple[Counter[str], Counter[str]]] = {
        gram: (Counter(), Counter())
        for gram, count in counts.items()
        if count > 1 and gram[0] not in stops and gram[-1] not in stops
    }
    for run in runs:
        padded = ["", *run, ""]
        for size in sizes:
            for at in range(1, len(padded) - size):
                sides = beside.get("".join(padded[at : at + size]))
                if sides is not None:
                    sides[0][padded[at - 1]] += 1
                    sides[1][padded[at + size]] += 1
    kept = Counter(
        {gram: counts[gram] for gram, sides in beside.items() if all(_varies(s, counts[gram]) for s in sides)}
    )
    for gram in sorted(kept, key=lambda gram: (-len(gram), gram)):
        for part in {gram[at:end] for at in range(len(gram)) for end in range(at + 1, len(gram) + 1)} - {gram}:
            if gram in kept and part in kept and kept[part] <= kept[gram] * _PART:
                del kept[part]
    return kept


def _varies(neighbours: Counter[str], count: int) -> bool:
    """Return whether no single neighbour is beside a string nearly always."""
    edge = neighbours.pop("", 0)
    if edge >= 2 or (edge and count <= 3):
        return True
    most = max(neighbours.values(), default=0)
    return len(neighbours) + min(edge, 1) > 1 and most <= _STEADY * count


def _kind(name: str, speaks: int, count: int) -> str:
    if name in PLACES or (name[-1] in _PLACE_ENDS and name != "政府"):
        return "location"
    if speaks * 4 >= count and speaks:
        return "person"
    if (name[0] in CHINESE_SURNAMES and len(name) == 3) or (name[-1] in _PERSON_ENDS and len(name) > 1):
        return "person"
    return "concept"
