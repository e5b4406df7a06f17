"""Claims of a built index: whom they are about, what is asked, and what becomes of refused replies."""

from __future__ import annotations

from typing import Any

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.ids import entity_id
from hirag_dist.storage.layout import CLAIMS
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.toy_builds import LAYER_0_ALONE, Bench, between, rows, task_of

WANTED: dict[str, Any] = LAYER_0_ALONE | {
    "claims": True,
    "llm": {
        "endpoints": {"model": {"base_url": "http://model", "model": "m"}},  # not asked: the bench's model is
        "roles": {"extract": "model"},
    },
}
TEXTS = ["alpha beta gamma", "beta delta epsilon"]


def claim(request: ChatRequest) -> str | None:
    """Each text's first word is claimed to lead its second, and no one is claimed to lead alpha."""
    if task_of(request) != "extract-claims":
        return None
    first, second, *_ = between(request, "text").split()
    told = f"order<|>TRUE<|>NONE<|>NONE<|>It stands first.<|>{first} {second}"
    lines = [f"claim<|>{first}<|>{second}<|>{told}", f"claim<|>Nobody<|>alpha<|>{told}"]
    return "\n".join([*lines, DONE])


def texts_of(snapshot: Snapshot) -> dict[str, str]:
    return {row["chunk_id"]: row["text"] for row in rows(snapshot, "chunks")}


def test_claims_are_about_the_entities_of_their_chunk(bench: Bench) -> None:
    snapshot = bench.build(TEXTS, claim, **WANTED)
    found = {(texts_of(snapshot)[row["chunk_id"]], row["subject"]): row for row in rows(snapshot, CLAIMS)}
    assert len(found) == 4
    first = {"subject_id": entity_id(0, "alpha"), "object_id": entity_id(0, "beta"), "type": "order", "status": "true"}
    assert found[TEXTS[0], "alpha"].items() >= (first | {"start_date": "", "source_text": "alpha beta"}).items()
    nobody = [(found[text, "Nobody"]["subject_id"], found[text, "Nobody"]["object_id"]) for text in TEXTS]
    assert nobody == [(None, entity_id(0, "alpha")), (None, None)], "alpha is not in the second chunk"
    shown = {between(request, "entities") for request in bench.asked("extract-claims")}
    assert shown == {"alpha\nbeta\ngamma", "beta\ndelta\nepsilon"}


def test_by_default_none_are_asked_for_and_the_snapshot_is_as_before(bench: Bench) -> None:
    snapshot = bench.build(TEXTS, claim, **LAYER_0_ALONE)
    assert bench.asked("extract-claims") == []
    assert CLAIMS not in snapshot.manifest.counts
    assert "claims" not in snapshot.manifest.build["config"]


def test_a_refused_reply_is_a_dead_letter_that_is_asked_again(bench: Bench) -> None:
    def refuse(request: ChatRequest) -> str | None:
        broken = task_of(request) == "extract-claims" and "delta" in request.messages[1].content
        return "I would rather not." if broken else claim(request)

    snapshot = bench.build(TEXTS, refuse, **WANTED)
    (letter,) = rows(snapshot, "rejects")
    assert (letter["stage"], texts_of(snapshot)[letter["unit_id"]]) == ("claims", TEXTS[1])
    assert len(rows(snapshot, CLAIMS)) == 2
    after = bench.build(TEXTS, claim, **WANTED, retry=True)
    assert after.manifest.complete
    assert len(rows(after, CLAIMS)) == 4
    assert [between(request, "text") for request in bench.asked("extract-claims")] == [TEXTS[1]]
