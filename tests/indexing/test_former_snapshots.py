"""Updates that lead back to the documents of a former snapshot: it is the result, and nothing is paid."""

from __future__ import annotations

from pathlib import Path

from hirag_dist.storage.snapshot.history import record_current, rolled_back_to
from hirag_dist.storage.snapshot.reader import current_id
from tests.indexing.test_updates import PAID, LivingBench, corpus, text

MORE = {"x.txt": text("iron", 70), "y.txt": text("sea", 71)}


def test_a_document_that_is_added_and_removed_again_costs_nothing(living: LivingBench) -> None:
    first = living.index(corpus(12))
    with_it = living.index(corpus(12) | {"x.txt": MORE["x.txt"]})
    back = living.remove(sources=("x.txt",))
    assert back.manifest.snapshot_id == first.manifest.snapshot_id == current_id(living.bench.store)
    assert not living.n_asked
    assert living.result.changed
    update = living.result.update
    assert update.returned
    assert (update.base, update.spent_tokens, update.documents.removed) == (with_it.manifest.snapshot_id, 0, 1)
    assert update.summaries.kept == first.manifest.counts["summaries"]
    again = living.index(corpus(12) | {"x.txt": MORE["x.txt"]})
    assert again.manifest.snapshot_id == with_it.manifest.snapshot_id == current_id(living.bench.store)
    assert not living.n_asked
    assert rolled_back_to(living.bench.store, with_it.manifest.snapshot_id) is None
    assert [own for own, _ in record_current(living.bench.store)][-1] == with_it.manifest.snapshot_id


def test_a_file_that_is_unreadable_now_is_a_dead_letter_of_a_new_snapshot(living: LivingBench) -> None:
    first = living.index(corpus(12))
    living.index(corpus(12) | MORE)
    folder = Path(living.write(corpus(12)))
    (folder / "broken.html").write_bytes(b"\x00" * 100)
    after = living._done(living.bench.run_on([str(folder)], llm=PAID))
    assert after.manifest.snapshot_id != first.manifest.snapshot_id
    assert not after.manifest.complete
