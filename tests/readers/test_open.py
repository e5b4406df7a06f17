from __future__ import annotations

import pytest

from hirag_dist.readers.open import public_uri, split_name


def test_credentials_and_query_are_never_shown() -> None:
    shown = public_uri("s3://key:s%2Fcret@bucket/a/b.txt?endpoint_override=http://x&region=y")
    assert shown == "s3://bucket/a/b.txt"
    assert public_uri("file:///a%20b/c@d:e.txt") == "file:///a%20b/c@d:e.txt"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a.TXT", ("a", ".txt", None)),
        ("x/a.b.jsonl.GZ", ("a.b", ".jsonl", "gz")),
        ("file:///x/a%20b.md.zst?q=1", ("a b", ".md", "zst")),
        ("README", ("README", "", None)),
        ("a.gz", ("a", "", "gz")),
    ],
)
def test_names(name: str, parts: tuple[str, str, str | None]) -> None:
    assert split_name(name) == parts
