"""Questions by class, of several sets, for the choice of a mode (`mode_choice.py`).

Sets, and the class of their questions:

    musique      MuSiQue: fact.
    hotpotqa     HotpotQA: comparison where its `type` is, else fact.
    hotpotqa50   HotpotQA-50 (`source_sets.py`): fact, or as `mode_labels.jsonl` has it.
    lihua        LiHua-World: comparison for questions of type Multi that order two events or measure the time between
                 them, else fact.
    connections  A Christmas Carol, two white papers and Operation Dulce (`source_sets.py`): how two entities are
                 connected, for relations that a language model recorded; the evidence is what states the relation.
    chains       MuSiQue: how the ends of two recorded triples of different passages are connected, which share an
                 entity that these two passages alone mention: path. Both passages are evidence.
    mix          UltraDomain Mix: corpus-wide, or as `mode_labels.jsonl` has it. The evidence is a list of terms that
                 the published answers of several systems share (`answer_terms`).
    ordinary     `ordinary_questions.jsonl` over the sample corpus: fact. The evidence is a text that matches a pattern.
    themes       `corpus_questions.jsonl`, ten of them with each index: corpus-wide, without evidence.

A question belongs to the half `train` or `test` by the hash of its text, one of `connections` and `chains` by its
wording, so that no wording is in both halves.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from benchmarks.jsonl import rows_of
from hirag_dist.core.text.terms import terms

HERE: Final = Path(__file__).parent
INDEXES: Final = {  # set → the folder of its corpus, in DATA or in the folder of `source_sets.py`
    "musique": "mhqa_musique",
    "hotpotqa": "mhqa_hotpotqa_train",
    "lihua": "qa_lihua_world",
    "hotpotqa50": "hotpotqa50",
    "connections": "recorded",
    "mix": "qfs_mix",
    "ordinary": "samples",
}
CONNECTIONS: Final = 100
CHAINS: Final = 100
WORDINGS: Final = (
    "How are {a} and {b} connected?",
    "What is the relationship between {a} and {b}?",
    "How is {a} related to {b}?",
    "What links {a} to {b}?",
    "What does {a} have to do with {b}?",
    "Explain the connection between {a} and {b}.",
    "Is there any link between {a} and {b}?",
    "In what way is {a} associated with {b}?",
    "Through what is {a} tied to {b}?",
    "Trace the path from {a} to {b}.",
    "{a} and {b}: how do they belong together?",
    "Describe how {a} leads to {b}.",
)
_ORDERED = re.compile(r"\b(before|after|time interval|than)\b")
_MIN_METHODS = 4  # of 8, whose answers have a term
_MAX_SHARE = 0.1  # of the chunks, that hold a term


@dataclass(frozen=True)
class ClassedQuestion:
    """A question with its class and evidence.

    Attributes:
        set: of its questions.
        index: name of the index that it is put to, a key of `INDEXES`.
        kind: its class.
        gold: passages that are evidence.
        pattern: regular expression of a chunk that is evidence; empty for none.
        points: terms that a context should hold.
        half: train or test.
    """

    set: str
    index: str
    kind: str
    text: str
    half: str
    gold: frozenset[str] = frozenset()
    pattern: str = ""
    points: frozenset[str] = frozenset()


def questions(data: Path, sets: Path) -> Iterator[ClassedQuestion]:
    """Yield the questions of all sets.

    Args:
        data: folder of the public data sets.
        sets: folder that `source_sets.py` wrote.
    """
    labels = {row["id"]: row["class"] for row in rows_of(HERE / "mode_labels.jsonl")}
    yield from _with_evidence("musique", rows_of(data / "mhqa_musique" / "questions.jsonl"), lambda row: "fact")
    hotpotqa = rows_of(data / "mhqa_hotpotqa_train" / "questions.jsonl")
    yield from _with_evidence("hotpotqa", hotpotqa, lambda row: "comparison" if row["type"] == "comparison" else "fact")
    hotpotqa50 = rows_of(data / "mhqa_hotpotqa50_answers" / "questions.jsonl")
    by_text = {row["question"]: labels.get(row["question_id"], "fact") for row in hotpotqa50}
    rows = rows_of(sets / "hotpotqa50" / "questions.jsonl")
    yield from _with_evidence("hotpotqa50", rows, lambda row: by_text[row["question"]])
    yield from _with_evidence("lihua", rows_of(data / "qa_lihua_world" / "questions.jsonl"), _lihua_class)
    yield from _connections(data)
    yield from _chains(data / "mhqa_musique")
    for row in rows_of(data / "qfs_mix" / "queries.jsonl"):
        kind, text = labels.get(row["query_id"], "corpus-wide"), row["query"]
        yield ClassedQuestion("mix", "mix", kind, text, half_of(text), points=frozenset([row["query_id"]]))
    for row in rows_of(HERE / "ordinary_questions.jsonl"):
        yield ClassedQuestion(
            "ordinary", "ordinary", "fact", row["question"], half_of(row["question"]), pattern=row["holds"] or ""
        )
    themes = [row["question"] for row in rows_of(HERE / "corpus_questions.jsonl")]
    for index in INDEXES:
        chosen = sorted(themes, key=lambda text: _hash(f"{index} {text}"))[:10]
        for text in chosen:
            yield ClassedQuestion("themes", index, "corpus-wide", text, half_of(text))


def half_of(text: str) -> str:
    """Return the half that a text belongs to."""
    return "train" if _hash(text) % 2 else "test"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _with_evidence(name: str, rows: Iterable[dict[str, Any]], kind_of: Any) -> Iterator[ClassedQuestion]:
    for row in rows:
        given = row["gold_passage_ids"] if "gold_passage_ids" in row else row["evidence_doc_ids"]
        gold = frozenset(passage for passage in given or () if passage)
        if gold:
            yield ClassedQuestion(name, name, kind_of(row), row["question"], half_of(row["question"]), gold)


def _lihua_class(row: dict[str, Any]) -> str:
    return "comparison" if row["type"] == "Multi" and _ORDERED.search(row["question"]) else "fact"


def _connections(data: Path) -> Iterator[ClassedQuestion]:
    pairs: dict[tuple[str, str], frozenset[str]] = {}
    for name in ("nano_index_christmas_carol", "nano_index_web3"):
        for row in rows_of(data / name / "relations.jsonl"):
            pairs[row["source"].title(), row["target"].title()] = frozenset(row["source_ids"])
    dulce = data / "graphrag_recorded" / "operation_dulce_2024" / "create_final_relationships.parquet"
    for row in pq.read_table(dulce, columns=["source", "target", "text_unit_ids"]).to_pylist():
        pairs[row["source"].title(), row["target"].title()] = frozenset(row["text_unit_ids"])
    usable = sorted(
        (pair for pair, gold in pairs.items() if 0 < len(gold) <= 4), key=lambda pair: _hash(" ".join(pair))
    )
    for a, b in usable[:CONNECTIONS]:
        yield _path_question("connections", "connections", a, b, pairs[a, b])


def _chains(folder: Path) -> Iterator[ClassedQuestion]:
    facts: dict[str, set[tuple[str, str]]] = defaultdict(set)  # entity → (passage, other end)
    for row in rows_of(folder / "openie_gpt-3.5-turbo-1106.jsonl"):
        for triple in row["triples"]:
            if len(triple) == 3 and all(isinstance(part, str) and part for part in triple):
                a, _, b = triple
                facts[a].add((row["passage_id"], b))
                facts[b].add((row["passage_id"], a))
    found: list[tuple[str, str, frozenset[str]]] = []
    for _, ends in sorted(facts.items()):
        passages = sorted({passage for passage, _ in ends})
        if len(passages) == 2:
            a, b = (min((end for passage, end in ends if passage == one), key=_hash) for one in passages)
            if a != b and all(len({passage for passage, _ in facts[end]}) == 1 and end[:1].isupper() for end in (a, b)):
                found.append((a, b, frozenset(passages)))
    found.sort(key=lambda one: _hash(f"{one[0]} {one[1]}"))
    for a, b, gold in found[:CHAINS]:
        yield _path_question("chains", "musique", a, b, gold)


def _path_question(name: str, index: str, a: str, b: str, gold: frozenset[str]) -> ClassedQuestion:
    chosen = _hash(f"{a} {b}") % len(WORDINGS)
    half = "train" if chosen % 2 else "test"
    return ClassedQuestion(name, index, "path", WORDINGS[chosen].format(a=a, b=b), half, gold)


def answer_terms(data: Path, chunks: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, for each question of Mix, the terms that its published answers share.

    They are in the answers of at least half of the systems, in a chunk of the corpus, in at most a tenth of the chunks,
    and not in the question.
    """
    queries = {row["query_id"]: row["query"] for row in rows_of(data / "qfs_mix" / "queries.jsonl")}
    held: Counter[str] = Counter()
    n_chunks = 0
    for text in chunks:
        held.update(set(terms(text)))
        n_chunks += 1
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows_of(data / "qfs_mix" / "answers.jsonl"):
        counts[row["query_id"]].update(set(terms(row["answer"])))
    return {
        own: frozenset(
            term
            for term, methods in found.items()
            if methods >= _MIN_METHODS and 0 < held[term] <= _MAX_SHARE * n_chunks and term not in terms(queries[own])
        )
        for own, found in counts.items()
    }
