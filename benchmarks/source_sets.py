"""Two further sets of questions with evidence, made from public data for `source_ranking.py`.

    python benchmarks/source_sets.py DATA OUT

DATA is a folder of the public data sets. OUT gets two folders:

    hotpotqa50   50 questions of HotpotQA and the 500 passages of `mhqa_hotpotqa50_answers`. The source names no
                 evidence: a question's evidence are those of its ten passages that hold its answer. Questions that are
                 answered by yes or no are left out. Such evidence is mostly the last hop of a question.
    recorded     A Christmas Carol, two white papers and Operation Dulce, in parts of about 200 words. A question is
                 the text that a language model wrote about a relation (200 of them, chosen by hash); its evidence are
                 the chunks of 1,200 tokens that the recording names. A part counts for its chunk. The recorded graph
                 is not indexed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from benchmarks.jsonl import rows_of

PART_WORDS: Final = 200
QUESTIONS: Final = 200  # of `recorded`
MAX_EVIDENCE: Final = 4  # chunks: a relation that everything states has no evidence to find
PASSAGES_OF_QUESTION: Final = 10

Rows = Iterable[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("out", type=Path, metavar="OUT")
    arguments = parser.parse_args()
    write_hotpotqa50(arguments.data / "mhqa_hotpotqa50_answers", arguments.out / "hotpotqa50")
    write_recorded(arguments.data, arguments.out / "recorded")


def write_hotpotqa50(source: Path, folder: Path) -> None:
    """Write the set `hotpotqa50`."""
    passages = [
        {"passage_id": row["passage_id"], "title": "", "text": row["text"]} for row in rows_of(source / "corpus.jsonl")
    ]
    first: dict[str, dict[str, str]] = {}  # some passages occur several times
    for row in passages:
        first.setdefault(row["text"], row)
    questions = []
    for place, row in enumerate(rows_of(source / "questions.jsonl")):
        answer = row["answer"].strip('"').casefold()
        candidates = passages[place * PASSAGES_OF_QUESTION : (place + 1) * PASSAGES_OF_QUESTION]
        gold = sorted({first[one["text"]]["passage_id"] for one in candidates if answer in one["text"].casefold()})
        if gold and answer not in ("yes", "no"):
            questions.append({"question": row["question"], "gold_passage_ids": gold})
    _write(folder, first.values(), questions)


def write_recorded(data: Path, folder: Path) -> None:
    """Write the set `recorded`."""
    passages: list[dict[str, str]] = []
    questions: list[dict[str, Any]] = []
    for name in ("nano_index_christmas_carol", "nano_index_web3"):
        passages += parts_of(name, ((row["chunk_id"], row["text"]) for row in rows_of(data / name / "chunks.jsonl")))
        relations = rows_of(data / name / "relations.jsonl")
        questions += [_question(" ".join(row["descriptions"]), row["source_ids"]) for row in relations]
    dulce = data / "graphrag_recorded" / "operation_dulce_2024"
    units = pq.read_table(dulce / "create_final_text_units.parquet", columns=["id", "text"]).to_pylist()
    passages += parts_of("operation_dulce", ((row["id"], row["text"]) for row in units))
    relations = pq.read_table(dulce / "create_final_relationships.parquet", columns=["description", "text_unit_ids"])
    questions += [_question(row["description"], row["text_unit_ids"]) for row in relations.to_pylist()]
    known = {row["part_of"] for row in passages}
    usable = [
        row
        for row in questions
        if row["question"]
        and 0 < len(row["gold_passage_ids"]) <= MAX_EVIDENCE
        and known.issuperset(row["gold_passage_ids"])
    ]
    usable.sort(key=lambda row: hashlib.sha256(row["question"].encode()).hexdigest())
    _write(folder, passages, usable[:QUESTIONS])


def parts_of(title: str, chunks: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the parts of some chunks as passages: whole sentences, `PART_WORDS` words or a few more each."""
    for chunk_id, text in chunks:
        part: list[str] = []
        number = 0
        for sentence in [*re.split(r"(?<=[.!?])\s+", text), None]:
            if part and (sentence is None or len(" ".join(part).split()) >= PART_WORDS):
                yield {
                    "passage_id": f"{chunk_id}/{number}",
                    "part_of": chunk_id,
                    "title": title,
                    "text": " ".join(part),
                }
                part, number = [], number + 1
            if sentence is not None:
                part.append(sentence)


def _is_evidence(chunks: list[str], known: set[str]) -> bool:
    return 0 < len(chunks) <= MAX_EVIDENCE and known.issuperset(chunks)


def _question(text: str, evidence: Iterable[str]) -> dict[str, Any]:
    return {"question": " ".join(text.split()), "gold_passage_ids": sorted(set(evidence))}


def _write(folder: Path, passages: Rows, questions: Rows) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", passages), ("questions", questions)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
