"""Files of folders, globs and links, and the names that they get."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hirag_dist.errors import InputError
from hirag_dist.readers import Document, ReadOptions, SourceFile, Unreadable, find_inputs, read_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """docs/ with text, a picture, hidden things and a folder below it."""
    docs = tmp_path / "docs"
    for name in (
        "b.txt",
        "a.md",
        "pic.png",
        ".hidden.txt",
        "sub/c.JSONL.GZ",
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
    assert names([str(folder)], folder) == ["README", "a.md", "b.txt", "pic.png", "sub/ünï code.txt", "sub/c.JSONL.GZ"]
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
    written(folder, *index)
    assert names([str(folder)], folder) == before, "documents beside an index are read"


def test_documents_in_folders_named_as_those_of_an_index_are_read(folder: Path) -> None:
    written(folder, "current/a.json", "snapshots/a.json", "work/build.json", "builds/build.json")
    added = {"current/a.json", "snapshots/a.json", "work/build.json", "builds/build.json"}
    assert added <= {*names([str(folder)], folder)}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("**/*.txt", ["b.txt", "sub/ünï code.txt"]),
        ("**", ["README", "a.md", "b.txt", "pic.png", "sub/ünï code.txt", "sub/c.JSONL.GZ"]),
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
    (source,) = find_inputs([path.as_uri()])
    assert [source] == find_inputs([str(path)])
    (found,) = read_source(source, ReadOptions())
    assert isinstance(found, Document)
    assert (found.title, found.uri) == ("ünï code", path.as_uri())


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


LEADS_OUT = "a link that leads out of INPUT; name its target as an INPUT, or set reading.follow_links"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """docs/ with one good file, next to a folder that does not belong to it."""
    for name, text in (("docs/good.txt", "Alice met Bob."), ("outside/secret.txt", "root:x:0:0")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return tmp_path / "docs"


def listed(*inputs: str | Path, follow_links: bool = False) -> dict[str, str]:
    """Return name → refusal of what the inputs list."""
    return {file.name: file.refusal for file in find_inputs(list(map(str, inputs)), follow_links=follow_links)}


def texts(files: list[SourceFile]) -> list[str]:
    return [found.text for file in files for found in read_source(file, ReadOptions()) if isinstance(found, Document)]


def test_links_out_of_input_are_refused(docs: Path) -> None:
    (docs / "file.txt").symlink_to("../outside/secret.txt")
    (docs / "absolute.txt").symlink_to(docs.parent / "outside/secret.txt")
    (docs / "folder").symlink_to("../outside")
    (docs / "hop.txt").symlink_to("file.txt")
    refused = dict.fromkeys(("file.txt", "absolute.txt", "folder", "hop.txt"), LEADS_OUT)
    assert listed(docs) == {"good.txt": ""} | refused
    files = find_inputs([str(docs)])
    assert texts(files) == ["Alice met Bob."]
    reasons = [getattr(each, "reason", "") for file in files for each in read_source(file, ReadOptions())]
    assert sorted(reasons) == ["", *[LEADS_OUT] * 4]
    assert listed(f"{docs}/**") == {"good.txt": ""} | refused
    assert listed(f"{docs}/*.txt") == {"good.txt": ""} | {name: why for name, why in refused.items() if "." in name}
    assert listed(f"{docs}/f*/*.txt") == {"folder": LEADS_OUT}


def test_links_out_of_input_are_followed_on_request(docs: Path) -> None:
    (docs / "file.txt").symlink_to("../outside/secret.txt")
    (docs / "folder").symlink_to("../outside")
    names = {"good.txt": "", "file.txt": "", "folder/secret.txt": ""}
    assert listed(docs, follow_links=True) == names
    assert sorted(texts(find_inputs([str(docs)], follow_links=True))) == ["Alice met Bob.", "root:x:0:0", "root:x:0:0"]


def test_rings_of_links_cost_no_other_file(docs: Path) -> None:
    (docs / "r1").symlink_to("r2")
    (docs / "r2").symlink_to("r1")
    (docs / "up").symlink_to(".")
    ring = "a link that leads back to itself"
    (docs / "gone.txt").symlink_to(docs / "nowhere")
    gone = next(file for file in find_inputs([str(docs)]) if file.name == "gone.txt")
    assert [getattr(each, "reason", "") for each in read_source(gone, ReadOptions())] == [
        "the file is not there any more"
    ]
    (docs / "gone.txt").unlink()
    assert listed(docs) == {"good.txt": "", "r1": ring, "r2": ring}
    assert listed(docs, follow_links=True) == {"good.txt": "", "r1": ring, "r2": ring}


def test_a_link_to_a_device_or_pipe_is_not_read(docs: Path) -> None:
    os.mkfifo(docs / ".pipe")
    (docs / "pipe.txt").symlink_to(".pipe")
    (docs / "zero.txt").symlink_to("/dev/zero")
    why = "a link to something that is no regular file"
    assert listed(docs) == {"good.txt": "", "pipe.txt": why, "zero.txt": LEADS_OUT}
    assert listed(docs, follow_links=True) == {"good.txt": "", "pipe.txt": why, "zero.txt": why}


def test_a_name_that_is_not_utf8_costs_no_other_file(docs: Path) -> None:
    Path(os.fsdecode(bytes(docs / "b") + b"\xff.txt")).write_text("x")
    folder = Path(os.fsdecode(bytes(docs / "d") + b"\xfe"))
    folder.mkdir()
    (folder / "inner.txt").write_text("x")
    why = "the name of the file is not UTF-8; rename the file"
    assert listed(docs) == {"good.txt": "", r"b\xff.txt": why, r"d\xfe/inner.txt": why}
    assert listed(folder) == {"inner.txt": why}
    for file in find_inputs([str(docs)]):
        file.display.encode()
        if file.refusal:
            (found,) = read_source(file, ReadOptions())
            assert isinstance(found, Unreadable)
            assert found.reason == why
            found.uri.encode()
    with pytest.raises(InputError) as caught:
        find_inputs([str(folder) + "/none.txt"])
    str(caught.value).encode()


def config_map(folder: Path, version: str, text: str) -> None:
    """Exchange the content of a folder as Kubernetes does that of a mounted ConfigMap."""
    (folder / version / "sub").mkdir(parents=True)
    (folder / version / "a.txt").write_text(text)
    (folder / version / "sub/b.txt").write_text("b")
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(folder / "..data")
    for name in ("a.txt", "sub"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def test_names_outlive_the_rollout_of_a_config_map(docs: Path) -> None:
    config_map(docs, "..2026_11_01", "old")
    before = find_inputs([str(docs)])
    assert listed(docs) == {"a.txt": "", "good.txt": "", "sub/b.txt": ""}
    config_map(docs, "..2026_11_02", "new")
    shutil.rmtree(docs / "..2026_11_01")
    after = find_inputs([str(docs)])
    assert [(file.name, file.uri) for file in after] == [(file.name, file.uri) for file in before]
    assert sorted(texts(after)) == ["Alice met Bob.", "b", "new"]
    assert listed(f"{docs}/**/*.txt") == listed(docs)


def test_a_folder_that_cannot_be_listed_is_accounted_for(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (docs / "closed").mkdir()
    (docs / "closed/x.txt").write_text("x")
    scandir = os.scandir

    def refusing(path: str) -> os._ScandirIterator[str]:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert listed(docs) == {"good.txt": "", "closed": "the folder cannot be listed: Permission denied"}
    with pytest.raises(InputError, match="cannot be listed: Permission denied"):
        find_inputs([str(docs / "closed")])
