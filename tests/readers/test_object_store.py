"""Reading from an S3 server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from pyarrow import fs

from hirag_dist.errors import InputError
from hirag_dist.readers import Document, ReadOptions, check_inputs, find_inputs, read_source
from tests.storage.s3_server import s3_server


@pytest.fixture(scope="module")
def query() -> Iterator[str]:
    """The query of URIs on the server, whose bucket holds five files."""
    with s3_server() as (_, uri):
        query = uri.partition("?")[2]
        for name in ("docs/a.txt", "docs/ü b.md", "docs/sub/c.txt", "docs/.hidden.txt", "docs/pic.png"):
            write(query, name)
        yield query


def write(query: str, name: str, content: bytes = b"Alice met Bob.") -> None:
    store, _ = fs.FileSystem.from_uri(f"s3://key:secret@bucket/?{query}")
    with store.open_output_stream(f"bucket/{name}") as stream:
        stream.write(content)


def shown(name: str, query: str) -> list[str]:
    return [file.display for file in find_inputs([f"s3://key:secret@bucket/{name}?{query}"])]


def test_folders_globs_and_files(query: str) -> None:
    every = ["s3://bucket/docs/a.txt", "s3://bucket/docs/pic.png", "s3://bucket/docs/sub/c.txt"]
    assert shown("docs", query) == ["s3://bucket/docs/%C3%BC%20b.md", *every]
    assert shown("docs/", query) == shown("docs", query)
    assert shown("docs/*.txt", query) == every[:1]
    assert shown("docs/**/*.txt", query) == [every[0], every[2]]
    assert shown("docs/a.txt", query) == every[:1]


def test_documents_hold_no_credentials(query: str) -> None:
    for source in find_inputs([f"s3://key:secret@bucket/docs/**/[aüc]*?{query}"]):
        (found,) = read_source(source, ReadOptions())
        assert isinstance(found, Document)
        assert found.text == "Alice met Bob."
        assert found.title in ("a", "ü b", "c")
        assert found.uri == source.display
        assert "secret" not in repr(found)


@pytest.mark.parametrize("name", ["nothing", "docs/*.pdf", "docs/none.txt"])
def test_what_is_not_there(query: str, name: str) -> None:
    with pytest.raises(InputError) as caught:
        shown(name, query)
    assert f"s3://bucket/{name}" in str(caught.value)
    assert "secret" not in str(caught.value)
    with nullcontext() if "*" in name else pytest.raises(InputError, match=f"^s3://bucket/{name} does not exist"):
        check_inputs([f"s3://key:secret@bucket/{name}?{query}"])


def test_a_name_with_a_percent_sign_is_found_as_it_is_written_in_a_uri(query: str) -> None:
    write(query, "odd/sp ace ä+%41.txt")
    assert shown("odd/sp ace ä+%2541.txt", query) == ["s3://bucket/odd/sp%20ace%20%C3%A4+%2541.txt"]
    with pytest.raises(InputError, match=r"does not exist: .*; a percent sign of a name is written %25 in a URI"):
        shown("odd/sp ace ä+%41.txt", query)
    with pytest.raises(InputError, match=r"cannot be reached: .*utf-8"):
        shown("odd/%ff", query)


def test_what_is_there_is_not_refused(query: str) -> None:
    check_inputs([f"s3://key:secret@bucket/{name}?{query}" for name in ("", "docs", "docs/", "docs/a.txt", "d*/*.txt")])


def test_an_index_below_its_input_is_left_out(query: str) -> None:
    for name in ("own/a.txt", "own/index/current", "own/index/snapshots/s/manifest.json", "own/index/notes.txt"):
        write(query, name)
    assert shown("own", query) == ["s3://bucket/own/a.txt"]


def test_objects_have_the_etag_of_their_content(query: str) -> None:
    """It tells two writes of one size within a second apart; the time that S3 gives does not."""
    tags = []
    for content in (b"Alice met Bob.", b"Alice met Ann.", b"Alice met Bob."):
        for name in ("tags/ü 1.txt", "tags/sub/2%20.txt"):
            write(query, name, content)
        found = find_inputs([f"s3://key:secret@bucket/tags?{query}"])
        tags.append([file.etag for file in found])
        (single,) = find_inputs([f"s3://key:secret@bucket/tags/sub/2%2520.txt?{query}"])
        assert single.etag in tags[-1]
    assert tags[0] == tags[2] != tags[1]
    assert all(tags[0])
