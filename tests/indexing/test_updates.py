"""Equality of updated indexes: with fresh builds, with themselves replayed, and with what they were before."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.application.drift import measure_drift
from hirag_dist.core.drift import MIN_COMPACTNESS_RATIO
from hirag_dist.core.key_sets import key_sets
from hirag_dist.core.text.ids import text_keys
from hirag_dist.errors import InputError, SnapshotError
from hirag_dist.indexing import base as update_base
from hirag_dist.indexing import publish
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.storage.snapshot.history import record_current, rolled_back_to
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest
from tests.storage.snapshots import as_an_earlier_version_wrote_it
from tests.toy_builds import LAYER_0_ALONE, Bench, Script, obedient, task_of

LAYER_0 = ("documents", "chunks", "mentions", "relation_mentions", "extraction_costs", "entities", "relations")
PAID: dict[str, Any] = {  # not asked: the bench's model is
    "endpoints": {"model": {"base_url": "http://model", "model": "m"}},
    "roles": dict.fromkeys(("extract", "summarise", "report"), "model"),
}
CLAIMING: dict[str, Any] = {"claims": True}
TOPICS = ("sun", "sea", "tree", "iron", "bread", "horse")


def text(topic: str, number: int, n_words: int = 12) -> str:
    """Return words of one topic: neighbours are related, and some words are shared between texts of a topic."""
    rng = random.Random(f"{topic} {number}")
    return " ".join(f"{topic}{rng.randrange(30)}" for _ in range(n_words))


def corpus(n_texts: int) -> dict[str, str]:
    return {f"{at:02}.txt": text(TOPICS[at % len(TOPICS)], at) for at in range(n_texts)}


class LivingBench:
    """An index that is updated, and fresh builds of the same documents."""

    def __init__(self, folder: Path, script: Script = obedient) -> None:
        self.folder, self.script = folder, script
        self.bench = Bench(folder / "living", base_id="", counts_tokens=True)
        self._n_fresh = 0

    def keys(self, keys: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a build: keys of the configuration, and the script of the model."""
        return {"script": self.script, "llm": PAID} | keys

    def write(self, texts: dict[str, str], name: str = "corpus") -> str:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file_name, content in texts.items():
            (folder / file_name).write_text(content)
        return str(folder)

    def index(self, texts: dict[str, str], **keys: Any) -> Snapshot:
        inputs = [self.write(texts)]
        return self._done(self.bench.run_on(inputs, **self.keys(keys)))

    def remove(self, *ids: str, sources: tuple[str, ...] = (), **keys: Any) -> Snapshot:
        selection = DocumentSelection(ids, sources)
        return self._done(self.bench.run_work(lambda build: build.remove(selection), **self.keys(keys)))

    def add(self, texts: dict[str, str], **keys: Any) -> Snapshot:
        inputs = [self.write(texts, "more")]
        return self._done(self.bench.run_work(lambda build: build.add(inputs), **self.keys(keys)))

    def refresh(self, **keys: Any) -> Snapshot:
        return self._done(self.bench.run_work(lambda build: build.refresh(), **self.keys(keys)))

    def fresh(self, texts: dict[str, str], **keys: Any) -> Snapshot:
        self._n_fresh += 1
        bench = Bench(self.folder / f"fresh{self._n_fresh}", counts_tokens=True)
        result = bench.run_on([self.write(texts, f"corpus{self._n_fresh}")], **self.keys(keys))
        return open_snapshot(bench.store, result.manifest.snapshot_id)

    def _done(self, result: Any) -> Snapshot:
        self.result = result
        return open_snapshot(self.bench.store, result.manifest.snapshot_id, full_check=True)

    @property
    def n_asked(self) -> int:
        return len(self.bench.model.requests)


def base_table(snapshot: Snapshot, name: str) -> pa.Table:
    table = snapshot.table(name).combine_chunks()
    if name == "entities":
        return table.filter(pc.equal(table["layer"], 0))
    return table.filter(pc.equal(table["kind"], "extracted")) if name == "relations" else table


