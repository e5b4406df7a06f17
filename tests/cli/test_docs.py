"""`hirag-dist status --documents`: the documents of an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.cli._command_line import run as run_command
from tests.cli.update_commands import CommandBench, indexed_bench


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandBench:
    return indexed_bench(tmp_path, capfd)


def run(bench: CommandBench, *arguments: str) -> tuple[int, str]:
    """Run a command that takes no configuration."""
    code = run_command([*arguments, "--index", bench.index])
    said = bench.capfd.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_documents_are_listed_and_removed(bench: CommandBench) -> None:
    uri, own = next(iter(sorted(bench.ids().items())))
    code, said = run(bench, "status", "--documents")
    assert code == 0
    assert said.startswith(f"{len(bench.ids())} documents")
    assert own in said
    code, said = run(bench, "status", "--documents", "--source", uri)
    assert (code, said.split(" id path", 1)[0]) == (0, "1 document")
    assert bench.run("remove", own)[0] == 0
    assert uri not in bench.uris()
