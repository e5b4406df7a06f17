"""The sizes of a configuration, cut to the windows of its models."""

from __future__ import annotations

import pytest

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.window_sizes import fit_to_windows, member_tokens, size_changes

ROLES = ("extract", "summarise", "report")
SIZES = (
    "chunk_tokens",
    "chunk_overlap_tokens",
    "description_tokens",
    "pack_tokens",
    "clustering.target_size",
    "communities.report_tokens",
)


def fitted(window: int, config: Config | None = None) -> Config:
    return fit_to_windows(config or Config(), dict.fromkeys(ROLES, window), Prompts())


def sizes(config: Config) -> list[int]:
    flat = config.model_dump()
    return [flat[name] if "." not in name else flat[name.split(".")[0]][name.split(".")[1]] for name in SIZES]


def test_sizes_shrink_with_the_window_and_never_grow() -> None:
    windows = [768, 1024, 2048, 4096, 8192, 16_384, 32_768, 131_072]
    found = [sizes(fitted(window)) for window in windows]
    for smaller, larger in zip(found, [*found[1:], sizes(Config())], strict=True):
        assert all(a <= b for a, b in zip(smaller, larger, strict=True))
    assert fitted(131_072) == Config()
    assert fitted(8192).chunk_tokens == Config().chunk_tokens


def test_the_sizes_that_were_cut_are_named() -> None:
    changes = size_changes(Config(), fitted(1024))
    assert f"chunk_tokens 1,200 → {fitted(1024).chunk_tokens}" in changes
    assert size_changes(Config(), fitted(131_072)) == []


def test_the_overlap_stays_the_same_part_of_a_chunk() -> None:
    cut = fitted(1024)
    assert 0 < cut.chunk_overlap_tokens * 10 < cut.chunk_tokens < 300


def test_units_share_no_call_in_a_small_window() -> None:
    assert fitted(1024).pack_tokens == 0
    assert fit_to_windows(Config(), {"summarise": 131_072, "report": 1024}, Prompts()).pack_tokens == 0


def test_a_role_without_a_known_window_keeps_its_sizes() -> None:
    cut = fit_to_windows(Config(), {"report": 1024}, Prompts())
    assert cut.communities.report_tokens < Config().communities.report_tokens
    assert (cut.chunk_tokens, cut.clustering) == (Config().chunk_tokens, Config().clustering)


def test_more_calls_or_a_longer_prompt_for_a_chunk_make_it_smaller() -> None:
    usual = fitted(1024).chunk_tokens
    assert fitted(2048, Config(gleaning_rounds=1)).chunk_tokens < fitted(2048).chunk_tokens
    longer = Prompts(examples={"extract-graph": "an example of ten words, which stands for many " * 10})
    assert fit_to_windows(Config(), {"extract": 1024}, longer).chunk_tokens < usual


def test_a_window_without_room_for_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"512 tokens, has room for \d+ tokens of text .* larger window"):
        fitted(512)


def test_rules_that_call_no_model_read_chunks_of_any_size() -> None:
    nlp = Config.model_validate({"extraction": {"method": "nlp"}})
    assert fit_to_windows(nlp, {"extract": 512}, Prompts()).chunk_tokens == nlp.chunk_tokens


def test_members_of_a_cluster_have_room_for_a_description_each() -> None:
    cut = fitted(1024)
    room = member_tokens(1024, Prompts(), ("person",), cut.tokenizer)
    assert room / cut.clustering.max_size >= 50
