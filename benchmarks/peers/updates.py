"""Updates of an index: hirag-dist, LightRAG and GraphRAG on one corpus and one simulated endpoint.

    python -m benchmarks.peers.updates --corpus CORPUS.jsonl [--documents 12] --out DIR [--peers hirag-dist …]

Each package indexes the first documents, then adds the next one, then removes one of the first, each in a process of
its own against one endpoint. Prints a JSON line a package: calls, tokens and CPU of each phase, and which sentences and
names of the removed document its files hold before and after (`leftovers.py`). GraphRAG's update only adds: the
document is taken out of its input folder, and the update is run. LightRAG deletes with its option to delete the cached
replies, hirag-dist with `--forget`; with --keep-replies neither does.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.jsonl import rows_of
from benchmarks.peers import environments
from benchmarks.peers.corpus import Corpus
from benchmarks.peers.leftovers import left_behind, markers
from benchmarks.peers.metering import adopt_orphans
from benchmarks.peers.runner import (
    PEERS,
    PeerFailed,
    Settings,
    empty_folder,
    job_of,
    run_phase,
    running_endpoint,
)

UPDATABLE = ("hirag-dist", "lightrag-hku", "graphrag")


def main() -> None:
    arguments = _arguments()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    texts = [row["text"] for row in rows_of(arguments.corpus)]
    documents = {f"d{number:05}": text for number, text in enumerate(texts[: arguments.documents + 1])}
    if not 0 <= arguments.remove < arguments.documents < len(texts):
        raise SystemExit(f"the corpus has {len(texts)} documents: too few for --documents and --remove")
    adopt_orphans()
    for name in arguments.peers:
        row = measure(name, documents, f"d{arguments.remove:05}", arguments, out)
        print(json.dumps(row, ensure_ascii=False), flush=True)


def measure(
    name: str, documents: dict[str, str], removed: str, arguments: argparse.Namespace, out: Path
) -> dict[str, Any]:
    """Return a package's row: its phases, and what it left behind; where one failed, `failed` has the reason.

    Args:
        name: key of `PEERS`.
        documents: id → text: all but the last are indexed, the last is added.
        removed: id of the document that is removed then.
    """
    peer, folder, cache = PEERS[name], empty_folder(out / name), arguments.cache.expanduser().resolve()
    added = list(documents)[-1]
    parts = {
        "index": [own for own in documents if own != added],
        "add": [added],
        "remove": [removed],
    }
    corpora = {phase: _written(folder / f"{phase}.jsonl", documents, ids) for phase, ids in parts.items()}
    corpus = Corpus(corpora["index"], arguments.corpus.parent.name, ("a", "b", "c", "d"), len(parts["index"]), 0, "")
    settings = Settings(corpus, out, cache, arguments.dim, 1, 60 * arguments.timeout_min)
    wanted = markers(documents[removed], [text for own, text in documents.items() if own != removed])
    row: dict[str, Any] = {"benchmark": "peer_updates", "peer": name, "documents": len(parts["index"])}
    row["keep_replies"] = arguments.keep_replies
    try:
        python = environments.python_of(peer.adapter, cache) if peer.package else Path(sys.executable)
        row["version"] = environments.versions(python)[peer.package] if peer.package else "checkout"
        with running_endpoint(folder, settings.dim) as endpoint:
            job = replace(job_of(peer, folder, endpoint.url, settings), keep_replies=arguments.keep_replies)
            for phase, path in corpora.items():
                row[phase] = run_phase(peer, python, replace(job, phase=phase, corpus=str(path)), endpoint, settings)
                if phase != "index":
                    row[f"held_after_{phase}"] = left_behind(Path(job.folder), wanted)
    except (PeerFailed, environments.EnvironmentFailed) as error:
        row["failed"] = str(error)
    return row


def _written(path: Path, documents: dict[str, str], ids: list[str]) -> Path:
    rows = (json.dumps({"doc_id": own, "text": documents[own]}) + "\n" for own in ids)
    path.write_text("".join(rows), encoding="utf-8")
    return path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.updates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--corpus", type=Path, required=True, help="JSON lines with a field `text`")
    parser.add_argument("--documents", type=int, default=12, help="documents of the first build")
    parser.add_argument("--remove", type=int, default=3, help="position of the document that is removed")
    parser.add_argument("--peers", nargs="+", default=list(UPDATABLE), choices=UPDATABLE, metavar="PEER")
    parser.add_argument("--keep-replies", action="store_true", help="removal does not delete stored replies")
    parser.add_argument("--out", type=Path, required=True, help="folder of logs and indexes")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/hirag-dist/peers"), help="folder of environments")
    parser.add_argument("--dim", type=int, default=384, help="size of the embedding vectors")
    parser.add_argument("--timeout-min", type=float, default=20.0, help="minutes that a phase may take")
    return parser.parse_args()


if __name__ == "__main__":
    main()