def check_base_layer(updated: Snapshot, fresh: Snapshot, names: Iterable[str] = LAYER_0, vectors: bool = True) -> None:
    """Check that layer 0, its vectors and its chunks are those of a fresh build."""
    for name in names:
        assert base_table(updated, name).equals(base_table(fresh, name)), name
    n_entities = base_table(fresh, "entities").num_rows if vectors else 0
    np.testing.assert_array_equal(updated.entity_vectors[:n_entities], fresh.entity_vectors[:n_entities])
    np.testing.assert_array_equal(updated.chunk_vectors, fresh.chunk_vectors)


def check_consistent(snapshot: Snapshot) -> None:
    """Check that nothing refers to what is not there, and that every entity is in a cluster and in a community."""
    entities = set(snapshot.table("entities")["entity_id"].to_pylist())
    relations = snapshot.table("relations")
    assert set(relations["source_id"].to_pylist()) | set(relations["target_id"].to_pylist()) <= entities
    clusters, layers = snapshot.table("clusters"), snapshot.table("entities")
    for layer in set(clusters["layer"].to_pylist()):
        own = layers.filter(pc.equal(layers["layer"], layer))["entity_id"].to_pylist()
        here = clusters.filter(pc.equal(clusters["layer"], layer))
        assert set(here["entity_id"].to_pylist()) == set(own)
        assert sorted(here.filter(here["best"])["entity_id"].to_pylist()) == sorted(own)
    communities = snapshot.table("communities")
    ids = communities["community_id"].to_pylist()
    assert len(set(ids)) == len(ids)
    top = communities.filter(pc.equal(communities["level"], 0))
    assert set(pc.list_flatten(top["entity_ids"]).to_pylist()) == entities
    reports = snapshot.table("reports").to_pylist()
    assert {report["community_id"] for report in reports} == set(ids)
    known = set(relations["relation_id"].to_pylist())
    for report in reports:
        for finding in report["findings"]:
            assert set(finding["entity_ids"]) <= entities
            assert set(finding["relation_ids"]) <= known
    present = set(text_keys(snapshot.table("chunks")["chunk_id"]).tolist())
    replaced = {key for keys in snapshot.manifest.notes["update"].get("replaced", {}).values() for key in keys}
    for name in ("summaries", "report_inputs"):
        assert set(key_sets(snapshot.table(name)["sources"]).keys.tolist()) <= present | replaced, name


def texts_of(snapshot: Snapshot) -> str:
    """Return every text of every table, as one."""
    names = [name for name in snapshot.manifest.counts if name != "usage"]
    return "\n".join(str(snapshot.table(name).to_pylist()) for name in names)


def test_layer_0_equals_a_fresh_builds_whatever_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows from the base are the base's, and the same changes give the same snapshot, also from mapped tables."""
    known: list[set[str]] = []

    def checked(store: Store, tables: dict[str, pa.Table], arrays: Any, **given: Any) -> Manifest:
        base = given["base"]
        known.append(set())
        for name, origin in given["origins"].items():
            rows = np.flatnonzero(origin >= 0)
            before = base.table(name).cast(tables[name].schema).take(pa.array(origin[rows]))
            assert before.equals(tables[name].take(pa.array(rows)).combine_chunks()), name
            assert (np.diff(origin[rows]) > 0).all(), name
            known[-1] |= {name} if len(rows) else set()
        return write_snapshot(store, tables, arrays, **given)

    monkeypatch.setattr(publish, "write_snapshot", checked)
    ids: list[list[str]] = []
    now = corpus(12)
    now |= {"03.txt": f"{now['03.txt']} {text('iron', 203, 3)}", "new.txt": text("sea", 100)}
    del now["04.txt"]
    for name, max_bytes in (("in memory", 10**9), ("mapped", 0)):
        monkeypatch.setattr(update_base, "_MAX_BYTES", max_bytes)
        living = LivingBench(tmp_path / name)
        living.index(corpus(12))
        found = [living.index(now), living.remove(sources=("03.txt",)), living.add({"05.txt": text("sea", 99)})]
        ids.append([snapshot.manifest.snapshot_id for snapshot in found])
    assert ids[0] == ids[1]
    assert known[-6:] == [{"entities", "relations", "mentions", "relation_mentions", "summaries", "report_inputs"}] * 6
    for snapshot in found:
        check_consistent(snapshot)
    assert living.result.update.number == 3
    del now["03.txt"]
    check_base_layer(found[-1], living.fresh(now | {"05.txt": text("sea", 99)}))


