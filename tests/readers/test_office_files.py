"""Office files, books and mails as INPUT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.readers import Document, find_inputs, missing_packages, office_files
from hirag_dist.readers.office_files import missing_package
from tests.readers.office import makers

Read = Callable[..., list[Any]]


@pytest.mark.integration
@pytest.mark.smoke
def test_files_are_read_in_the_process_with_limits(read: Read) -> None:
    (word,) = read("a.docx", makers.word())
    assert (word.title, word.text.split("\n")[0], word.places[0].section) == ("Manual", "# The lamp", "The lamp")
    attachments = ("b.docx", makers.word()), ("c.jsonl", b'{"text": "one"}\n{"text": "two"}\n'), ("d.zip", b"x")
    inner = makers.mail(("e.html", b"<h1 id='x'>Deep</h1><p>words</p>"), ("f.docx", b"broken"))
    found = read("a.eml", makers.mail(*attachments, ("in.eml", inner)))
    assert [each.record for each in found] == list(range(7))
    documents = [each for each in found if isinstance(each, Document)]
    assert [each.title for each in documents] == ["Lämp", "Manual", "one", "two", "Lämp", "Deep"]
    assert "d.zip" in documents[0].text
    assert [each.places[0].section for each in documents[1:4]] == ["The lamp", "c.jsonl", "c.jsonl"]
    assert found[-1].reason == "attachment in.eml: attachment f.docx: the file is damaged or truncated"
    assert read("a.pptx", b"")[0].reason == "the file is empty"
    assert "is larger than 5 bytes" in read("a.xlsx", makers.sheets(), max_file_bytes=5)[0].reason
    long = read("a.docx", makers.word(), max_document_bytes=20)
    assert [each.reason[:39] for each in long] == ["the text is longer than 20 bytes: split"]
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f'<w:document xmlns:w="{namespace}"><w:body>{"<w:p/>" * 500_000}</w:body></w:document>'
    small = read("a.docx", makers.with_parts(makers.word(), {"word/document.xml": body}), memory_bytes=1 << 20)
    assert [each.reason[:33] for each in small] == ["the file takes more than 1048576 "]


def test_a_package_that_is_not_installed(read: Read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(office_files.PACKAGES, "docx", ("no_such_module", "python-docx"))
    reason = "the file needs python-docx: pip install 'hirag-dist[documents]', and run the same command again"
    assert missing_package("docx") == reason
    assert missing_package("pdf") == ""
    assert [each.reason for each in read("a.docx", makers.word())] == [reason]
    notice = missing_packages(find_inputs([str(tmp_path / "a.docx")]))
    assert notice.endswith(
        "without the extra `documents`: pip install 'hirag-dist[documents]', and run the same command again"
    )
    assert missing_packages(()) == ""
