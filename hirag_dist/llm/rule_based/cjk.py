"""Names and terms in scripts without spaces or capitals: strings of characters that recur in changing company."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hirag_dist.llm.rule_based.language import HAN_RUN, KANA
from hirag_dist.llm.rule_based.names import NameOccurrence
from hirag_dist.llm.rule_based.word_lists import CHINESE_SURNAMES, PLACES, words

_STOP_CHARS = frozenset("".join(words("chinese_stop_characters")))
_ORDINARY = words("chinese_words")
_PLACE_ENDS = "山洞寺城县省府州河江海国宫殿观市区村镇庙湖岛街路"
_PERSON_ENDS = "王帝公君师祖佛仙真人僧"
_SPEAKING = re.compile("^[^，。]{0,2}(?:道|曰|说|笑|问|答|言|听|见|闻|喝|叫)")
_KANJI_KATA = re.compile("[\u30a0-\u30ff]{3,}|[々\u4e00-\u9fff]{2,6}")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9\-]{2,}(?: [A-Z][A-Za-z0-9\-]+)*")


def find_unspaced(sentences: Sequence[str]) -> list[NameOccurrence]:
    """Return the recurring names and terms of a text in Chinese, Japanese or another unspaced script."""
    text = "".join(sentences[:400])
    if KANA.search(text) and len(KANA.findall(text)) * 8 > len(text):
        counts = Counter(word for sentence in sentences for word in _KANJI_KATA.findall(sentence))
    else:
        counts = _chinese(sentences)
    counts.update(word for sentence in sentences for word in _LATIN.findall(sentence))
    usable = [name for name in counts if name not in _ORDINARY and (counts[name] > 1 or name in PLACES)]
    names = sorted(usable, key=lambda name: (-counts[name], name))
    return _placed(names[:120], sentences)


def _chinese(sentences: Sequence[str]) -> Counter[str]:
    runs = [run for sentence in sentences for run in HAN_RUN.findall(sentence)]
    counts: Counter[str] = Counter()
    for run in runs:
        for size in (2, 3, 4):
            counts.update([run[at : at + size] for at in range(len(run) - size + 1)])
    likely = {
        gram: count
        for gram, count in counts.items()
        if count > 1 and gram[0] not in _STOP_CHARS and gram[-1] not in _STOP_CHARS
    }
    left: dict[str, Counter[str]] = {gram: Counter() for gram in likely}
    right: dict[str, Counter[str]] = {gram: Counter() for gram in likely}
    for run in runs:
        padded = f"\n{run}\n"
        for size in (2, 3, 4):
            for at in range(1, len(padded) - size):
                gram = padded[at : at + size]
                if gram in likely:
                    left[gram][padded[at - 1]] += 1
                    right[gram][padded[at + size]] += 1
    kept: Counter[str] = Counter()
    for gram, count in likely.items():
        if _free(left[gram], count) and _free(right[gram], count):
            kept[gram] = count
    for gram in sorted(kept, key=len, reverse=True):  # 孙悟 is nothing where it is always 孙悟空
        for size in range(2, len(gram)):
            for at in range(len(gram) - size + 1):
                part = gram[at : at + size]
                if part in kept and kept[part] <= kept[gram] * 1.3:
                    del kept[part]
    return kept


def _free(beside: Counter[str], count: int) -> bool:
    """Check that the neighbours of a string vary: no single one is there nearly always."""
    edge = beside.pop("\n", 0)
    if edge >= 2 or (edge and count <= 3):
        return True
    most = max(beside.values(), default=0)
    return len(beside) + min(edge, 1) > 1 and most <= 0.7 * count


def _placed(names: Sequence[str], sentences: Sequence[str]) -> list[NameOccurrence]:
    found = []
    for name in names:
        places = []
        speaking = 0
        for number, sentence in enumerate(sentences):
            at = sentence.find(name)
            if at >= 0:
                places.append((number, at // 2))
                speaking += bool(_SPEAKING.match(sentence[at + len(name) : at + len(name) + 4]))
        if not places:
            continue
        kind = _kind(name, speaking, len(places))
        size = (0.0, 0.5, 1.0, 1.5, 1.6)[min(len(name), 4)]
        score = len(places) * size * (1.5 if kind != "concept" else 1.0)
        found.append(NameOccurrence(name, kind, places, score))
    return found


def _kind(name: str, speaking: int, count: int) -> str:
    if name in PLACES or (name[-1] in _PLACE_ENDS and name != "政府"):
        return "location"
    if speaking * 4 >= count and speaking:
        return "person"
    if (name[0] in CHINESE_SURNAMES and len(name) == 3) or (name[-1] in _PERSON_ENDS and len(name) > 1):
        return "person"
    return "concept"