def test_what_has_not_changed_by_more_than_the_limit_of_staleness_is_kept(living: LivingBench) -> None:
    """It keeps id and text, and is not asked again. The work folder does not grow with the number of updates."""
    before = living.index(corpus(12))
    n_files = []
    for staleness, other in ((0.5, text("sun", 77)), (0, text("sun", 78))):
        after = living.index(corpus(12) | {"x.txt": other}, update={"max_ratio": 1000, "staleness": staleness})
        update, counts = living.result.update, living.result.update.reports
        assert counts.written + counts.kept + counts.deferred + counts.lists == after.manifest.counts["reports"]
        n_written = update.summaries.written + update.reports.written
        n_asked = len(living.bench.asked("summarise") + living.bench.asked("report"))
        assert 0 < n_asked <= n_written, "the second update may find replies of the first"
        assert update.summaries.kept > update.summaries.written
        shares = [max(after.table(name)["stale_share"].to_pylist()) for name in ("summaries", "report_inputs")]
        assert all(0 < share < 0.5 if staleness else share == 0 for share in shares)
        for name, key in (("summaries", "cluster_id"), ("reports", "community_id")):
            was = {row[key]: row for row in before.table(name).to_pylist()}
            kept = [(row, was[row[key]]) for row in after.table(name).to_pylist() if row[key] in was]
            told = {"summaries": "entities", "reports": "title"}[name]
            assert sum(row[told] == former[told] for row, former in kept) >= 0.5 * len(was), name
        n_files.append(len(living.bench.store.walk("work")))
    assert max(n_files) < 1.3 * min(n_files)


SECRET = corpus(12) | {"secret.txt": f"zebra {text('sun', 5)} zebra {text('sea', 6)}"}


@pytest.mark.parametrize("max_ratio", [0, 1000])
def test_nothing_derives_from_a_removed_document(living: LivingBench, max_ratio: float) -> None:
    assert "zebra" in texts_of(living.index(SECRET))
    after = living.remove(sources=("secret.txt",), update={"max_ratio": max_ratio})
    assert "zebra" not in texts_of(after)
    check_consistent(after)
    update = living.result.update
    assert (update.summaries.stand_ins + update.reports.stand_ins > 0) == (max_ratio == 0)


def test_a_former_text_goes_with_its_document(living: LivingBench) -> None:
    keys: dict[str, Any] = {"update": {"max_ratio": 0, "staleness": 1}}
    living.index(SECRET)
    behind = living.index(SECRET | {"secret.txt": text("sun", 5)}, **keys)
    assert "zebra" in texts_of(behind)  # summaries and reports of the former text are stale, not removed
    assert behind.manifest.notes["update"]["replaced"]
    after = living.remove(sources=("secret.txt",), **keys)
    assert "zebra" not in texts_of(after)
    assert not after.manifest.notes["update"]["replaced"]


def test_the_bound_holds_and_what_was_put_off_is_debt_that_a_refresh_pays(living: LivingBench) -> None:
    now = corpus(12)
    living.index(now)
    for ratio in (1.5, 0):
        now = now | {f"x{ratio}.txt": text("iron", int(ratio * 10))}
        now["00.txt"] += f" zebra{ratio}"
        behind = living.index(now, update={"max_ratio": ratio})
        assert len(living.bench.asked("extract-graph")) == 2, "what is new or was edited is all that is read"
        update = living.result.update
        assert (update.documents.added, update.documents.changed, update.documents.removed) == (1, 1, 0)
        assert update.budget_tokens is not None
        assert update.spent_tokens <= max(update.budget_tokens, update.extraction_tokens)
    assert update.debt_tokens > 0
    assert not living.bench.asked("summarise")
    assert behind.manifest.notes["update"]["debt"]["summaries"]["units"] == update.summaries.deferred
    new = base_table(behind, "entities")["entity_id"].to_pylist()
    assert set(new) <= set(behind.table("clusters")["entity_id"].to_pylist())  # found at once, whatever is put off
    paid = living.refresh()
    assert living.result.update.debt_tokens == 0
    assert "stand-in" not in paid.table("reports")["origin"].to_pylist()
    assert set(paid.table("summaries")["origin"].to_pylist()) == {"model"}
    assert max(paid.table("report_inputs")["stale_since"].to_pylist()) == 0
    check_consistent(paid)


