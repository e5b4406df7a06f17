"""A file of an index is there whole or not at all, synced before its name; faults are said in plain words."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.errors import ConfigError, StoreError
from hirag_dist.storage.store import Store
from tests.storage.s3_server import s3_server

TABLE = pa.table({"a": [1, 2], "b": ["x", None]})


def test_what_was_written_is_read_back(store: Store) -> None:
    assert not store.exists("a/b.bin")
    assert store.size("a/b.bin") is None
    store.write_bytes("a/b.bin", b"0123456789")
    store.write_json("a/ü.json", {"z": [1, None], "a": "é"})
    store.write_table("t.parquet", TABLE)
    assert store.read_bytes("a/b.bin") == b"0123456789"
    assert store.read_range("a/b.bin", 3, 4) == b"3456"
    assert store.read_json("a/ü.json") == {"z": [1, None], "a": "é"}
    assert store.read_table("t.parquet").equals(TABLE)
    assert store.read_table("t.parquet", columns=["b"]).column_names == ["b"]
    assert store.size("a/b.bin") == 10
    assert store.exists("a")
    assert store.size("a") is None, "a folder is no file"
    assert store.names("a") == ["b.bin", "ü.json"]
    assert store.names("nothing") == []


KILLED = """
import os, sys
from hirag_dist.storage.store import Store
with Store(sys.argv[1]).create("snapshots/a/t.parquet") as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


@pytest.mark.integration
def test_a_process_killed_before_the_rename_leaves_the_old_file(store: Store) -> None:
    store.write_bytes("snapshots/a/t.parquet", b"old")
    assert subprocess.run([sys.executable, "-c", KILLED, store.root], check=False).returncode == -9
    assert store.read_bytes("snapshots/a/t.parquet") == b"old"
    assert store.names("snapshots/a") == ["t.parquet"], "what the killed process left is not shown"
    store.write_bytes("snapshots/a/t.parquet", b"new")
    assert store.read_bytes("snapshots/a/t.parquet") == b"new"


def test_appends_of_many_threads_do_not_mix(store: Store) -> None:
    def append(number: int) -> tuple[bytes, str, int]:
        data = f"{number}:{'x' * (number % 50)}\n".encode()
        return data, *store.append("ledger/one.jsonl", data)

    with ThreadPoolExecutor(8) as threads:
        placed = list(threads.map(append, range(400)))
    assert all(store.read_range(file, offset, len(data)) == data for data, file, offset in placed)
    assert store.size("ledger/one.jsonl") == sum(len(data) for data, _, _ in placed)


def test_a_store_travels_to_other_processes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_bytes("a", b"x")
    assert pickle.loads(pickle.dumps(store)).read_bytes("a") == b"x"
    by_uri = Store(f"file://{store.root}/")
    assert by_uri.local == Path(store.root)
    assert pickle.loads(pickle.dumps(by_uri)).read_bytes("a") == b"x"
    monkeypatch.chdir(tmp_path)
    relative = Store("index")
    monkeypatch.chdir("/")
    assert relative.read_bytes("a") == b"x", "a relative path is of where the store was opened"
    assert pickle.loads(pickle.dumps(relative)).read_bytes("a") == b"x"


@pytest.mark.parametrize("verb", ["read_bytes", "read_table", "read_json"])
def test_a_missing_file_is_said_to_be_missing(store: Store, verb: str) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*index/no/t.parquet: it is not there"):
        getattr(store, verb)("no/t.parquet")
    with pytest.raises(StoreError, match="it is not there"):
        store.read_range("no/t.parquet", 0, 1)


