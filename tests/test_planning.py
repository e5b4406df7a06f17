"""What an index would cost, against what the build of the same files then finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.config import Config
from hirag_dist.core.prompts import Prompts
from hirag_dist.errors import InputError
from hirag_dist.planning import make_plan

CORPUS = Path(__file__).parents[1] / "hirag_dist" / "samples" / "corpus"
CHAT = {
    "base_url": "http://127.0.0.1:9",
    "model": "m",
    "price": {"input": 2.0, "output": 8.0},
    "rpm": 60,
    "max_concurrent": 1000,
}
ROLES = ("extract", "summarise", "report")


def plan(inputs: list[Path], **keys: Any) -> Any:
    return make_plan([str(path) for path in inputs], Config.model_validate(keys), Prompts())


def priced(**more: Any) -> dict[str, Any]:
    return {"endpoints": {"paid": CHAT | more}, "roles": dict.fromkeys(ROLES, "paid")}


def test_counts_documents_copies_and_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The same words.")
    (tmp_path / "b.txt").write_text("The same words.")
    (tmp_path / "c.md").write_text("Other words.")
    (tmp_path / "d.pdf").write_bytes(b"%PDF-1.7 broken")
    found = plan([tmp_path])
    assert (found.documents, found.duplicates, found.chunks) == (2, 1, 2)
    assert [Path(name).name for name, _ in found.unreadable] == ["d.pdf"]


def test_an_input_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        plan([tmp_path / "nowhere"])


def test_chunks_follow_the_configuration() -> None:
    whole = plan([CORPUS], chunking="none")
    assert whole.chunks == whole.documents == len(list(CORPUS.iterdir()))
    small, large = (plan([CORPUS], chunk_tokens=size, chunk_overlap_tokens=0) for size in (200, 1000))
    assert small.chunks > 3 * large.chunks
    assert small.tokens == pytest.approx(large.tokens, rel=0.02)


def test_calls_cost_and_time_of_a_paid_endpoint() -> None:
    found = plan([CORPUS], llm=priced())
    stages = {stage.stage: stage for stage in found.stages}
    extract = stages["extract"]
    assert (extract.endpoint, extract.calls) == ("paid", found.chunks)
    assert extract.input_tokens > found.tokens
    assert extract.cost_usd == pytest.approx((extract.input_tokens * 2 + extract.output_tokens * 8) / 1e6)
    assert extract.seconds == pytest.approx(found.chunks)  # 60 a minute
    assert stages["embed"].cost_usd == 0


def test_passes_multiply() -> None:
    once = plan([CORPUS], llm=priced())
    often = plan([CORPUS], llm=priced(), extraction="two_step", gleaning_rounds=1)
    assert often.stages[0].calls == 4 * once.stages[0].calls


def test_tokens_a_minute_bound_the_time() -> None:
    extract = plan([CORPUS], llm=priced(tpm=1000, rpm=None)).stages[0]
    assert extract.seconds == pytest.approx((extract.input_tokens + extract.output_tokens) / 1000 * 60)


def test_no_layers_no_summaries() -> None:
    stages = {stage.stage: stage.calls for stage in plan([CORPUS], max_layers=0).stages}
    assert stages["summarise"] == 0
    assert stages["reports"] > 0
