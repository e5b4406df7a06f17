"""Completeness of an index that is built from the recorded replies of real models.

Each set is indexed by `hirag-dist index` with the configuration that is written next to the index
(docs/how-to/replay-recordings.md):
extraction is replayed, summaries and reports come from the built-in model. The recording is also parsed in a few plain
lines, as its own tool does, and both are compared by normalised names and pairs of names.

    python benchmarks/recorded_runs.py DATA [--sets NAME…] [--index DIR] [--fallback]

DATA is a folder of the recorded sets. One JSON line a set: chunks and recorded replies, entities and relations of the
recording and of layer 0, the differences, layers, communities, dead letters by reason, the bill by model,
seconds. --index keeps the indexes (and their ledgers: a second run asks nothing). --fallback has the built-in model
asked where nothing was recorded; without it that is a dead letter.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from benchmarks.jsonl import rows_of
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.llm.endpoints.recorded import RecordedModel
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store

SHOWN = 5
Graph = tuple[set[str], set[tuple[str, str]]]  # names, and pairs of names
GPT = "gpt-3.5-turbo"


@dataclass(frozen=True)
class Recording:
    """A set: what is read, what is replayed, and what the recording holds when it is read plainly.

    Attributes:
        inputs: INPUT, ready chunks.
        path: of the recorded endpoint.
        graph: all that the replies name.
        replies: of how many calls; a chunk has one a round.
        model: only its replies count; None: all do.
        gleaning: rounds after the first.
    """

    inputs: Path
    path: Path
    graph: Graph
    replies: int
    model: str | None = None
    gleaning: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--index", type=Path, help="keep the indexes here")
    parser.add_argument("--fallback", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.sets:
            folder = (arguments.index or Path(temporary)) / (name + ("-fallback" if arguments.fallback else ""))
            folder.mkdir(parents=True, exist_ok=True)
            recording = SETS[name](arguments.data, folder)
            print(json.dumps({"benchmark": "recorded_runs", "set": name} | ran(recording, folder, arguments.fallback)))
            sys.stdout.flush()


def ran(recording: Recording, folder: Path, fallback: bool) -> dict[str, Any]:
    """Index a set, and return what there is to tell."""
    config = folder / "hirag.yaml"
    config.write_text(yaml.safe_dump(configuration(recording, fallback), sort_keys=False), encoding="utf-8")
    index = folder / "index"
    command = [sys.executable, "-m", "hirag_dist", "index", str(recording.inputs), "--index", str(index)]
    done = subprocess.run(
        [*command, "--config", str(config), "--executor", "inline", "--json"], capture_output=True, text=True
    )
    if done.returncode not in (0, 3):  # 3: there are dead letters
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    report = json.loads(done.stdout)
    snapshot = open_snapshot(Store(str(index)), report["snapshot"])
    loaded = RecordedModel(str(recording.path), model=recording.model)
    kept = graph_of(snapshot)
    letters = snapshot.table("rejects", ["stage", "reason"]).to_pylist()
    return {
        "chunks": report["counts"]["chunks"],
        "recorded_replies": recording.replies,
        "passed_over": loaded.passed_over,
        "repeated": loaded.repeated,
        "malformed_triples": loaded.bad_triples,
        "recorded": {"entities": len(recording.graph[0]), "relations": len(recording.graph[1])},
        "kept": {"entities": len(kept[0]), "relations": len(kept[1])},
        **differences("entities", recording.graph[0], kept[0]),
        **differences("relations", recording.graph[1], kept[1]),
        "layers": [row["n_entities"] for row in report["layers"]],
        "communities_by_level": report["communities_by_level"],
        "dead_letters": dict(Counter(f"{one['stage']}: {_short(one['reason'])}" for one in letters)),
        "bill": bill(report["usage"]),
        "seconds": report["seconds"],
    }


def configuration(recording: Recording, fallback: bool) -> dict[str, Any]:
    """Return the file that a run is configured by."""
    endpoint = {"kind": "recorded", "path": str(recording.path.resolve())}
    endpoint |= {"model": recording.model} if recording.model else {}
    endpoint |= {"fallback": "builtin"} if fallback else {}
    return {
        "chunking": "none",
        "gleaning_rounds": recording.gleaning,
        "max_reject_ratio": 1.0,
        "vectors": {"backend": "memory"},
        "llm": {
            "attempts": 1,  # a recording says the same when it is asked again
            "endpoints": {"recording": endpoint, "builtin": {"kind": "extractive"}, "vectors": {"kind": "hashing"}},
            "roles": {
                "extract": "recording",
                "summarise": "builtin",
                "report": "builtin",
                "answer": "builtin",
                "judge": "builtin",
                "embed": "vectors",
            },
        },
    }


def graph_of(snapshot: Snapshot) -> Graph:
    """Return layer 0 by normalised names."""
    entities = snapshot.table("entities", ["entity_id", "layer", "name"]).to_pylist()
    names = {row["entity_id"]: name_key(row["name"]) for row in entities if row["layer"] == 0}
    relations = snapshot.table("relations", ["source_id", "target_id", "kind"]).to_pylist()
    pairs = {_pair(names[row["source_id"]], names[row["target_id"]]) for row in relations if row["kind"] == "extracted"}
    return set(names.values()), pairs


def differences(what: str, recorded: set[Any], kept: set[Any]) -> dict[str, Any]:
    """Return the counts of items in only one of the two, with examples."""
    sides = {"recording": recorded - kept, "index": kept - recorded}
    return {f"{what}_only_in_{side}": [len(some), *sorted(some)[:SHOWN]] for side, some in sides.items() if some}


def bill(usage: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return calls and tokens by role and model: of the recording, and of the built-in model in addition."""
    found: dict[str, Counter[str]] = {}
    for row in usage:
        found.setdefault(f"{row['role']} by {row['model']}", Counter()).update(
            {name: row[name] for name in ("calls", "input_tokens", "output_tokens", "rejected")}
        )
    return {who: dict(counts) for who, counts in found.items()}