@pytest.mark.parametrize(("name", "quoted"), [("index", "{}/index"), ("ix 1", "'{}/ix 1'")])
def test_an_index_is_a_word_of_a_shell_in_suggested_commands(tmp_path: Path, name: str, quoted: str) -> None:
    assert Store(str(tmp_path / name)).quoted == quoted.format(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    store = Store(str(tmp_path / "file"))
    for act in (
        lambda: store.write_bytes("a", b"x"),
        lambda: store.append("a", b"x"),
        lambda: store.write_table("t.parquet", TABLE),
    ):
        with pytest.raises(StoreError, match=r"cannot write .*: a file is in the place of a folder on that path"):
            act()
    with pytest.raises(StoreError, match=r"file cannot be an index folder: a file is in the place"):
        store.check_writable()
    with pytest.raises(StoreError, match="cannot list"):
        store.names("")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_said_in_plain_words(store: Store) -> None:
    store.append("ledger/other.jsonl", b"x\n")
    os.symlink("/dev/full", Path(store.root) / "ledger" / "one.jsonl")
    with pytest.raises(StoreError, match="the disk is full; free space and run again, finished work is kept"):
        store.append("ledger/one.jsonl", b"abc\n")


FORBIDDEN = """
import os, sys
from hirag_dist.errors import StoreError
from hirag_dist.storage.store import Store
store = Store(sys.argv[1])
store.exists("a")
os.chmod(sys.argv[1], 0o555)
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
for act in ("write_bytes", "append"):
    try:
        getattr(store, act)("a/b", b"x")
    except StoreError as error:
        print(error)
"""


@pytest.mark.integration
def test_a_folder_that_may_not_be_written_to_is_said_in_plain_words(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    for parent in [folder, *folder.parents]:  # another user must be able to come here at all
        if os.stat(parent).st_uid == os.geteuid() and parent != Path("/"):
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
    command = [sys.executable, "-c", FORBIDDEN, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    folder.chmod(0o755)
    assert ended.stdout.splitlines() == [f"cannot write {folder}/a/b: permission denied"] * 2


def test_messages_hold_no_credentials() -> None:
    store = Store("s3://key:s3cret@bucket/a/index/?endpoint_override=127.0.0.1:1&scheme=http&region=x")
    assert store.uri == "s3://bucket/a/index"
    assert Store("file:///tmp/index").uri == "file:///tmp/index"
    with pytest.raises(ConfigError) as caught:
        Store("s3://key:s3cret@bucket/index?no_such_option=1")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("", "an empty text: name a folder or a URI"),
        (" ", "an empty text: name a folder or a URI"),
        ("s3://", "names no bucket and no folder"),
        ("/", "names no bucket and no folder"),
        ("foo://x", "cannot open foo://x: Unrecognized filesystem"),
        ("file:///tmp/x%ff", "cannot open file:///tmp/x%ff: what its escapes such as %20 stand for is not UTF-8"),
    ],
)
def test_what_names_no_folder_is_a_wrong_configuration(uri: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Store(uri)


@pytest.mark.parametrize("name", ["i dx ä", "i%20dx%20%C3%A4"])
def test_a_uri_may_hold_characters_that_have_to_be_escaped(tmp_path: Path, name: str) -> None:
    assert Store(f"file://{tmp_path}/{name}").local == tmp_path / "i dx ä"


def test_a_percent_sign_that_begins_no_escape_is_one() -> None:
    assert Store("file:///tmp/100%").local == Path("/tmp/100%")


@pytest.mark.smoke
def test_an_object_store_keeps_the_same_promises() -> None:
    with s3_server() as (_, uri):
        store = Store(uri)
        assert store.local is None
        store.write_bytes("a/b.bin", b"0123456789")
        store.write_table("t.parquet", TABLE)
        assert store.read_range("a/b.bin", 3, 4) == b"3456"
        assert store.read_table("t.parquet").equals(TABLE)
        assert store.names("a") == ["b.bin"]
        first, second = store.append("ledger/one.jsonl", b"abc\n"), store.append("ledger/one.jsonl", b"de\n")
        assert first[0] != second[0], "each append is an object of its own"
        assert sorted(store.read_bytes(f"ledger/{name}") for name in store.names("ledger")) == [b"abc\n", b"de\n"]
        assert pickle.loads(pickle.dumps(store)).size("a/b.bin") == 10
        store.check_writable()
        store.delete("a/b.bin")
        assert store.size("a/b.bin") is None
        with pytest.raises(StoreError, match="not there") as caught:
            store.read_bytes("a/b.bin")
        assert "secret" not in str(caught.value)


def test_the_usual_variables_reach_both_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as (_, uri):
        port = uri.partition("127.0.0.1:")[2].partition("&")[0]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        store = Store("s3://bucket/some/index")
        store.write_bytes("a", b"1")
        data, version = store.read_version("a") or (b"", "")
        assert (data, store.replace("a", b"2", "no version")) == (b"1", None)
        assert store.replace("a", b"2", version)
        assert store.read_bytes("a") == b"2"
    with pytest.raises(StoreError, match="check AWS_ENDPOINT_URL"):
        store.read_bytes("a")  # after the six seconds for which Arrow tries


def test_a_file_that_is_created_piece_by_piece_is_there_whole_or_not_at_all(store: Store) -> None:
    with store.create("a/one") as stream:
        stream.write(b"ab")
        assert not store.exists("a/one")
        stream.write(b"cd")
    assert store.read_bytes("a/one") == b"abcd"
    with pytest.raises(KeyError), store.create("a/one") as stream:
        raise KeyError(stream.write(b"x"))
    assert store.read_bytes("a/one") == b"abcd"
    assert [file.name for file in (Path(store.root) / "a").iterdir()] == ["one"]


def test_a_file_is_held_by_one_until_it_lets_go(store: Store) -> None:
    assert store.try_lock("a/log") is None
    held = store.try_lock("a/log", create=True)
    assert store.try_lock("a/log") is store.try_lock("a/log", create=True) is None
    held.release()
    held.release()
    again = store.try_lock("a/log")
    store.delete("a/log")
    assert store.try_lock("a/log") is None
    fresh = store.try_lock("a/log", create=True)
    assert fresh is not None, "another file by now"
    again.release()
    fresh.release()


LOCKER = """
import sys
from hirag_dist.storage.store import Store
held = Store(sys.argv[1]).try_lock("log", create=True)
print(held is not None, flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
def test_a_held_file_is_let_go_when_its_process_is_killed(store: Store) -> None:
    command = [sys.executable, "-c", LOCKER, store.root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        assert store.try_lock("log") is None
        process.kill()
    store.try_lock("log").release()


def test_a_table_is_read_in_small_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"at": list(range(1000))})
    Path(store.root).mkdir()
    with Path(store.root, "t.parquet").open("wb") as file:
        pq.write_table(table, file, row_group_size=100)
    assert [piece.num_rows for piece in store.pieces("t.parquet")] == [1000]
    monkeypatch.setattr("hirag_dist.storage.store._PIECE_BYTES", 1000)
    pieces = list(store.pieces("t.parquet"))
    assert len(pieces) > 1
    assert pa.concat_tables(pieces).equals(table)
    store.write_table("none.parquet", table.slice(0, 0))
    assert pa.concat_tables(list(store.pieces("none.parquet"))).equals(table.slice(0, 0))
    with pytest.raises(StoreError, match="not there"):
        list(store.pieces("gone.parquet"))


def test_a_copy_is_a_link_or_the_same_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_bytes("a/one", b"text")
    for name in ("b/linked", "b/linked"):  # again, over the link
        store.copy("a/one", name)
        assert store.names("b") == ["linked"]
    assert os.path.samefile(f"{store.root}/a/one", f"{store.root}/b/linked")

    def no_links(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    store.copy("a/one", "c/copied")
    store.write_bytes("a/one", b"other")
    assert (store.read_bytes("b/linked"), store.read_bytes("c/copied")) == (b"text", b"text")
    with pytest.raises(StoreError, match="cannot copy"):
        store.copy("a/gone", "a/copied")


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    replace, mkdir = os.replace, os.mkdir

    def shown(path: str | Path) -> str:
        name = os.path.relpath(path, tmp_path)
        return os.path.join(os.path.dirname(name), "temporary") if ".tmp-" in name else name

    def note_sync(descriptor: int) -> None:
        found.append(f"sync {shown(os.readlink(f'/proc/self/fd/{descriptor}'))}")

    def note_replace(source: Path, target: Path) -> None:
        found.append(f"rename {shown(target)}")
        replace(source, target)

    def note_mkdir(path: Path, *arguments: int) -> None:
        found.append(f"create {shown(path)}")
        mkdir(path, *arguments)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(os, "mkdir", note_mkdir)
    return found


def test_a_durable_write(tmp_path: Path, events: list[str]) -> None:
    store = Store(str(tmp_path / "index"))
    store.write_bytes("a/b", b"x")
    created = ["create index", "sync .", "create index/a", "sync index"]
    assert events == [*created, "sync index/a/temporary", "rename index/a/b", "sync index/a"]
    events.clear()
    store.replace("a/b", b"y", store.read_version("a/b")[1], durable=True)
    store.write_json("a/b", {})
    with store.create("a/b") as file:
        file.write(b"z")
    assert events == ["sync index/a/temporary", "rename index/a/b", "sync index/a"] * 3


def test_files_that_are_synced_together(tmp_path: Path, events: list[str]) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("w/s/a", b"x", durable=False)
    store.write_bytes("w/s/t/b", b"x", durable=False)
    store.copy("w/s/a", "w/c", durable=False)
    assert not [event for event in events if event.startswith("sync")]
    events.clear()
    store.sync(["w/s/a", "w/s/t/b", "w/c", "w/s/a", "gone"])
    files, folders = events[:3], events[3:]
    assert sorted(files) == ["sync w/c", "sync w/s/a", "sync w/s/t/b"]
    assert sorted(folders) == ["sync .", "sync w", "sync w/s", "sync w/s/t"]


class _MadeMeanwhile:
    """A file system on which a folder is made while it is listed, as another process may."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._n_listed = inner, 0

    def get_file_info(self, selector: Any) -> Any:
        self._n_listed += 1
        if self._n_listed == 1:
            raise FileNotFoundError("Cannot list directory")
        return self._inner.get_file_info(selector)


@pytest.mark.parametrize("work", [Store.names, Store.entries, Store.walk])
def test_a_folder_that_is_made_while_it_is_listed_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Store, str], Any]
) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("ledger/a", b"1")
    expected = work(store, "ledger")
    monkeypatch.setattr(store, "_fs", _MadeMeanwhile(store._fs))
    assert expected
    assert work(store, "ledger") == expected
