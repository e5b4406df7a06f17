from __future__ import annotations

import os
from pathlib import Path

import pytest

from hirag_dist.errors import InputError
from hirag_dist.readers import ReadOptions, Unreadable, find_inputs, read_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """docs/ with text, a picture, hidden things and a folder below it."""
    docs = tmp_path / "docs"
    for name in (
        "b.txt",
        "a.md",
        "pic.png",
        ".hidden.txt",
        "sub/c.jsonl.gz",
        "sub/ünï code.txt",
        ".git/d.txt",
        "README",
    ):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text("Alice met Bob.")
    return docs


def names(inputs: list[str], folder: Path) -> list[str]:
    return [os.path.relpath(os.path.abspath(file.display), folder) for file in find_inputs(inputs)]


def test_a_folder_is_walked_sorted_without_hidden_names(folder: Path) -> None:
    assert names([str(folder)], folder) == ["README", "a.md", "b.txt", "pic.png", "sub/ünï code.txt", "sub/c.jsonl.gz"]
    files = find_inputs([str(folder)])
    assert [file.format for file in files] == ["txt", "md", "txt", "unsupported", "txt", "jsonl"]
    assert [file.compression for file in files] == [None, None, None, None, None, "gz"]
    assert all(file.size_bytes == 14 and file.uri.startswith("file:///") for file in files)
    assert [file.uri for file in files] == sorted(file.uri for file in files)


def written(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text('{"text": "An index."}')


INDEX = ("current", "snapshots/s1/manifest.json", "build.json", "builds/1.json", "ledger/a.log", "cache/s1/a.json")


@pytest.mark.parametrize("index", [INDEX, ("run.lock", "build.json"), ("build.json", "work/read/1/part.parquet")])
def test_an_index_below_its_input_is_left_out(folder: Path, index: tuple[str, ...]) -> None:
    before = names([str(folder)], folder)
    written(folder / "sub/my-index", *index, "demo.yaml", "index.html")
    assert names([str(folder)], folder) == before
    assert names([f"{folder}/**"], folder) == before


def test_an_index_that_is_input_is_left_out_without_documents_beside_it(folder: Path) -> None:
    before = names([str(folder)], folder)
    written(folder, *INDEX)
    assert names([str(folder)], folder) == before


def test_documents_in_folders_named_as_those_of_an_index_are_read(folder: Path) -> None:
    written(folder, "current/a.json", "snapshots/a.json", "work/build.json", "builds/build.json")
    added = {"current/a.json", "snapshots/a.json", "work/build.json", "builds/build.json"}
    assert added <= {*names([str(folder)], folder)}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("**/*.txt", ["b.txt", "sub/ünï code.txt"]),
        ("**", ["README", "a.md", "b.txt", "pic.png", "sub/ünï code.txt", "sub/c.jsonl.gz"]),
        ("[!a].???", ["b.txt"]),
        (".h*", [".hidden.txt"]),
    ],
)
def test_globs(folder: Path, glob: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert names([f"{folder}/{glob}"], folder) == expected
    monkeypatch.chdir(folder)
    assert names([glob], folder) == expected


def test_the_same_file_named_in_every_way_is_listed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    ways = [str(folder), "b.txt", "./b.txt", "sub/../b.txt", (folder / "b.txt").as_uri(), "*.txt", f"{folder}/"]
    assert len(find_inputs(ways)) == 6
    assert find_inputs(ways) == sorted(find_inputs(ways), key=lambda file: file.uri)
    (one,) = find_inputs(["./b.txt"])
    assert one.display == "b.txt"


def test_a_file_uri_is_percent_decoded(folder: Path) -> None:
    path = folder / "sub" / "ünï code.txt"
    assert find_inputs([path.as_uri()]) == find_inputs([str(path)])
    (found,) = read_source(find_inputs([str(path)])[0], ReadOptions())
    assert not isinstance(found, Unreadable)
    assert (found.title, found.uri) == ("ünï code", path.as_uri())


def test_links_that_go_round_or_nowhere(folder: Path) -> None:
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    found = find_inputs([str(folder)])
    assert len(found) == 7
    gone = next(file for file in found if file.display.endswith("gone.txt"))
    assert [each.reason for each in read_source(gone, ReadOptions()) if isinstance(each, Unreadable)] == [
        "the file is not there any more"
    ]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "no input"),
        (["docs/nothing.txt"], "does not exist"),
        (["docs/.git"], None),
        (["empty"], "holds no file; what can be read"),
        (["index"], "index is the folder of an index and holds no document: give documents as INPUT"),
        (["pictures"], r"holds nothing but \.png; what can be read"),
        (["/dev/null"], "no file that can be read"),
        (["zzz://bucket/key"], "zzz://bucket/key cannot be reached"),
    ],
)
def test_inputs_that_name_nothing(
    folder: Path, inputs: list[str], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("empty").mkdir()
    Path("pictures").mkdir()
    Path("index/snapshots").mkdir(parents=True)
    Path("index/current").write_text("5eed")
    Path("pictures/a.png").write_bytes(b"")
    if message is None:
        assert len(find_inputs(inputs)) == 1  # a hidden folder that is named is walked
        return
    with pytest.raises(InputError, match=message) as caught:
        find_inputs(inputs)
    assert "\n" not in str(caught.value)
