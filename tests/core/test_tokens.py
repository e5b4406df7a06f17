"""The shipped encodings are the published ones."""

import pytest

from hirag_dist.core.tokens import counter, encoding
from hirag_dist.errors import ConfigError


def test_cl100k_gives_the_published_tokens() -> None:
    assert encoding("cl100k_base").encode_ordinary("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]


def test_o200k_gives_the_published_tokens() -> None:
    assert encoding("o200k_base").encode_ordinary("hello world") == [24912, 2375]


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_encoding_and_decoding_lose_nothing(name: str) -> None:
    text = "It's 12345 o'clock — 北京, Straße, عربى, 🧑🏽‍🚀\r\n\t <|endoftext|>"
    assert encoding(name).decode(encoding(name).encode_ordinary(text)) == text


def test_special_tokens_in_a_text_count_as_text() -> None:
    assert counter("cl100k_base")("<|endoftext|>") > 1


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="o200k_base"):
        encoding("gpt2")
