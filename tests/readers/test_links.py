"""Links in input folders, names that are not UTF-8, and the names that files get."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hirag_dist.errors import InputError
from hirag_dist.readers import Document, ReadOptions, SourceFile, Unreadable, find_inputs, read_source

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
    reasons = [found.reason for file in files for found in read_source(file, ReadOptions()) if file.refusal]  # type: ignore[union-attr]
    assert reasons == [LEADS_OUT] * 4
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


def test_linked_files_are_named_by_their_path_below_input(docs: Path) -> None:
    for name in ("one", "two"):
        (docs / f".store/{name}").mkdir(parents=True)
        (docs / f".store/{name}/report.txt").write_text(f"Report {name}.")
        (docs / name).mkdir()
        (docs / name / "report.txt").symlink_to(f"../.store/{name}/report.txt")
    assert listed(docs) == {"good.txt": "", "one/report.txt": "", "two/report.txt": ""}
    assert len({file.uri for file in find_inputs([str(docs)])}) == 3


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
    assert [file.name for file in before] == ["a.txt", "good.txt", "sub/b.txt"]
    config_map(docs, "..2026_11_02", "new")
    shutil.rmtree(docs / "..2026_11_01")
    after = find_inputs([str(docs)])
    assert [(file.name, file.uri, file.refusal) for file in after] == [
        (file.name, file.uri, file.refusal) for file in before
    ]
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
