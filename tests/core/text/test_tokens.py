"""The shipped encodings are the published ones."""

import pytest

from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.errors import ConfigError

PUBLISHED = [
    ("cl100k_base", "hello world", [15339, 1917]),
    ("cl100k_base", " \x850", [220, 126, 227, 15]),
    ("o200k_base", "hello world", [24912, 2375]),
    ("o200k_base", "お誕生日おめでとう", [8930, 9697, 243, 128225, 8930, 17693, 4344, 48669]),
]


@pytest.mark.parametrize(("name", "text", "tokens"), PUBLISHED)
def test_the_published_tokens_are_given(name: str, text: str, tokens: list[int]) -> None:
    assert encoding(name).encode_ordinary(text) == tokens
    assert counter(name)(text) == len(tokens)


def test_special_tokens_in_a_text_count_as_text() -> None:
    assert counter("cl100k_base")("<|endoftext|>") > 1


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="o200k_base"):
        encoding("gpt2")
