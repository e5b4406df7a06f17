"""Ordinary questions over the sample corpus, answered by the built-in model.

`ordinary_questions.jsonl` has 48 questions with a pattern that the right passage holds, and 10 that the corpus does not
answer. An answer is `right` if it, or a chunk that it cites, holds the pattern; for the 10 if it says that it is not
known. Anything else is `unknown` where it says so, and `wrong` otherwise. `cut` counts answers with a sentence that
was cut.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.settings import HASHING
from hirag_dist import build_index, open_index
from hirag_dist.config.loader import load_config
from hirag_dist.llm.rule_based.answers import NOT_KNOWN
from hirag_dist.types import Answer

_SENTENCE = re.compile(r"^[\"“'‘(]*[A-ZÀ-Þ0-9]")


def judge(answer: Answer, holds: str | None) -> str:
    """Return right, unknown or wrong."""
    if answer.text == NOT_KNOWN:
        return "right" if holds is None else "unknown"
    if holds is None:
        return "wrong"
    texts = {source.chunk_id: source.text for source in answer.retrieval.sources}
    cited = [texts[each.id] for each in answer.citations if each.id in texts]
    return "right" if any(re.search(holds, " ".join(text.split())) for text in (answer.text, *cited)) else "wrong"


def is_cut(text: str) -> bool:
    """Return whether a sentence of an answer begins or ends in the middle."""
    parts = [part.strip() for part in re.split(r"\[\w+\]", text) if part.strip()]
    return any(not _SENTENCE.match(part) or part.endswith("…") for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="print each question")
    verbose = parser.parse_args().verbose
    lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    counts: dict[str, Any] = {"questions": len(lines), "right": 0, "unknown": 0, "wrong": 0, "cut": 0}
    config = load_config(None, {}, HASHING).config
    with tempfile.TemporaryDirectory() as folder:
        build_index(str(resources.files("hirag_dist.samples") / "corpus"), folder, config=config)
        with open_index(folder) as index:
            for line in lines:
                asked = json.loads(line)
                answer = index.answer(asked["question"])
                verdict = judge(answer, asked["holds"])
                counts[verdict] += 1
                counts["cut"] += is_cut(answer.text)
                if verbose:
                    print(json.dumps({"question": asked["question"], "verdict": verdict, "answer": answer.text}))
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
