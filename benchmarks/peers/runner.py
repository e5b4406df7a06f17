"""One package measured from nothing to its last answer: a row of the table, or a row that says why there is none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hirag_dist
from benchmarks.peers import environments
from benchmarks.peers.corpus import Corpus
from benchmarks.peers.job import Job
from benchmarks.peers.metering import Cost, cpu_of, metered
from benchmarks.peers.settings import hirag_dist_settings

_CHAT, _EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
_WARM_CHARS = 3000  # of a text that each package indexes unmeasured, so that nothing is compiled or unpacked later


@dataclass(frozen=True)
class Peer:
    """A package of the comparison.

    Attributes:
        adapter: module of `adapters`, and name of its requirements.
        package: its name on the package index; empty for what runs in this environment.
        executor: of hirag-dist.
        note: what differs from its defaults, or which way to ask was taken.
    """

    adapter: str
    package: str = ""
    executor: str = ""
    note: str = ""


PEERS: Mapping[str, Peer] = {
    "hirag-dist": Peer("hirag_dist", executor="inline", note="in one process; mode hirag"),
    "hirag-dist-ray": Peer("hirag_dist", executor="ray", note="Ray started and stopped by the command; mode hirag"),
    "lightrag-hku": Peer("lightrag", "lightrag-hku", note="mode mix, no reranker; cosine threshold 0"),
    "nano-graphrag": Peer("nano_graphrag", "nano-graphrag", note="mode local; cosine threshold 0"),
    "fast-graphrag": Peer(
        "fast_graphrag", "fast-graphrag", note="index loaded once; embeddings without its rate limit"
    ),
    "graphrag": Peer("graphrag", "graphrag", note="method standard; local search, engine made once"),
}
REFERENCE = Peer("hirag_reference", note="from a checkout; mode hi")


class PeerFailed(Exception):
    """A phase of a package failed; the message is one line and names the log."""


@dataclass(frozen=True)
class Settings:
    """Settings of all packages of a run.

    Attributes:
        out: folder of rows, logs and indexes.
        cache: folder of environments.
        timeout_s: of a phase.
        reference: checkout of the HiRAG reference, or None.
    """

    corpus: Corpus
    out: Path
    cache: Path
    dim: int
    clients: int
    timeout_s: float
    reference: Path | None = None


def measure(name: str, peer: Peer, settings: Settings) -> dict[str, Any]:
    """Return a package's row; where it failed, one with `failed`, the reason, and what was measured before.

    Call `metering.adopt_orphans` once before.
    """
    row: dict[str, Any] = {"benchmark": "peers", "peer": name, "note": peer.note, **settings.corpus.figures()}
    folder = empty_folder(settings.out / "peers" / name)
    try:
        python = environments.python_of(peer.adapter, settings.cache) if peer.package else Path(sys.executable)
        row["version"] = environments.versions(python)[peer.package] if peer.package else _version(peer)
        warm(peer, python, folder / "warm", settings)
        with running_endpoint(folder, settings.dim) as endpoint:
            job = job_of(peer, folder, endpoint.url, settings)
            row["index"] = run_phase(peer, python, job, endpoint, settings)
            job = replace(job, phase="query")
            asked = run_phase(peer, python, job, endpoint, settings)
            row |= {part: asked.pop(part) for part in ("sizes", "alone", "context", "clients") if part in asked}
            row["query"] = asked
    except (PeerFailed, environments.EnvironmentFailed) as error:
        row["failed"] = str(error)
    else:
        row |= _fairness(row)
    return row


def empty_folder(folder: Path) -> Path:
    """Return a folder with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _version(peer: Peer) -> str:
    return hirag_dist.__version__ if peer.executor else "checkout"


