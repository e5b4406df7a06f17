from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.config.sections import ExtractionConfig
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.base import content_config, differences


def test_the_short_form_names_the_calls(tmp_path: Any) -> None:
    assert Config.model_validate({"extraction": "two_step"}).extraction == ExtractionConfig(calls="two_step")
    (tmp_path / "hirag.yaml").write_text("extraction: two_step\n")
    loaded = load_config(str(tmp_path / "hirag.yaml"), {"HIRAG__EXTRACTION__METHOD": "nlp"}).config
    assert (loaded.extraction.method, loaded.extraction.calls) == ("nlp", "two_step")
    with pytest.raises(ConfigError, match="extraction"):
        load_config(None, {"HIRAG__EXTRACTION": "three_step"})


def test_an_index_of_an_earlier_version_has_the_configuration_of_method_llm() -> None:
    """That version recorded `extraction: joint`."""
    for extraction in ("joint", {}, {"method": "llm"}):
        assert content_config(Config.model_validate({"extraction": extraction}))["extraction"] == "joint"


def test_another_method_is_another_index() -> None:
    before = {"config": content_config(Config())}
    now = {"config": content_config(Config.model_validate({"extraction": {"method": "nlp"}}))}
    assert differences(before, now)


def test_summaries_that_see_less_of_their_members_are_another_index() -> None:
    """Former versions showed 480 characters, and recorded nothing of it."""
    former = content_config(Config())
    assert "member_chars" not in former["clustering"]
    now = content_config(Config.model_validate({"clustering": {"member_chars": 60}}))
    assert differences(former, now) == ["clustering.member_chars: not there → 60"]


def test_a_key_that_is_fixed_now_is_no_difference() -> None:
    now: dict[str, Any] = {"kernels": "cpu", "config": content_config(Config())}
    config = now["config"]
    former = config | {"homonyms": "merge", "pack_units": 8, "clustering": config["clustering"] | {"max_size": 40}}
    assert differences(now | {"config": former}, now) == []
    former["clustering"]["max_size"] = 60
    assert differences(now | {"config": former}, now) == ["config.clustering.max_size: 60 → not there"]
    assert differences(now | {"config": now["config"] | {"homonyms": "split"}}, now) == [
        "config.homonyms: split → not there"
    ]


def test_a_mode_that_reads_the_whole_corpus_is_no_default_and_says_where_it_is_chosen() -> None:
    with pytest.raises(ConfigError, match=r"retrieval\.mode: .* part of the corpus, .* `query --mode graphrag-global`"):
        load_config(None, {"HIRAG__RETRIEVAL__MODE": "graphrag-global"})