def _short(reason: str) -> str:
    return re.sub(r"unit \w+ \(.*", "…", reason, flags=re.DOTALL)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _graph(names: Iterator[str] | list[str], pairs: Sequence[tuple[str, str]]) -> Graph:
    """Return names and pairs by key; the ends of a pair are names too, and nothing is joined with itself."""
    keys = [(name_key(one), name_key(other)) for one, other in pairs]
    joined = {_pair(*pair) for pair in keys if pair[0] != pair[1] and all(pair)}
    return {key for key in map(name_key, names) if key} | {end for pair in keys for end in pair if end}, joined


def nano_graph(replies: list[str]) -> Graph:
    """Return the entities and relations of replies in nano-graphrag's form, parsed as by nano-graphrag."""
    names: list[str] = []
    pairs: list[tuple[str, str]] = []
    for reply in replies:
        for record in re.split(r"##|<\|COMPLETE\|>", reply):
            inner = re.search(r"\((.*)\)", record, re.DOTALL)
            fields = inner.group(1).split("<|>") if inner else [""]
            if fields[0] == '"entity"' and len(fields) >= 4:
                names.append(fields[1])
            elif fields[0] == '"relationship"' and len(fields) >= 5:
                pairs.append((fields[1], fields[2]))
    return _graph(names, pairs)


def _nano(data: Path, name: str) -> Recording:
    """Both passes of gpt-3.5-turbo over the chunks of a nano-graphrag index.

    The chunks are taken as they were cut: nano-graphrag counts a byte order mark as text, which shifts every cut.
    """
    own = data / name
    known = {row["chunk_id"] for row in rows_of(own / "chunks.jsonl")}
    replies = [
        row["response"]
        for row in rows_of(own / "llm_responses.jsonl")
        if row["kind"].startswith("extract") and row["model"] == GPT and row.get("chunk_id") in known
    ]
    return Recording(own / "chunks.jsonl", own, nano_graph(replies), len(replies), GPT, gleaning=1)


def _carol(data: Path, folder: Path) -> Recording:
    return _nano(data, "nano_index_christmas_carol")


