"""The sizes of a configuration, cut to the windows of its models."""

from __future__ import annotations

import pytest

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.window_sizes import fit_to_windows

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


def test_units_share_no_call_in_a_small_window() -> None:
    assert fit_to_windows(Config(), {"summarise": 131_072, "report": 1024}, Prompts()).pack_tokens == 0


def test_a_role_without_a_known_window_keeps_its_sizes() -> None:
    cut = fit_to_windows(Config(), {"report": 1024}, Prompts())
    assert cut.communities.report_tokens < Config().communities.report_tokens
    assert (cut.chunk_tokens, cut.clustering) == (Config().chunk_tokens, Config().clustering)


def test_a_window_without_room_for_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"512 tokens, has room for \d+ tokens of text .* larger window"):
        fitted(512)
