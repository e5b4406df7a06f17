"""Forgetting leaves nothing of removed documents, wherever it is killed, and keeps what the rest rests on."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hirag_dist.application.build import BuildOptions
from hirag_dist.application.forget import GRACE_S, ForgetResult, forget, run_forget
from hirag_dist.application.forget_evidence import find_removed, pending_forget
from hirag_dist.application.forget_verification import verify_removed
from hirag_dist.core.retrieval.lexical import term_key
from hirag_dist.core.text.ids import text_key
from hirag_dist.core.text.terms import terms
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.llm.reply_store import Ledger, scan_records
from hirag_dist.storage.layout import FORGET, HISTORY
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.gc import RetentionPolicy, plan_gc
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store
from tests.built_in_builds import CONFIG
from tests.mortal_store import Killed, MortalStore
from tests.removal_builds import KEPT, REMOVED, RemovalBench, removal_bench


@dataclass
class Index:
    """A copy of an index with a removed document."""

    bench: RemovalBench
    gone: str
    before: str  # the snapshot that has it

    def verify(self) -> bool:
        removed = find_removed(self.bench.store, [self.gone])
        return verify_removed(self.bench.store, self.bench.config, removed).clean


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with removal_bench(tmp_path_factory.mktemp("template")) as bench:
        before = bench.build(KEPT | REMOVED).snapshot_id
        gone = bench.document_id("patient.txt")
        bench.build(KEPT, options=BuildOptions(rebuild=True))
        yield Index(bench, gone, before)


@pytest.fixture
def index(template: Index, tmp_path: Path) -> Index:
    return replace(template, bench=template.bench.copied(tmp_path))


def run(index: Index, *ids: str, now: bool = True) -> ForgetResult:
    return run_forget(index.bench.store.uri, index.bench.config, ids or [index.gone], now)


def files_of(store: Store) -> list[bytes]:
    return [Path(store.root, path).read_bytes() for path in store.walk("")]


def test_nothing_is_left_and_the_rest_needs_no_extraction(index: Index) -> None:
    assert not index.verify()
    done = run(index)
    assert all((done.complete, done.replies_dropped, done.replies_kept))
    assert index.verify()
    store = index.bench.store
    assert not any(b"Throckmorton" in file for file in files_of(store))
    assert (store.names("snapshots"), store.exists("work"), store.exists(FORGET)) == ([current_id(store)], False, False)
    again = index.bench.build(KEPT)
    assert (again.snapshot_id, again.changed) == (current_id(store), False)
    rebuilt = index.bench.build(KEPT, options=BuildOptions(rebuild=True))
    sent = {role: use.calls - use.ledger_hits for (role, *_), use in rebuilt.sent.uses.items()}
    assert (sent["extract"], sent["embed"], sent["probe"]) == (0, 0, 0)


@pytest.mark.usefixtures("divided")
def test_a_former_text_in_files_that_the_current_snapshot_shares_is_forgotten_too(tmp_path: Path) -> None:
    with removal_bench(tmp_path) as bench:
        before = bench.build(KEPT | REMOVED).snapshot_id
        index = Index(bench, bench.document_id("patient.txt"), before)
        edited = bench.build(KEPT | dict.fromkeys(REMOVED, "The Analytical Engine has a mill and a store."))
        assert edited.manifest.is_divided
        assert "serving-2/stored_term_keys.npy" in edited.manifest.files
        served = bench.snapshot()
        texts = [served.document_text(row) for row in range(2)]
        assert run(index).complete
        assert [served.document_text(row) for row in range(2)] == texts, "a service may have the snapshot open"
        assert served.table("documents").num_rows == served.manifest.counts["documents"]
        assert index.verify()
        store = bench.store
        assert not bench.snapshot().manifest.is_divided
        hashes = [term_key(term).to_bytes(8, "little") for term in terms("Throckmorton")]  # of the lexical index
        assert not any(trace in file for trace in (b"Throckmorton", *hashes) for file in files_of(store))


def test_old_snapshots_stay_for_their_grace_period(index: Index) -> None:
    store = index.bench.store
    done = run(index, now=False)
    assert (done.complete, done.waiting) == (False, (index.before,))
    pending = pending_forget(store)
    assert (pending.documents, pending.snapshots, pending.verified) == ((index.gone,), (index.before,), True)
    assert "Throckmorton" not in store.read_bytes(FORGET).decode()
    assert run(index, now=False).waiting == (index.before,)
    history = store.read_json(HISTORY)
    history["history"] = [[own, since - GRACE_S] for own, since in history["history"]]
    store.write_json(HISTORY, history)
    done = run_forget(store.uri, index.bench.config, [])
    assert (done.complete, done.replies_dropped) == (True, pending.replies_dropped)
    assert (index.verify(), pending_forget(store)) == (True, None)


def test_killed_after_every_fourth_change_it_is_continued(template: Index, tmp_path: Path) -> None:
    n_kills = 0
    while True:
        folder = tmp_path / str(n_kills)
        index = replace(template, bench=template.bench.copied(folder))
        store = MortalStore(index.bench.store.root, 4 * n_kills + 1)
        try:
            with BuildLock(Store(store.root)) as lock:
                forget(store, index.bench.config, lock, [index.gone], 0.0)
            break
        except Killed:
            n_kills += 1
        if pending_forget(index.bench.store) is not None:
            assert run_forget(store.uri, index.bench.config, [], now=True).complete
        assert index.verify(), f"killed after change {4 * n_kills - 3}"
        assert pending_forget(index.bench.store) is None
        shutil.rmtree(folder)
    assert n_kills > 2


def test_a_document_that_is_still_there_is_refused(index: Index) -> None:
    kept = index.bench.document_id("loom.txt")
    with pytest.raises(InputError, match=r"remove` removes documents"):
        run(index, kept)
    with pytest.raises(InputError, match="no snapshot of"):
        run(index, "0" * 24)
    assert pending_forget(index.bench.store) is None


def test_a_document_that_was_added_again_is_not_forgotten(index: Index) -> None:
    run(index, now=False)
    index.bench.build(KEPT | REMOVED)
    done = run_forget(index.bench.store.uri, index.bench.config, [], now=True)
    assert (done.documents, done.complete, pending_forget(index.bench.store)) == ((), True, None)
    assert index.bench.document_id("patient.txt") == index.gone


def test_another_configuration_drops_no_reply(index: Index) -> None:
    before = [record.key for record in scan_records(index.bench.store)]
    other = index.bench.config.model_copy(update={"chunk_tokens": 77})
    with pytest.raises(ConfigError, match="chunk_tokens"):
        run_forget(index.bench.store.uri, other, [index.gone])
    assert [record.key for record in scan_records(index.bench.store)] == before
    assert run(index).complete, "the right configuration continues"


async def test_a_process_that_writes_replies_keeps_it_pending(index: Index) -> None:
    ledger = Ledger(index.bench.store)
    await ledger.put("ab" * 20, {"text": "Wilhelmina Throckmorton"})
    done = await asyncio.to_thread(run, index)
    assert not done.complete
    assert "still writes to 1 log" in done.problems[0]
    assert [(finding.place, finding.count) for finding in done.findings] == [("reply store", 1)]
    assert index.before in index.bench.store.names("snapshots"), "the evidence stays"
    await ledger.close()
    assert (await asyncio.to_thread(run, index)).complete
    assert await asyncio.to_thread(index.verify)


SHARED = "Calder Hospital treats all patients under the general terms of Calder County."
ANSWERS = "Calder Hospital will answer questions by letter within ten working days."
LETTERS = {
    "p1.txt": f"Patient Anna Berg was admitted to Calder Hospital on Monday morning. {SHARED}",
    "p2.txt": f"{SHARED} Doctor Emil Strand signed the discharge papers in Aldney.",
    "p4.txt": f"{ANSWERS} Peter Lund visited Highmoor twice.",
    "p5.txt": "Lower Tarn is a village where Olga Reeve runs the bakery with Martin Reeve and sells bread to Highmoor.",
}
LETTER = {"p3.txt": f"{SHARED} {ANSWERS} Mrs Ida Quist asked for her records in Whitstone."}


def test_sentences_that_remaining_documents_share_are_no_trace_where_they_are_joined(tmp_path: Path) -> None:
    with removal_bench(tmp_path) as bench:
        before = bench.build(LETTERS | LETTER).snapshot_id
        index = Index(bench, bench.document_id("p3.txt"), before)
        bench.build(LETTERS)
        assert run(index).complete
        assert not any(b"Quist" in file for file in files_of(bench.store))


def test_a_snapshot_that_a_verification_needs_is_not_pruned(index: Index) -> None:
    store = index.bench.store
    for path in ("work/note.txt", "note.txt"):
        store.write_bytes(path, b"Doctor Aloysius Pemberley gave Wilhelmina Throckmorton quinine and more.")
    assert run(index).findings
    rule = RetentionPolicy(keep=0, older_than_s=0.0)
    assert index.before in plan_gc(store, rule, time.time()).kept
    assert run(index).findings  # it is still compared
    store.delete("note.txt")
    done = run(index, now=False)
    assert done.waiting == (index.before,)
    assert [each.snapshot_id for each in plan_gc(store, rule, time.time()).snapshots] == [index.before]


def test_a_document_all_of_whose_entities_others_name_is_forgotten_too(tmp_path: Path) -> None:
    """And where nothing is being forgotten, none is named for it: that is said, and is no success."""
    with removal_bench(tmp_path) as bench:
        text = "Ada Lovelace visited Charles Babbage in London."
        before = bench.build({"kept.txt": f"{text} She wrote notes there.", "gone.txt": text}).snapshot_id
        index = Index(bench, bench.document_id("gone.txt"), before)
        bench.build({"kept.txt": f"{text} She wrote notes there."})
        assert run(index).complete
        assert index.verify()
        with pytest.raises(InputError, match="is being forgotten: name the documents"):
            run_forget(bench.store.uri, bench.config, [])


LOOM = "Joseph Jacquard built a loom in Lyon that was driven by punched cards."


@pytest.fixture
def bench(tmp_path: Path) -> RemovalBench:
    """A bench with the built-in model."""
    return RemovalBench(tmp_path, CONFIG)


def clean(bench: RemovalBench, *ids: str) -> bool:
    removed = find_removed(bench.store, ids)
    return verify_removed(bench.store, bench.config, removed, snapshot_only=True).clean


def test_every_version_of_a_document_counts_but_one_that_is_served(bench: RemovalBench) -> None:
    """The removal makes a former snapshot current again, which stays."""
    first = bench.build(KEPT).snapshot_id
    second = bench.build(KEPT | {"patient.txt": "Wilhelmina Throckmorton is now in Bremen for a while."}).snapshot_id
    early = bench.document_id("patient.txt")
    third = bench.build(KEPT | REMOVED).snapshot_id
    late = bench.document_id("patient.txt")
    assert find_removed(bench.store, [early]).ids == {early}
    assert clean(bench, early)
    assert not clean(bench, late)
    assert bench.build(KEPT).snapshot_id == first == current_id(bench.store)
    removed = find_removed(bench.store, [late])
    assert (removed.ids, removed.unknown) == ({early, late}, frozenset())
    assert removed.snapshots == tuple(sorted([second, third]))
    assert removed.passages.within("wilhelmina throckmorton is now in bremen for a while")
    assert find_removed(bench.store, ["patient.txt"]).ids == removed.ids
    index = Index(bench, late, third)
    assert not index.verify()
    assert run(index).complete
    assert verify_removed(bench.store, bench.config, removed).clean
    assert bench.store.names("snapshots") == [first]


def test_what_a_remaining_document_has_too_is_no_trace(bench: RemovalBench) -> None:
    text = f"{LOOM} Wilhelmina Throckmorton admired the loom of Joseph Jacquard in the summer of that year."
    bench.build(KEPT | {"patient.txt": text, "copy.txt": KEPT["engine.txt"] + " "})
    gone = [bench.document_id("patient.txt")]
    bench.build(KEPT)
    removed = find_removed(bench.store, gone)
    assert not removed.passages.within(LOOM)
    assert not removed.names.within("Joseph Jacquard came from Lyon")
    assert removed.names.within("Wilhelmina Throckmorton")
    assert clean(bench, *gone)
    kept = {text_key(own) for own in bench.snapshot().table("chunks")["chunk_id"].to_pylist()}
    assert not removed.text_keys & kept


def test_labels_of_their_own_are_traces(bench: RemovalBench) -> None:
    def build(*records: dict[str, object]) -> None:
        bench.build({"all.jsonl": "\n".join(map(json.dumps, records))})

    kept = [{"text": text, "id": name, "labels": ["ward"]} for name, text in KEPT.items()]
    build(*kept, {"text": REMOVED["patient.txt"], "id": "case-7", "labels": ["ward", "case-7-only"]})
    removed_before = bench.snapshot().table("documents").to_pylist()
    build(*kept)
    gone = next(row for row in removed_before if "Throckmorton" in row["text"])
    removed = find_removed(bench.store, [gone["document_id"]])
    assert set(gone["labels"]) - {"ward"} <= removed.values
    assert "ward" not in removed.values
    assert gone["uri"] not in removed.values, "other records of the file remain"