def test_what_cannot_be_removed_or_added_to_is_refused(living: LivingBench) -> None:
    before = living.index(corpus(3), **LAYER_0_ALONE)
    works: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: living.remove("nowhere", **LAYER_0_ALONE), InputError, "no document of the index is named nowhere"),
        (lambda: living.remove(sources=("*",), **LAYER_0_ALONE), InputError, "no document with text would be left"),
        (lambda: LivingBench(living.folder / "new").add(corpus(2)), SnapshotError, "it holds no index"),
    ]
    for work, error, said in works:
        with pytest.raises(error, match=said):
            work()
    assert current_id(living.bench.store) == before.manifest.snapshot_id


def test_dead_letters_stay_until_they_are_asked_again(living: LivingBench) -> None:
    def refusing(request: ChatRequest) -> str | None:
        broken = task_of(request) == "extract-graph" and "badword" in request.messages[1].content
        return "no entities here, sorry" if broken else None

    now = corpus(3) | {"bad.txt": "badword sun1 sun2"}
    keys = LAYER_0_ALONE
    living.index(now, script=refusing, **keys)
    base = current_id(living.bench.store)
    now["more.txt"] = text("sea", 50)
    updated = living.index(now, script=refusing, **keys)
    fresh = living.fresh(now, script=refusing, **keys)
    (letter,), other = (one.table("rejects", ["stage", "unit_id"]).to_pylist() for one in (updated, fresh))
    assert [letter] == other
    assert not updated.manifest.complete
    check_base_layer(updated, fresh)
    living.bench.base_id = base
    healed = living.index(now, retry=True, **keys)
    assert healed.manifest.complete
    fresh = living.fresh(now, **keys)
    check_base_layer(healed, fresh, [name for name in LAYER_0 if name != "extraction_costs"])
    costs, first_costs = (base_table(one, "extraction_costs")["tokens"].to_pylist() for one in (healed, fresh))
    (note,) = (cost - first for cost, first in zip(costs, first_costs, strict=True) if cost != first)
    assert 0 < note < 50, "a later attempt is told why the one before was refused"


def test_a_refresh_groups_a_small_index_anew_where_it_has_become_loose(living: LivingBench) -> None:
    now = {f"{at:03}.txt": text(TOPICS[at % 6], at, 20) for at in range(12)}
    living.index(now)
    now |= {f"new{at}.txt": text(f"{TOPICS[at]}x", 500 + at, 20) for at in range(3)}
    loose = living.index(now, update={"max_ratio": 0})
    before, after = (measure_drift(snapshot).layers[0].compactness_ratio for snapshot in (loose, living.refresh()))
    assert before < MIN_COMPACTNESS_RATIO <= after


MORE = {"x.txt": text("iron", 70), "y.txt": text("sea", 71)}


