"""Proposals for a domain: the sample, the calls, the files, and what is said without a language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.application.tuning import (
    TuningProposal,
    check_target,
    plan_tuning,
    run_tuning,
    take_sample,
    write_files,
)
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import BudgetReached, ConfigError
from hirag_dist.llm.prompt_files import load_prompts
from tests.scripted_endpoint import Asked, Endpoint

TEXTS = {
    "appeal.md": "The appellant said to the Court of Appeal that the lease was void, and the judge left. ",
    "enzyme.md": "The enzyme lactase is made in the gut of a child, and it splits the milk that was drunk in two. ",
    "hafen.md": "Der Hafen und die Leute sind nicht auf dem Schiff, und das ist bei dem Wetter auch nicht zu sehen. ",
}
TYPES = "court decision\nenzyme\nperson\n"
RECORDS = {
    "entities": [{"name": "Lactase", "type": "enzyme", "description": "An enzyme."}],
    "relations": [],
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text * 30, "utf-8")
    for number in range(10):
        (folder / f"copy-{number}.md").write_text(TEXTS["appeal.md"] * (29 - number), "utf-8")
    return folder


def config(url: str = "", **llm: Any) -> Config:
    if not url:
        return Config()
    main = {"base_url": url, "model": "m", "price": {"input": 1.0, "output": 2.0}} | llm
    roles = dict.fromkeys(("extract", "summarise", "report", "answer"), "main")
    return Config.model_validate({"llm": {"endpoints": {"main": main}, "roles": roles}})


PROBED = {"ok": True, "sure": "yes", "percent": 100, "words": []}


def scripted(asked: Asked) -> str:
    if asked.task in ("entity-types", "meta-types"):
        return TYPES
    return json.dumps(RECORDS if asked.task == "extract-graph" else PROBED)


def tuned(endpoint: Endpoint, corpus: Path, out: Path, max_usd: float | None = 5.0) -> TuningProposal:
    chosen = config(endpoint.url)
    sample = take_sample([str(corpus)], chosen, 4, 2)
    return run_tuning(sample, chosen, Prompts(), str(out), max_usd)


def test_the_sample_is_diverse_and_the_same_in_any_order(corpus: Path) -> None:
    sample = take_sample([str(corpus)], Config(), 3, 2)
    assert sample.documents == 13
    assert {next(name for name, text in TEXTS.items() if one.startswith(text[:20])) for one in sample.excerpts} == set(
        TEXTS
    )
    assert dict(sample.languages) == {"English": pytest.approx(2 / 3), "German": pytest.approx(1 / 3)}
    assert len(sample.passages) == 2
    assert all(passage.endswith(".") and len(passage) < 700 for passage in sample.passages)
    files = sorted(map(str, corpus.iterdir()), reverse=True)
    assert take_sample(files, Config(), 3, 2) == sample


def test_a_language_model_proposes_and_nothing_is_paid_twice(corpus: Path, tmp_path: Path) -> None:
    endpoint = Endpoint(scripted)
    try:
        out = tmp_path / "tuned"
        chosen = config(endpoint.url)
        sample = take_sample([str(corpus)], chosen, 4, 2)
        planned = plan_tuning(sample, chosen, Prompts())
        assert [(stage.stage, stage.calls) for stage in planned] == [
            ("entity types", 1), ("meta types", 1), ("examples", 2),
        ]  # fmt: skip
        assert not endpoint.asked
        with pytest.raises(BudgetReached):
            run_tuning(sample, chosen, Prompts(), str(out), max_usd=1e-6)
        assert not endpoint.asked
        made = run_tuning(sample, chosen, Prompts(), str(out), max_usd=5.0)
        assert len(endpoint.asked) == 5  # with the probe of structured outputs
        assert made.by_llm
        assert made.entity_types == ("court decision", "enzyme", "person")
        assert "court decision, enzyme, person" in endpoint.asked[-1].system  # examples use the proposed types
        assert made.sent.sent_sums()["calls"] == 5
        assert run_tuning(sample, chosen, Prompts(), str(out), max_usd=5.0).sent.sent_sums()["calls"] == 0
        assert len(endpoint.asked) == 5
    finally:
        endpoint.close()
    files = write_files(sample, made, str(out))
    written = yaml.safe_load((out / "hirag.yaml").read_text("utf-8"))
    assert Config.model_validate(written).entity_types == made.entity_types
    examples = load_prompts(written["prompts"]).examples["extract-graph"]
    assert json.dumps({"id": 1, **RECORDS["entities"][0]}) in examples
    assert sample.passages[0] in examples
    assert len(files) == 2
    with pytest.raises(ConfigError, match="--force"):
        check_target(str(out), force=False)
    check_target(str(out), force=True)