def _bitcoin(data: Path, folder: Path) -> Recording:
    return _nano(data, "nano_index_bitcoin")


def _ark(data: Path, folder: Path) -> Recording:
    return _nano(data, "nano_index_ark_whitepaper")


def _web3(data: Path, folder: Path) -> Recording:
    return _nano(data, "nano_index_web3")


def _musique(data: Path, folder: Path) -> Recording:
    """OpenIE triples of 1,890 passages."""
    own = data / "mhqa_musique"
    rows = list(rows_of(next(own.glob("openie*.jsonl"))))
    names = [name for row in rows for name in row["entities"] if isinstance(name, str)]
    triples = [triple for row in rows for triple in row["triples"]]
    good = [one for one in triples if isinstance(one, list) and len(one) == 3 and all(isinstance(x, str) for x in one)]
    return Recording(own / "corpus.jsonl", own, _graph(names, [(one[0], one[2]) for one in good]), len(rows))


def _malformed(run: str, data: Path, folder: Path) -> Recording:
    """One of two runs of a model that a third of the time does not keep to the form."""
    own = data / "malformed_llm_outputs"
    rows = [row for row in rows_of(own / "responses.jsonl") if row["run"] == run]
    where = folder / "recording"
    where.mkdir(exist_ok=True)
    (where / "responses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (where / "chunks.jsonl").write_text((own / "chunks.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    graph = nano_graph([row["response"] for row in rows])
    return Recording(where / "chunks.jsonl", where, graph, len(rows), gleaning=1)


def _llama(data: Path, folder: Path) -> Recording:
    return _malformed("dickens", data, folder)


def _llama_again(data: Path, folder: Path) -> Recording:
    return _malformed("data", data, folder)


def _graphrag(data: Path, folder: Path, name: str, prefix: str, title: str) -> Recording:
    """A reply for each text unit, put together from GraphRAG's tables: all that has the unit among its sources.

    GraphRAG keeps no replies with its output. A relation's weight is shared out over its units.
    """
    own = data / "graphrag_recorded" / name
    units, entities, relations = (
        pq.read_table(own / f"{prefix}{table}.parquet").to_pylist()
        for table in ("text_units", "entities", "relationships")
    )
    said: dict[str, list[str]] = {row["id"]: [] for row in units}
    for row in entities:
        for unit in row["text_unit_ids"]:
            said[unit].append("<|>".join(("entity", row[title], row["type"], _flat(row["description"]))))
    for row in relations:
        sources = row["text_unit_ids"]
        share = row["weight"] / len(sources)
        for unit in sources:
            parts = ("relation", row["source"], row["target"], _flat(row["description"]), f"{share:g}")
            said[unit].append("<|>".join(parts))
    where = folder / "recording"
    where.mkdir(exist_ok=True)
    texts = {row["id"]: row["text"] for row in units}
    replies = [
        {"role": "extract", "unit": unit_id(texts[unit]), "round": 0, "model": "graphrag", "reply": "\n".join(records)}
        for unit, records in said.items()
    ]
    (where / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in replies), encoding="utf-8")
    chunks = "".join(json.dumps({"id": unit, "text": text}) + "\n" for unit, text in texts.items())
    (folder / "chunks.jsonl").write_text(chunks, encoding="utf-8")
    graph = _graph([row[title] for row in entities], [(row["source"], row["target"]) for row in relations])
    return Recording(folder / "chunks.jsonl", where, graph, len(replies))


def _flat(text: object) -> str:
    return " ".join(str(text).split())


def _dulce(data: Path, folder: Path) -> Recording:
    return _graphrag(data, folder, "operation_dulce", "", "title")


def _dulce_2024(data: Path, folder: Path) -> Recording:
    return _graphrag(data, folder, "operation_dulce_2024", "create_final_", "name")


SETS = {
    "bitcoin": _bitcoin,
    "ark": _ark,
    "web3": _web3,
    "carol": _carol,
    "dulce": _dulce,
    "dulce-2024": _dulce_2024,
    "llama": _llama,
    "llama-again": _llama_again,
    "musique": _musique,
}


if __name__ == "__main__":
    main()
