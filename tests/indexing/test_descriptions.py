"""Descriptions of entities that many texts name: merged within the budget of an update, put off, kept or joined."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.core.entities.merging import DescriptionBound
from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.indexing import descriptions
from hirag_dist.indexing.stages import merge
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.indexing.test_updates import LAYER_0, LivingBench, base_table, check_base_layer, check_consistent
from tests.toy_builds import LAYER_0_ALONE, between, members, rows, task_of

HUB = entity_id(0, name_key("hub"))
KEYS: dict[str, Any] = {"description_tokens": 60}  # two of the descriptions below, and not three
NOTHING_LEFT: dict[str, Any] = KEYS | {"update": {"max_ratio": 1.0}}
MUCH_LEFT: dict[str, Any] = KEYS | {"update": {"max_ratio": 100.0}}
UNPAID = NOTHING_LEFT | LAYER_0_ALONE
PAID = MUCH_LEFT | LAYER_0_ALONE


def text(mark: str) -> str:
    """Return a text that names HUB, and a topic of its own."""
    return f"mark{mark} " + " ".join(f"said{mark}{at}" for at in range(6))


def marks(text: str) -> set[str]:
    return set(re.findall(r"mark\w+", text))


def tell(request: ChatRequest) -> str | None:
    """Reply with all marks of the request, so that what a text derives from can be read in it."""
    task, told = task_of(request), " ".join(sorted(marks(request.messages[1].content)))
    if task == "extract-graph":
        words = between(request, "text").split()
        lines = [f"entity<|>{word}<|>concept<|>{word} is in {told or 'a text'}." for word in words]
        if told:
            told_of = f"It is told of {' '.join(words)}, and that is all there is to be told."
            lines.append(f"entity<|>hub<|>concept<|>{told_of}")
            lines += [f"relation<|>hub<|>{word}<|>It holds {word} in {told}.<|>3" for word in words]
        return "\n".join([*lines, DONE])
    if task == "describe":
        return f"Merged of {told}."
    if task == "summarise":
        names = members(request)
        title = f"those like {names[0]}"
        lines = [f"entity<|>{title}<|>concept<|>They share {told}."]
        lines += [f"relation<|>{at}<|>{title}<|>It is one.<|>5" for at in range(1, len(names) + 1)]
        return "\n".join([*lines, DONE])
    return None


@pytest.fixture
def bench(tmp_path: Path) -> LivingBench:
    """An index whose model says what each text derives from."""
    return LivingBench(tmp_path, tell)


def corpus(*names: str) -> dict[str, str]:
    return {f"{name}.txt": text(name) for name in names}


def hub(snapshot: Snapshot) -> str:
    """Return the description of HUB."""
    return next(str(row["description"]) for row in rows(snapshot, "entities") if row["entity_id"] == HUB)


def written(snapshot: Snapshot) -> set[str]:
    """Return the marks in all texts of a snapshot."""
    tables = [name for name in snapshot.manifest.counts if name not in ("usage", "rejects")]
    return marks(repr([rows(snapshot, name) for name in tables]))


def without_hub(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [row for row in base_table(snapshot, "entities").to_pylist() if row["entity_id"] != HUB]


def check_debt(snapshot: Snapshot, *origins: str) -> None:
    """Check that the debt of a snapshot is that of its note, and where its descriptions come from."""
    found, note = rows(snapshot, "description_debt"), snapshot.manifest.update
    assert [row["origin"] for row in found] == list(origins)
    assert note is not None
    tokens, stand_ins = sum(row["tokens"] for row in found), origins.count("stand-in")
    expected = {"units": len(found), "tokens": tokens, "stand_ins": stand_ins}
    assert note.debt["descriptions"].model_dump() == expected


def test_a_description_that_the_budget_cannot_pay_is_kept_until_a_later_update_or_a_refresh_pays(
    bench: LivingBench,
) -> None:
    before = bench.index(corpus(*"abc"), **UNPAID)
    assert hub(before) == "Merged of marka markb markc."
    after = bench.add(corpus("d"), **UNPAID)
    assert not bench.bench.asked("describe")
    assert hub(after) == hub(before)
    check_debt(after, "model")
    fresh = bench.fresh(corpus(*"abcd"), **UNPAID)
    check_base_layer(after, fresh, [name for name in LAYER_0 if name != "entities"], vectors=False)
    assert without_hub(after) == without_hub(fresh)
    other = {"e.txt": "lone words only"}
    later = bench.add(other, **PAID)
    check_debt(later)
    check_base_layer(later, bench.fresh(corpus(*"abcd") | other, **PAID))
    check_debt(bench.add(corpus("f"), **UNPAID), "model")
    paid = bench.refresh(**UNPAID)
    check_debt(paid)
    assert hub(paid) == "Merged of marka markb markc markd markf."


def test_a_description_that_derives_from_a_removed_text_is_joined_anew(bench: LivingBench) -> None:
    bench.index(corpus(*"abcde"), **NOTHING_LEFT)
    after = bench.remove(sources=("e.txt",), **NOTHING_LEFT)
    check_debt(after, "stand-in")
    assert "marke" not in written(after)
    assert hub(after).startswith("It is told of mark")
    paid = bench.refresh(**NOTHING_LEFT)
    check_debt(paid)
    check_base_layer(paid, bench.fresh(corpus(*"abcd"), **NOTHING_LEFT))


def test_a_description_that_never_had_the_removed_text_stays(bench: LivingBench) -> None:
    before = bench.index(corpus(*"abc"), **NOTHING_LEFT)
    bench.add(corpus(*"de"), **NOTHING_LEFT)
    after = bench.remove(sources=("e.txt",), **NOTHING_LEFT)
    check_debt(after, "model")
    assert hub(after) == hub(before)
    assert "marke" not in written(after)
    bench.index(corpus(*"abc") | {"f.txt": "other words"}, **NOTHING_LEFT)
    there = bench.remove(sources=("f.txt",), **NOTHING_LEFT)
    check_debt(there)  # it derives from just the texts that there are
    assert hub(there) == hub(before)


@pytest.mark.parametrize(("edited_to", "n_unread"), [(text("later"), 1), ("lone words", 0)])
def test_an_edit_leaves_the_description_until_the_document_goes(
    bench: LivingBench, edited_to: str, n_unread: int
) -> None:
    """Also where no mention of the entity goes with the document."""
    before = bench.index(corpus(*"abcd"), **NOTHING_LEFT)
    edited = bench.index(corpus(*"abc") | {"d.txt": edited_to}, **NOTHING_LEFT)
    check_debt(edited, "model")
    assert hub(edited) == hub(before)
    assert "markd" in hub(edited)
    (owed,) = rows(edited, "description_debt")
    assert (len(owed["unread"]), len(owed["sources"])) == (n_unread, 1)
    gone = bench.remove(sources=("d.txt",), **NOTHING_LEFT)
    check_debt(gone, "stand-in")
    assert not written(gone) & {"markd", "marklater"}


def test_an_edit_elsewhere_in_a_document_asks_for_no_description(bench: LivingBench) -> None:
    chunked = PAID | {"chunking": "sentences", "chunk_tokens": 32, "chunk_overlap_tokens": 0}
    first = {"a.txt": "\n\n".join(f"{text(mark)}." for mark in ("one", "two", "three"))}
    before = bench.index(first | corpus("b"), **chunked)
    after = bench.index(first | {"b.txt": text("b") + " "}, **chunked)
    assert hub(after) == hub(before)
    assert not bench.bench.asked("describe")


@pytest.mark.parametrize("labels", ["x", ""], ids=["a label stays", "it is taken off"])
def test_no_description_of_a_former_text_is_kept_beside_labels(bench: LivingBench, labels: str) -> None:
    def records(last: str, *labels: str) -> dict[str, str]:
        found = [{"id": name[0], "text": text(name)} for name in ("a", "b", "c", last)]
        found[-1]["labels"] = [label for label in labels if label]
        return {"all.jsonl": "\n".join(map(json.dumps, found))}

    bench.index(records("d", "x"), **NOTHING_LEFT)
    edited = bench.index(records("dd", labels), **NOTHING_LEFT)
    check_debt(edited, "stand-in")
    assert "markd" not in written(edited)


def test_a_description_under_another_type_is_due_until_the_type_is_that_again(bench: LivingBench) -> None:
    def typed(request: ChatRequest) -> str | None:
        said = tell(request)
        if said is None or task_of(request) != "extract-graph" or "other" not in between(request, "text"):
            return said
        return said.replace("hub<|>concept<|>It is told", "hub<|>place<|>It is told")

    bench.script = typed
    kinds = ("1", "2", "3", "other4", "other5")
    first = corpus(*kinds)
    before = bench.index(first, **UNPAID)
    again = {f"{at}.txt": f"{text(at)}\n" for at in ("other4", "other5")}  # two texts stand twice: HUB is a place
    check_debt(bench.add({f"copy{name}": content for name, content in again.items()}, **UNPAID), "model")
    bench.add({"lone.txt": "lone words"}, **UNPAID)
    back = bench.remove(sources=("copy*",), **UNPAID)
    check_debt(back)
    assert hub(back) == hub(before)
    assert not bench.bench.asked("describe")


def test_a_text_beyond_those_that_are_merged_changes_no_description(
    bench: LivingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = DescriptionBound(count=4, chars=100_000)
    monkeypatch.setattr(merge, "MERGED", bound)
    monkeypatch.setattr(descriptions, "MERGED", bound)
    bench.bench.takes_copies = False
    before = bench.index(corpus(*"abcdefg"), **UNPAID)
    (beyond, *_) = sorted(marks(" ".join(text(name) for name in "abcdefg")) - marks(hub(before)))
    after = bench.remove(sources=(f"{beyond.removeprefix('mark')}.txt",), **UNPAID)
    check_debt(after)
    assert hub(after) == hub(before)


def test_a_refused_description_is_no_debt(bench: LivingBench) -> None:
    bench.index(corpus(*"abc"), **PAID)
    strict = PAID | {"max_reject_ratio": 0}  # an update is done nevertheless
    bench.script = lambda request: "" if task_of(request) == "describe" else tell(request)
    after = bench.add(corpus("d"), **strict)
    check_debt(after)
    assert [row["unit_id"] for row in rows(after, "rejects")] == [HUB]
    bench.script = tell
    later = bench.add(corpus("e"), **UNPAID)
    check_debt(later, "stand-in")  # the joined text is no model's: it is not kept
    assert not rows(later, "rejects")
    check_base_layer(bench.refresh(**UNPAID), bench.fresh(corpus(*"abcde"), **UNPAID))


def test_a_history_leaves_nothing_of_removed_documents_and_a_refresh_makes_all_equal(bench: LivingBench) -> None:
    rng = random.Random(12)  # documents come, go and are edited while much, some and nothing is left
    now = {f"{name}.txt": text(name) for name in "abcd"}
    bench.index(now, **NOTHING_LEFT)
    former: dict[str, set[str]] = {name: marks(content) for name, content in now.items()}
    for step in range(3):
        ratio = rng.choice([1.0, 1.0, 3.0, 30.0])
        for name in rng.sample(sorted(now), rng.randrange(3)):
            if rng.random() < 0.5 and len(now) > 2:
                del now[name], former[name]
            else:
                now[name] = text(f"{name[0]}edit{step}")
                former[name] |= marks(now[name])
        new = f"n{step}.txt"
        if rng.random() < 0.7:
            now[new] = text(f"n{step}")
            former[new] = marks(now[new])
        after = bench.index(now, **KEYS | {"update": {"max_ratio": ratio}})
        check_consistent(after)
        assert written(after) <= set().union(*former.values())
        check_debt(after, *(row["origin"] for row in rows(after, "description_debt")))
        entities = set(base_table(after, "entities")["entity_id"].to_pylist())
        assert {entity_id(0, row["name_key"]) for row in rows(after, "description_debt")} <= entities
    check_base_layer(bench.refresh(**NOTHING_LEFT), bench.fresh(now, **NOTHING_LEFT))
