"""The whole benchmark on a corpus of four passages: asked, checked against the engine, and ranked again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import source_parts

CORPUS = {
    "Ada Lovelace": "Ada Lovelace wrote notes on the Analytical Engine, which Charles Babbage designed.",
    "Charles Babbage": "Charles Babbage was born in London and designed the Analytical Engine.",
    "London": "London lies on the Thames. The Thames flows to the North Sea.",
    "Grace Hopper": "Grace Hopper worked on the Harvard Mark I and wrote a compiler.",
}
QUESTIONS = [
    (
        "Where was the designer of the machine that Ada Lovelace wrote notes on born?",
        ["Ada Lovelace", "Charles Babbage"],
    ),
    ("On which river lies the place where Charles Babbage was born?", ["Charles Babbage", "London"]),
]


def test_a_set_is_measured_by_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = [{"passage_id": title, "title": title, "text": text} for title, text in CORPUS.items()]
    questions = [{"question": text, "gold_passage_ids": gold} for text, gold in QUESTIONS]
    for name, rows in (("corpus", passages), ("questions", questions)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    specs = ["starts=names", "tolerance=1e-9"]
    monkeypatch.setattr(sys, "argv", ["source_parts.py", str(tmp_path), "--variants", *specs])
    source_parts.main()
    printed = capsys.readouterr().out.splitlines()
    lines = {line["variant"]: line for line in map(json.loads, (text for text in printed if text.startswith("{")))}
    assert list(lines) == ["as-is", *specs]
    assert all(line["questions"] == 2 for line in lines.values())
    assert lines["as-is"]["recall@10"] == 1.0  # four passages, all of which have ways to them
    assert "more than as it is" not in lines["as-is"]
    assert lines["tolerance=1e-9"]["more than as it is"]["recall@5"] == [0.0, 0.0, 0.0]
    assert lines["starts=names"]["more than as it is"]["recall@10"][0] <= 0.0


def test_a_variant_that_is_not_known_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["source_parts.py", str(tmp_path), "--variants", "nearest=0"])
    with pytest.raises(SystemExit):
        source_parts.main()
    assert "'nearest=0'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