def _fairness(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the reasons why a row is not comparable: a package that understood nothing is quick."""
    if not row["sizes"].get("entities") or not row["sizes"].get("relations"):
        return {"failed": "the graph is empty: the endpoint's replies were not understood"}
    if row["index"]["errors"] or row["query"]["errors"]:
        wrong = row["index"]["errors"] + row["query"]["errors"]
        return {"doubt": f"the endpoint refused {wrong} calls"}
    empty = sum(row[part]["empty"] for part in ("alone", "context", "clients") if part in row)
    return {"doubt": f"{empty} empty replies to questions"} if empty else {}


def job_of(peer: Peer, folder: Path, url: str, settings: Settings) -> Job:
    """Return the job of the phase "index"."""
    return Job(
        adapter=peer.adapter,
        phase="index",
        folder=str(folder / "store"),
        corpus=str(settings.corpus.path),
        result=str(folder / "result.json"),
        base_url=url,
        dim=settings.dim,
        questions=settings.corpus.parts(),
        clients=settings.clients,
        checkout=str(settings.reference or "") if not (peer.package or peer.executor) else "",
    )


def warm(peer: Peer, python: Path, folder: Path, settings: Settings) -> None:
    """Index a few sentences and ask once, unmeasured."""
    folder.mkdir()
    text = json.loads(settings.corpus.path.read_text(encoding="utf-8").split("\n", 1)[0])["text"][:_WARM_CHARS]
    corpus = folder / "corpus.jsonl"
    corpus.write_text(json.dumps({"doc_id": "warm", "text": text}) + "\n", encoding="utf-8")
    with running_endpoint(folder, settings.dim) as endpoint:
        job = replace(job_of(peer, folder, endpoint.url, settings), corpus=str(corpus))
        run_phase(peer, python, job, endpoint, settings)
        first = {part: questions[:1] for part, questions in job.questions.items()}
        run_phase(peer, python, replace(job, phase="query", questions=first), endpoint, settings)
    shutil.rmtree(folder)


def run_phase(peer: Peer, python: Path, job: Job, endpoint: RunningEndpoint, settings: Settings) -> dict[str, Any]:
    """Run one phase in a process of its own; return its cost, what the endpoint counted, and the worker's figures."""
    folder = Path(job.folder).parent
    Path(job.folder).mkdir(exist_ok=True)
    result, log = Path(job.result), folder / f"{job.phase}.log"
    result.unlink(missing_ok=True)
    before, endpoint_cpu = endpoint.counts(), cpu_of(endpoint.pid)
    if peer.executor and job.phase != "query":
        command = _hirag_dist(peer, job)
    else:
        path = folder / f"{job.phase}.job.json"
        job.write(path)
        command = [str(python), "-m", "benchmarks.peers.worker", str(path)]
    cost = metered(
        command,
        env=environments.variables(job.base_url, settings.cache, job.checkout),
        log=log,
        timeout_s=settings.timeout_s,
        cwd=folder,
        besides=(endpoint.pid,),
    )
    _check(cost, log, settings.timeout_s)
    figures = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    used = _difference(before, endpoint.counts())
    return cost.figures() | used | {"endpoint_cpu_s": round(cpu_of(endpoint.pid) - endpoint_cpu, 2)} | figures


def _hirag_dist(peer: Peer, job: Job) -> list[str]:
    store = Path(job.folder)
    (store / "hirag.yaml").write_text(hirag_dist_settings(job.base_url, job.dim), encoding="utf-8")
    command = [sys.executable, "-m", "hirag_dist", job.phase, "--index", str(store / "index"), "--json"]
    command += ["--config", str(store / "hirag.yaml"), "--executor", peer.executor]
    return [*command, "--text-field", "text", job.corpus]


def _check(cost: Cost, log: Path, timeout_s: float) -> None:
    if cost.returncode == 0:
        return
    if cost.returncode is None:
        raise PeerFailed(f"not done after {timeout_s / 60:.0f} minutes and {cost.cpu_s:.0f} s of CPU (log: {log})")
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise PeerFailed(f"exit status {cost.returncode}: {lines[-1] if lines else 'no output'} (log: {log})")


@dataclass(frozen=True)
class RunningEndpoint:
    """An endpoint that takes calls."""

    url: str
    pid: int

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return path → its counts since the start."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats", timeout=30) as reply:
            found: dict[str, dict[str, Any]] = json.load(reply)["endpoints"]
            return found


@contextmanager
def running_endpoint(folder: Path, dim: int) -> Iterator[RunningEndpoint]:
    """Run a fresh endpoint."""
    command = [sys.executable, "-m", "benchmarks.peers.endpoint", "--dim", str(dim)]
    env = os.environ | {"PYTHONPATH": str(environments.ROOT)}
    with (
        (folder / "endpoint.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise PeerFailed(f"the endpoint did not start (log: {folder / 'endpoint.log'})")
            yield RunningEndpoint(url, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


def _difference(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Return the endpoint's counts of a phase: calls and tokens of chat, calls, texts and tokens of embeddings."""

    def used(path: str, count: str) -> int:
        return int(after[path][count] - before[path][count])

    return {
        "chat_calls": used(_CHAT, "calls"),
        "chat_input_tokens": used(_CHAT, "input_tokens"),
        "chat_output_tokens": used(_CHAT, "output_tokens"),
        "embedding_calls": used(_EMBEDDINGS, "calls"),
        "embedded_texts": used(_EMBEDDINGS, "texts"),
        "embedding_tokens": used(_EMBEDDINGS, "input_tokens"),
        "errors": used(_CHAT, "errors") + used(_EMBEDDINGS, "errors"),
    }