def test_documents_of_now_or_of_a_former_snapshot_cost_nothing_and_a_new_dead_letter_is_a_new_snapshot(
    living: LivingBench,
) -> None:
    first = living.index(corpus(12))
    store = living.bench.store
    assert living.index(corpus(12)).manifest.snapshot_id == first.manifest.snapshot_id
    assert (living.n_asked, living.result.changed, len(store.names("snapshots"))) == (0, False, 1)

    with_it = living.index(corpus(12) | {"x.txt": MORE["x.txt"]})
    back = living.remove(sources=("x.txt",))
    assert back.manifest.snapshot_id == first.manifest.snapshot_id == current_id(store)
    assert not living.n_asked
    assert living.result.changed
    update = living.result.update
    assert update.returned
    assert (update.base, update.spent_tokens, update.documents.removed) == (with_it.manifest.snapshot_id, 0, 1)
    assert update.summaries.kept == first.manifest.counts["summaries"]
    again = living.index(corpus(12) | {"x.txt": MORE["x.txt"]})
    assert again.manifest.snapshot_id == with_it.manifest.snapshot_id == current_id(store)
    assert not living.n_asked
    assert rolled_back_to(store, with_it.manifest.snapshot_id) is None
    assert [own for own, _ in record_current(store)][-1] == with_it.manifest.snapshot_id

    folder = Path(living.write(corpus(12)))
    (folder / "broken.html").write_bytes(b"\x00" * 100)
    broken = living._done(living.bench.run_on([str(folder)], llm=PAID))
    assert broken.manifest.snapshot_id != first.manifest.snapshot_id
    assert not broken.manifest.complete


def test_an_index_of_an_earlier_version_is_found_unchanged_and_returned_to(living: LivingBench) -> None:
    texts = corpus(3) | {"a.md": f"# Iron\n\n{text('iron', 60)}\n\n## Sea\n\n{text('sea', 61)}\n"}
    first = living.index(texts, **LAYER_0_ALONE)
    assert first.manifest.counts["places"]
    as_an_earlier_version_wrote_it(living.bench.store, first.manifest.snapshot_id)
    living.index(texts, **LAYER_0_ALONE)
    assert not living.result.changed
    living.add({"x.txt": MORE["x.txt"]}, **LAYER_0_ALONE)
    assert living.result.changed
    back = living.remove(sources=("*x.txt",), **LAYER_0_ALONE)
    assert back.manifest.snapshot_id == first.manifest.snapshot_id
    assert living.result.update.returned


def communities(share: float) -> dict[str, Any]:
    return {"max_layers": 0, "communities": {"max_size": 12, "report_share": share}}


def n_missing(snapshot: Snapshot) -> int:
    """Return the missing reports of a snapshot, by its tables."""
    known = set(snapshot.table("reports")["community_id"].to_pylist())
    table = snapshot.table("communities", ["community_id", "n_entities"]).to_pylist()
    missing = [row for row in table if row["n_entities"] >= 2 and row["community_id"] not in known]
    assert snapshot.manifest.missing_reports == len(missing)
    return len(missing)


def test_a_share_is_followed_from_the_first_build_and_changed_without_another(living: LivingBench) -> None:
    everything = n_missing(living.index(corpus(6), **communities(0.0)))
    assert everything > 4
    assert not living.bench.asked("report")
    none = living.index(corpus(6) | {"00.txt": text("sun", 99)}, **communities(0.0))
    assert not living.bench.asked("report"), "an update writes none that is left out"
    counts = living.result.update.reports
    assert (counts.written, counts.deferred, counts.missing) == (0, 0, n_missing(none))
    some = living.index(corpus(7), **communities(0.5))
    assert not living.result.rebuilt_because
    assert 0 < n_missing(some) < everything
    whole = living.refresh(**communities(1.0))
    assert n_missing(whole) == 0
    assert "reports" not in whole.manifest.notes
    assert living.index(corpus(7), **communities(0.0)).manifest.snapshot_id == whole.manifest.snapshot_id


@pytest.mark.integration
def test_a_refresh_of_all_reports_writes_what_the_budget_pays_and_no_stand_ins(living: LivingBench) -> None:
    keys = communities(0.0)
    missing = n_missing(living.index(corpus(6), **keys))
    run = living.bench.run_work
    some = living._done(run(lambda build: build.refresh(2_000, all_reports=True), **{"llm": {}} | keys))
    assert 0 < n_missing(some) < missing
    assert "stand-in" not in some.table("reports")["origin"].to_pylist()
    whole = living._done(run(lambda build: build.refresh(all_reports=True), **keys))
    assert n_missing(whole) == 0
