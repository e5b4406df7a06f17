"""Lines of `hirag-dist plan`."""

from __future__ import annotations

from rich.text import Text

from hirag_dist.cli.plan import _unreadable


def test_brackets_of_a_command_are_shown() -> None:
    line = Text.from_markup(_unreadable("a[1].docx", "pip install 'hirag-dist[documents]'")).plain
    assert line == "  cannot read a[1].docx: pip install 'hirag-dist[documents]'"
