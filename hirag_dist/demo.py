"""`python -m hirag_dist.demo`: index, service and queries on the sample corpus, without a key, a server or a GPU."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.rule import Rule

from hirag_dist.api.build import build_index
from hirag_dist.cli._bill import bill_table
from hirag_dist.cli._build import layer_table
from hirag_dist.cli._options import configuration
from hirag_dist.cli._output import STILL_STARTING, emit_error, out
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.cli.inspect import write_page
from hirag_dist.cli.query import show_answer, show_retrieval
from hirag_dist.client import HiragClient
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import HiragError, ServiceError
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Answer


def demo(
    folder: Annotated[str, typer.Option("--index", "-i", metavar="DIR", help="Folder for the index.")] = "hirag-demo",
    executor: Annotated[
        str, typer.Option(help="Engine of the build: ray, inline (this process), or auto (by size).")
    ] = "auto",
) -> None:
    """Index the sample corpus, serve it over gRPC, ask two questions; show levels, answers and cost."""
    samples = Path(str(resources.files("hirag_dist.samples")))
    questions = (samples / "questions.txt").read_text(encoding="utf-8").splitlines()[:2]
    config = _write_config(Path(folder), samples / "replies.jsonl")
    _index(samples / "corpus", folder, config, executor)
    _rule("2 · Serving it over gRPC")
    command = ["serve", "--index", folder, "--config", str(config), "--listen", "127.0.0.1:0"]
    service = _service([sys.executable, "-m", "hirag_dist", *command], Path(folder) / "serve.log")
    with service as address, HiragClient(address) as client:
        info = client.describe()
        out.print(f"A service at {address} holds snapshot {info.snapshot_id}.")
        for number, question in enumerate(questions, start=3):
            _rule(f"{number} · A question")
            out.print(f"[bold]{question}[/bold]\n")
            answer = client.answer(question)
            assert isinstance(answer, Answer)
            show_retrieval(answer.retrieval)
            show_answer(answer)
    _rule("Next steps")
    out.print(f"The whole index as a page: {folder}/index.html")
    where = shlex.quote(str(folder))
    out.print(f'Ask more: .venv/bin/hirag-dist query --index {where} "…"    (or: serve --index {where})')
    out.print("Your own documents: hirag-dist init, then plan, then index. See README.md.")
    out.print(
        "[dim]The index of the demo is made of recorded replies of a model. Your documents go to the endpoints in "
        "hirag.yaml, or to the built-in model, which is rule-based and understands nothing.[/dim]"
    )


def _rule(title: str) -> None:
    """Print a heading on a line; `out` has no width where it is no terminal."""
    out.print(Rule(title), width=None if out.is_terminal else 80)


def _write_config(folder: Path, replies: Path) -> Path:
    """Write the configuration of the demo: recorded replies, and the built-in model for other requests."""
    recording = {"kind": "recorded", "path": str(replies), "fallback": "builtin"}
    embedder = {"kind": "hashing"}  # the same clusters on every machine, so that their summaries are in the recording
    roles = dict.fromkeys(("extract", "summarise", "report", "answer"), "recording")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.yaml"
    endpoints = {"recording": recording, "builtin-embedder": embedder}
    path.write_text(yaml.safe_dump({"llm": {"endpoints": endpoints, "roles": roles}}), encoding="utf-8")
    return path


def _index(corpus: Path, folder: str, path: Path, executor: str) -> None:
    _rule("1 · Indexing the sample corpus")
    config = configuration(str(path), None, {"execution.executor": executor}).config
    with ProgressBars(True) as bars:
        report = build_index(corpus, folder, config=config, progress=bars).to_dict()
    counts = report["counts"]
    how = "built" if report["stages_run"] else "already there, nothing to do"
    out.print(
        f"{count_noun(counts['documents'], 'document')} → {count_noun(counts['chunks'], 'chunk')} → "
        f"{count_noun(counts['entities'], 'entity', 'entities')} and {count_noun(counts['relations'], 'relation')} → "
        f"{count_noun(counts['reports'], 'community report')} ({how}, {report['seconds']:.1f} s)"
    )
    out.print(layer_table(report["layers"]))
    out.print("[dim]Layer 0 is what the texts say; each layer above summarises clusters of the one below.[/dim]")
    out.print(bill_table(report["usage"]))
    write_page(open_snapshot(Store(folder)), f"{folder}/index.html")


@contextmanager
def _service(command: Sequence[str], log: Path) -> Iterator[str]:
    """Lend the address of `hirag-dist serve`, in a process of its own that writes to a log, while the block lasts.

    Raises:
        ServiceError: it ended before it answered.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"COLUMNS": "200"},
        )
    try:
        yield _address(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the service answers or ends, however long it takes, and return HOST:PORT. Raises ServiceError."""
    told, running = False, True
    while running:
        running = process.poll() is None  # read the log once more after the end
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            if line.startswith("Serving on "):
                return line.removeprefix("Serving on ").split(". ")[0]
        if STILL_STARTING in lines and not told:
            told = True
            out.print(STILL_STARTING)
        time.sleep(0.1)
    said = lines[-1] if lines else f"{log} is empty"
    raise ServiceError(f"the service ended with code {process.returncode} before it answered: {said}")


def main() -> None:
    """Run the demo and exit with its code; SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    try:
        app(prog_name="python -m hirag_dist.demo")
    except HiragError as error:
        emit_error(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
