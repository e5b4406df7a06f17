"""With a label field, no document without that field becomes public."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hirag_dist.readers import Document, Unreadable

Read = Callable[..., list[Any]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "secret"),
        ("a.md", "# Title\nsecret"),
        ("a.md", "---\nwho: [x\n---\nsecret"),
        ("a.html", "<html><body><p>secret</p></body></html>"),
        ("a.json", '["secret"]'),
        ("a.json", '{"d1": "secret", "d2": "more"}'),
        ("a.jsonl", '"secret"'),
        ("a.csv", "text,labels\nsecret,x"),
    ],
)
def test_without_the_named_field_there_is_no_document(read: Read, name: str, content: str) -> None:
    assert all(isinstance(found, Document) for found in read(name, content)) or "[x\n" in content
    for found in read(name, content, label_field="who"):
        assert isinstance(found, Unreadable)
        assert "'who' with the labels" in found.reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\nwho:\n---\nopen"),
        ("a.md", "---\nWho: []\n---\nopen"),
        ("a.jsonl", '{"text": "open", "who": null}'),
        ("a.csv", "text,who\nopen,"),
    ],
)
def test_an_empty_field_is_no_label(read: Read, name: str, content: str) -> None:
    (found,) = read(name, content, label_field="who")
    assert (found.text.strip(), found.labels) == ("open", ())
