"""Prompts of a folder replace the built-in ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.core.prompts.templates import INSTRUCTIONS, Prompts
from hirag_dist.errors import ConfigError
from hirag_dist.llm.prompt_files import load_prompts

NAME = "extract-graph"


def test_files_replace_the_prompts_that_they_name(tmp_path: Path) -> None:
    assert load_prompts(None) == Prompts()
    (tmp_path / f"{NAME}.md").write_text(f"\ufeffBe brief. {INSTRUCTIONS[NAME]}\n", encoding="utf-8")
    (tmp_path / f"{NAME}.examples.md").write_text("An example.\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not read", encoding="utf-8")
    found = load_prompts(str(tmp_path))
    assert found == Prompts({NAME: f"Be brief. {INSTRUCTIONS[NAME]}".strip()}, {NAME: "An example."})


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("extractgraph.md", b"x", "no prompt is called 'extractgraph'; there are: extract-graph"),
        (f"{NAME}.md", b"List the entities.", "must hold the placeholder {entity_types}"),
        (f"{NAME}.md", b"\xff", "cannot read"),
        (f"{NAME}.md", b" \n", "is empty"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load_prompts(str(tmp_path))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        load_prompts(str(tmp_path / "nowhere"))
