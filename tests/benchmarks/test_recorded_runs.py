"""The benchmark of recorded runs, on a recording of one chunk."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.recorded_runs import GPT, bill, differences, nano_graph, ran
from benchmarks.recorded_runs import Recording as Set

TEXT = "Alice met Bob in Paris. Carol was there."
FIRST = """("entity"<|>"ALICE"<|>"person"<|>"Alice met Bob.")##
("entity"<|>"BOB"<|>"person"<|>"Bob met Alice."##
("relationship"<|>"Alice"<|>"Bob"<|>"They met."<|>9)<|COMPLETE|>"""
SECOND = '("entity"<|>"Carol"<|>"person"<|>"She was there.")##("relationship"<|>"Carol"<|>"Carol"<|>"Herself."<|>1)'


def test_the_plain_parser_passes_over_what_is_broken() -> None:
    assert nano_graph([FIRST, SECOND]) == ({"alice", "bob", "carol"}, {("alice", "bob")})
    assert nano_graph(['("entity"<|>"BOB"<|>"person"<|>"no bracket"']) == (set(), set())


def test_differences_are_counted_and_shown() -> None:
    assert differences("names", {"a", "b"}, {"b"}) == {"names_only_in_recording": [1, "a"]}
    assert differences("names", {"b"}, {"b"}) == {}


def test_a_bill_tells_recorded_from_built_in() -> None:
    row = {"calls": 2, "input_tokens": 3, "output_tokens": 4, "rejected": 0}
    usage = [row | {"role": "extract", "model": "recorded:m"}, row | {"role": "extract", "model": "extractive"}] * 2
    own = {"calls": 4, "input_tokens": 6, "output_tokens": 8, "rejected": 0}
    assert bill(usage) == {"extract by recorded:m": own, "extract by extractive": own}


def test_a_set_is_run_by_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "chunks.jsonl").write_text(json.dumps({"chunk_id": "c", "text": TEXT}) + "\n")
    replies = [
        {"kind": "extract", "chunk_id": "c", "round": 0, "model": "another", "response": "never used"},
        {"kind": "extract", "chunk_id": "c", "round": 0, "model": GPT, "response": FIRST},
        {"kind": "extract_glean", "chunk_id": "c", "round": 1, "model": GPT, "response": SECOND},
    ]
    (folder / "llm_responses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in replies))
    graph = nano_graph([FIRST, SECOND])
    line = ran(Set(folder / "chunks.jsonl", folder, graph, 2, GPT, gleaning=1), tmp_path, fallback=False)
    assert (line["chunks"], line["recorded_replies"], line["dead_letters"]) == (1, 2, {})
    assert line["recorded"] == line["kept"] == {"entities": 3, "relations": 1}
    assert line["bill"][f"extract by recorded:{GPT}"]["calls"] == 2
    assert line["layers"] == [3]
