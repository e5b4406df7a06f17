"""Results as `query` prints them where its output is piped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hirag_dist.cli._render import show_answer
from hirag_dist.types import Answer, Citation, Place, SourceItem
from tests.service import fakes

SENTENCE = "The keeper, who had slept badly for a week, lit the lamp [sic] long before the first of the ships came in."


def test_piped_answers_have_whole_lines_and_the_cited_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"A storm rose.\n{SENTENCE} Nobody slept."
    title = "A log of many words, " * 12
    source = SourceItem("k1", "d1", title, "log.txt", 10, 10 + len(text), text, 0.3)
    start = 10 + text.index(SENTENCE)
    places = (Place(start, start + len(SENTENCE), "page", "p. 7"),)
    cited = (Citation("S1", "chunk", "k1", title, places=places), Citation("E1", "entity", "e1", "Lighthouse"))
    answer = Answer(f"{SENTENCE} [S1]", cited, 0, replace(fakes.WHOLE, sources=(source,)), "", 1, 1)
    show_answer(answer)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "",
        "Answer",
        f"{SENTENCE} [S1]",
        f"  [S1] {title.strip()}, p. 7",
        f"      {SENTENCE}",
        "  [E1] Lighthouse",
    ]
