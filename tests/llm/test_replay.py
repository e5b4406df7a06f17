"""A ledger that is only read."""

from __future__ import annotations

from pathlib import Path

from hirag_dist.llm.replay import RecordingLedger
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import key_bytes
from hirag_dist.storage.store import Store
from tests.ledger_sizes import ledger_size


async def test_a_replay_reads_and_stores_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    await Ledger(store).put("ab" * 20, {"text": "paid"})
    replay = RecordingLedger(store)
    await replay.put("cd" * 20, {"text": "a grouping"})
    await replay.put_many({"ef" * 20: {"text": "a part"}})
    assert set(await replay.get_many([digits * 20 for digits in ("ab", "cd", "ef")])) == {"ab" * 20}
    await replay.close()
    assert (replay.found, ledger_size(store).records) == ({key_bytes("ab" * 20)}, 1)
