"""Updates that open only the files that have changed, against updates that read all of INPUT."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist.application.forget_evidence import select_documents
from hirag_dist.config.model import Config
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.indexing.estimate import read_planned
from hirag_dist.indexing.inputs import portable_uri, source_table
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.indexing.read_files import load_read_files
from hirag_dist.readers import find_inputs, office_files
from hirag_dist.schemas import READ_FILES
from hirag_dist.storage.layout import read_files_path
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from tests.toy_builds import LAYER_0_ALONE, Bench, rows

TEXTS = ["sun moon", "moon stars", "sea wind", "iron bread", "horse tree", "tree sea", "bread sun", "wind stars"]
METADATA: dict[str, Any] = {"fields": {"day": {"type": "date"}, "team": {"path": r"^(\w+)/"}}}


class Corpus:
    """A folder of files whose modification times are those of a counter, so that no test waits for a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._now = 10**18

    def write(self, name: str, content: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.touch(name)

    def touch(self, name: str) -> None:
        self._now += 1
        os.utime(self.folder / name, ns=(self._now, self._now))

    def replace_unnoticed(self, name: str, content: str) -> None:
        """Write other content of the same size, and set the former modification time."""
        path = self.folder / name
        before = path.stat()
        path.write_text(content)
        assert path.stat().st_size == before.st_size
        os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


def indexed(bench: Bench, folder: Path, **keys: Any) -> BuildResult:
    """Index a folder."""
    bench.base_id = ""
    return bench.run_on([str(folder)], **LAYER_0_ALONE, **keys)


def work_on(bench: Bench, work: Callable[[Build], BuildResult], **keys: Any) -> BuildResult:
    return bench.run_work(work, **LAYER_0_ALONE, **keys)


def records(texts: list[str], rng: random.Random) -> str:
    days = ["2026-01-01", "2026-02-02", None]
    return "\n".join(
        json.dumps({"text": text, "id": f"{rng.randrange(30)}", "title": rng.choice("AB"), "day": rng.choice(days)})
        for text in texts
    )


def change(corpus: Corpus, rng: random.Random) -> None:
    """Change a corpus of few texts, many of which are in several files."""
    names = corpus.names()
    action = rng.choice(["add", "add", "edit", "touch", "remove", "rename", "fail", "repair"])
    chosen = rng.choice(names)
    if action == "touch":
        corpus.touch(chosen)
    elif action == "remove" and len(names) > 4:
        (corpus.folder / chosen).unlink()
    elif action == "rename":
        target = corpus.folder / f"{rng.choice('ab')}/{rng.randrange(99)}{Path(chosen).suffix}"
        target.parent.mkdir(exist_ok=True)
        (corpus.folder / chosen).rename(target)
    elif action == "fail":
        corpus.write(chosen, b"\x00\x01\x02" if chosen.endswith(".txt") else '{"text": "sun moon"}\n{"text"')
    elif action == "repair" or action == "edit":
        text = rng.choice(TEXTS)
        corpus.write(chosen, text if chosen.endswith(".txt") else records([text, *rng.sample(TEXTS, 2)], rng))
    else:
        name = f"{rng.choice('ab')}/{rng.randrange(99)}"
        if rng.random() < 0.5:
            corpus.write(f"{name}.jsonl", records(rng.sample(TEXTS, 3), rng))
        else:
            corpus.write(f"{name}.txt", rng.choice(TEXTS))


def step(corpus: Corpus, snapshot: Snapshot, rng: random.Random) -> Any:
    """Return a step of a history: mostly an update, sometimes an addition or a removal."""
    kind = rng.random()
    if kind < 0.7:
        change(corpus, rng)
        return lambda build: build.index([str(corpus.folder)])
    if kind < 0.85:
        change(corpus, rng)
        name = rng.choice(corpus.names())
        return lambda build: build.add([str(corpus.folder / "[ab]" / Path(name).name)])
    gone = rng.choice(rows(snapshot, "documents"))["document_id"]
    return lambda build: build.remove(DocumentSelection((gone,)))


def test_a_history_gives_the_ids_that_reading_every_file_gives(tmp_path: Path) -> None:
    rng, corpus = random.Random(36), Corpus(tmp_path / "corpus")  # spoil, add, rename, remove
    for number, text in enumerate(TEXTS):
        corpus.write(f"{'ab'[number % 2]}/{number}.txt", text)
    corpus.write("a/many.jsonl", records(TEXTS[:3], rng))
    benches = Bench(tmp_path / "skipping"), Bench(tmp_path / "reading")
    for bench in benches:
        bench.takes_copies = False
    results = [indexed(bench, corpus.folder, metadata=METADATA) for bench in benches]
    n_unread = 0
    for _ in range(4):
        store, last = benches[1].store, results[1].manifest.snapshot_id
        files = load_read_files(store, last)
        is_whole = pa.array([False] * files.num_rows)
        files = files.set_column(files.schema.get_field_index("is_whole"), "is_whole", is_whole)
        store.write_table(read_files_path(last), files)
        work = step(corpus, open_snapshot(store, last), rng)
        outcomes = [outcome(bench, work) for bench in benches]
        assert outcomes[0] == outcomes[1]
        results = [bench.result for bench in benches]
        n_unread += results[0].unread_files
        assert results[1].unread_files == 0
    assert n_unread > 10


def outcome(bench: Bench, work: Any) -> Any:
    """Return the id after a step, or the error of one that is refused, which changes nothing."""
    try:
        bench.result = work_on(bench, work, metadata=METADATA)
    except Exception as error:  # of a step that removes all, or adds what cannot be read
        return repr(error)
    snapshot = open_snapshot(bench.store, bench.result.manifest.snapshot_id, full_check=True)
    return snapshot.manifest.snapshot_id, rows(snapshot, "document_metadata"), rows(snapshot, "rejects")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path / "corpus")
    for name, text in (("a/1.txt", "sun moon"), ("a/2.txt", "moon stars"), ("b/3.txt", "sea wind")):
        corpus.write(name, text)
    return corpus


def texts_of(bench: Bench, result: BuildResult) -> list[str]:
    return sorted(row["text"] for row in rows(open_snapshot(bench.store, result.manifest.snapshot_id), "documents"))


def test_a_file_of_equal_size_and_time_is_not_opened_and_touching_it_reads_it(bench: Bench, corpus: Corpus) -> None:
    indexed(bench, corpus.folder)
    corpus.replace_unnoticed("a/1.txt", "sun iron")
    corpus.write("b/4.txt", "horse tree")
    missed = indexed(bench, corpus.folder)
    assert missed.unread_files == 3
    assert texts_of(bench, missed) == ["horse tree", "moon stars", "sea wind", "sun moon"]
    corpus.touch("a/1.txt")
    touched = indexed(bench, corpus.folder)
    assert touched.unread_files == 3
    assert texts_of(bench, touched) == ["horse tree", "moon stars", "sea wind", "sun iron"]


def test_a_night_without_changed_texts_notes_new_times(bench: Bench, corpus: Corpus) -> None:
    first = indexed(bench, corpus.folder)
    for name in corpus.names():
        corpus.touch(name)
    touched, after = indexed(bench, corpus.folder), indexed(bench, corpus.folder)
    assert [result.up_to_date for result in (touched, after)] == [True, True]
    assert (touched.unread_files, after.unread_files) == (0, 3)
    assert after.manifest.snapshot_id == first.manifest.snapshot_id


def test_an_index_without_a_usable_table_reads_everything_once(bench: Bench, corpus: Corpus) -> None:
    path = read_files_path(indexed(bench, corpus.folder).manifest.snapshot_id)
    data = bench.store.read_bytes(path)
    for damage in ("none", "cut", "other"):
        bench.store.delete(path)
        if damage == "cut":
            bench.store.write_bytes(path, data[:-40])
        elif damage == "other":
            bench.store.write_table(path, pa.table({"name": ["a/1.txt"]}))
        assert [indexed(bench, corpus.folder).unread_files for _ in range(2)] == [0, 3], damage


def test_other_reading_options_read_everything(bench: Bench, corpus: Corpus) -> None:
    corpus.write("c.jsonl", '{"text": "iron bread", "body": "tree sea", "day": "2026-01-01"}')
    indexed(bench, corpus.folder)
    keys: dict[str, Any] = {"reading": {"text_field": "body"}}
    other = indexed(bench, corpus.folder, **keys)
    assert other.unread_files == 0
    assert "tree sea" in texts_of(bench, other)
    keys["metadata"] = {"fields": {"day": "date"}}
    declared = indexed(bench, corpus.folder, **keys)
    assert declared.unread_files == 0
    found = rows(open_snapshot(bench.store, declared.manifest.snapshot_id), "document_metadata")
    assert [json.loads(row["metadata"]) for row in found] == [{"day": "2026-01-01"}]
    assert indexed(bench, corpus.folder, **keys).unread_files == 4


def test_values_of_fields_that_a_removal_did_not_declare_are_read_again(bench: Bench, corpus: Corpus) -> None:
    corpus.write("c.jsonl", '{"text": "iron bread", "day": "2026-01-01"}')
    keys: dict[str, Any] = {"metadata": {"fields": {"day": "date"}}}
    whole = indexed(bench, corpus.folder, **keys)
    work_on(bench, lambda build: build.remove(DocumentSelection(sources=("a/1.txt",))))
    again = indexed(bench, corpus.folder, **keys)
    assert again.manifest.content["document_metadata"] == whole.manifest.content["document_metadata"]


def test_a_file_with_a_dead_letter_is_read_each_time(bench: Bench, corpus: Corpus) -> None:
    corpus.write("b/5.jsonl", '{"text": "iron bread"}\nno record')
    indexed(bench, corpus.folder)
    corpus.replace_unnoticed("b/5.jsonl", '{"text": "iron horse"}\nno record')
    again = indexed(bench, corpus.folder)
    assert again.unread_files == 3
    assert "iron horse" in texts_of(bench, again)


def test_a_removed_document_comes_back_and_leaves_no_trace_meanwhile(bench: Bench, corpus: Corpus) -> None:
    whole = indexed(bench, corpus.folder)
    removed = work_on(bench, lambda build: build.remove(DocumentSelection(sources=("a/2.txt",))))
    left = load_read_files(bench.store, removed.manifest.snapshot_id)
    assert left["name"].to_pylist() == ["a/1.txt", "b/3.txt"]
    again = indexed(bench, corpus.folder)
    assert again.unread_files == 2
    assert texts_of(bench, again) == texts_of(bench, whole)


def test_an_addition_opens_what_is_new_and_keeps_what_is_known_of_the_rest(bench: Bench, corpus: Corpus) -> None:
    indexed(bench, corpus.folder)
    corpus.write("b/4.txt", "horse tree")

    assert work_on(bench, lambda build: build.add([str(corpus.folder / "[b]" / "*")])).unread_files == 1
    assert indexed(bench, corpus.folder).unread_files == 4


def test_a_copy_is_read_again_while_the_file_that_its_document_is_named_after_is_not_known(
    bench: Bench, corpus: Corpus
) -> None:
    """The table was lost, and an addition began another one."""
    bench.store.delete(read_files_path(indexed(bench, corpus.folder).manifest.snapshot_id))
    corpus.write("b/copy.txt", "sun moon")
    work_on(bench, lambda build: build.add([str(corpus.folder / "[b]" / "copy.txt")]))
    (corpus.folder / "a/1.txt").unlink()
    indexed(bench, corpus.folder)
    assert {row["uri"] for row in rows(open_snapshot(bench.store), "documents")} == {*corpus.names()}


def test_a_record_that_an_addition_did_not_find_again_goes_with_the_next_index(bench: Bench, corpus: Corpus) -> None:
    """After another addition too: the file is read."""
    corpus.write("c.jsonl", '{"text": "iron bread"}\n{"text": "horse tree"}')
    indexed(bench, corpus.folder)
    corpus.write("c.jsonl", '{"text": "iron bread"}')
    for name in ("c.jsonl", "b/3.txt"):
        added = work_on(bench, lambda build, name=name: build.add([str(corpus.folder / f"[{name[0]}]{name[1:]}")]))
    assert "horse tree" in texts_of(bench, added)
    assert "horse tree" not in texts_of(bench, indexed(bench, corpus.folder))


COPIES = {
    "a.jsonl": [("1", "one text"), ("2", "another"), ("3", "one text")],
    "b.jsonl": [("1", "one text"), ("9", "one text")],
}


@pytest.mark.parametrize(
    ("added", "left"),
    [
        ({"a.jsonl": [("1", "iron bread")]}, [("a.jsonl", 2, ["1", "3", "9"])]),
        ({"b.jsonl": [("1", "horse"), ("9", "tree")]}, [("a.jsonl", 0, ["1", "3"])]),
        ({"a.jsonl": [("4", "horse"), ("5", "tree"), ("6", "sea")]}, [("b.jsonl", 0, ["1", "9"])]),
        ({"a.jsonl": [("4", "bread")] * 3, "b.jsonl": [("5", "bread")] * 2}, []),
        ({"a.jsonl": [("4", "sea"), ("5", "sea"), ("6", "one text")]}, [("a.jsonl", 2, ["1", "6", "9"])]),
    ],
)
def test_an_addition_leaves_a_text_at_those_of_its_places_that_it_did_not_read(
    bench: Bench, corpus: Corpus, added: Any, left: Any
) -> None:
    """In two additions, of which the second has to know what the first has left."""
    for number, files in enumerate([COPIES, *({name: content} for name, content in added.items())]):
        for name, content in files.items():
            corpus.write(name, "\n".join(json.dumps({"id": own, "text": text}) for own, text in content))
        if not number:
            indexed(bench, corpus.folder)
            continue
        path = [str(corpus.folder / name.replace(".", "[.]")) for name in files]
        work_on(bench, lambda build, path=path: build.add(path))
    found = rows(open_snapshot(bench.store), "documents")
    assert [(row["uri"], row["record"], row["source_ids"]) for row in found if row["text"] == "one text"] == left


def test_files_of_one_name_are_read_each_time(bench: Bench, corpus: Corpus) -> None:
    inputs = [str(corpus.folder / "a"), str(corpus.folder / "b")]
    corpus.write("b/1.txt", "iron bread")
    bench.base_id = ""
    results = [work_on(bench, lambda build: build.index(inputs)) for _ in range(2)]
    assert [result.unread_files for result in results] == [0, 2]


def test_a_retry_opens_what_the_build_before_opened(bench: Bench, corpus: Corpus) -> None:
    base = indexed(bench, corpus.folder).manifest.snapshot_id
    corpus.write("b/4.txt", "horse tree")
    updated = indexed(bench, corpus.folder)
    bench.base_id = base
    again = work_on(bench, lambda build: build.index([str(corpus.folder)]), retry=True)
    assert again.unread_files == updated.unread_files == 3
    assert again.manifest.snapshot_id == updated.manifest.snapshot_id


def test_a_text_that_can_be_read_at_none_of_its_places_stays_as_one_document(
    bench: Bench, corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    corpus.write("b/copy.txt", "sun moon")
    indexed(bench, corpus.folder)
    for name in ("a/1.txt", "b/copy.txt"):
        corpus.write(name, b"\x00\x01\x02\xff" * 50)
    assert "sun moon" in texts_of(bench, indexed(bench, corpus.folder))
    assert "1 document could not be read and stays as it was, the first a/1.txt" in caplog.text


def lines(*given: Any) -> str:
    """Return JSON Lines: a string as it is, (text, labels) as a record."""
    made = (each if isinstance(each, str) else json.dumps({"text": each[0], "labels": each[1]}) for each in given)
    return "".join(f"{line}\n" for line in made)


EMPTY = ("", [])


@pytest.mark.parametrize(
    ("now", "left"),
    [
        ([("sun", []), EMPTY], [("moon", 1), ("sun", 0)]),
        ([("sun", []), '{"text": "mo'], [("moon", 1), ("sea", 2), ("sun", 0)]),
        ([("sun", []), '{"text": "mo', EMPTY], [("moon", 1), ("sea", 2), ("sun", 0)]),
        ([("sun", []), '{"text": "mo', ("tree", {"bad": 1})], [("moon", 1), ("sun", 0)]),
        ([("moon", []), ("sea", ["red"]), EMPTY], [("moon", 0), ("sea", 1)]),
        ([("sea", []), ("moon", []), EMPTY], [("moon", 1), ("sea", 0)]),
    ],
    ids=["the rest is gone", "cut off", "two bad ones", "labels refused", "moved and labelled", "moved"],
)
def test_a_refused_record_keeps_its_former_text_alone_unless_the_file_breaks_off_there(
    bench: Bench, corpus: Corpus, now: list[Any], left: list[tuple[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    corpus.write("a.jsonl", lines(("sun", []), ("moon", []), ("sea", [])))
    corpus.write("b.txt", "wind")
    indexed(bench, corpus.folder)
    corpus.write("a.jsonl", lines(*now))
    indexed(bench, corpus.folder)
    found = [row for row in rows(open_snapshot(bench.store), "documents") if row["uri"] == "a.jsonl"]
    assert sorted((row["text"], row["record"]) for row in found) == left
    assert [row["labels"] for row in found if row["text"] == "sea" and ("sea", ["red"]) in now] in ([], [["red"]])
    assert ("2 documents could not be read and stay as they were" in caplog.text) == (len(left) == 3)


@pytest.mark.parametrize("command", ["index", "add"])
@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("a.md", "---\nlabels:\n---\nsun", "---\nlabels: [red\n---\nsun"),
        ("a.md", "---\nlabels:\n---\nsun", "---\nlabels: {x: red}\n---\nsun"),
        ("a.md", "---\nlabels:\n---\nsun", "sun"),
        ("a.jsonl", lines(("moon", []), ("sun", [])), lines(("moon", []), ("sun", {"x": "red"}))),
        ("a.csv", "text,labels\nmoon,\nsun,\n", "text\nmoon\nsun\n"),
    ],
)
def test_what_is_refused_for_its_labels_does_not_stay(
    bench: Bench, tmp_path: Path, name: str, before: str, now: str, command: str
) -> None:
    corpus = Corpus(tmp_path / "labelled")
    corpus.write("b.md", "---\nlabels:\n---\nwind")
    corpus.write(name, before)
    reading = {"label_field": "labels"}
    indexed(bench, corpus.folder, reading=reading)
    corpus.write(name, now)
    inputs = [str(corpus.folder)]
    result = work_on(bench, lambda build: getattr(build, command)(inputs), reading=reading)
    assert result.dead_letters == 1
    assert set(texts_of(bench, result)) == {"wind", *(["moon"] if name == "a.jsonl" else [])}


@pytest.mark.parametrize("command", ["index", "add"])
def test_rows_behind_the_end_of_a_table_that_is_cut_off_stay(bench: Bench, tmp_path: Path, command: str) -> None:
    """Its last row, of which the labels are not known, does not."""
    corpus = Corpus(tmp_path / "labelled")
    whole = "text,acl\nsun,red\nmoon,red\nsea,red\n"
    corpus.write("a.csv", whole)
    indexed(bench, corpus.folder)
    corpus.write("a.csv", whole[: whole.index("moon") + 4])
    inputs = [str(corpus.folder)]
    result = work_on(bench, lambda build: getattr(build, command)(inputs))
    assert result.dead_letters == 1
    assert labels_of(bench) == [("sea", ["red"]), ("sun", ["red"])]


def labels_of(bench: Bench) -> list[tuple[str, list[str]]]:
    return sorted((row["text"], row["labels"]) for row in rows(open_snapshot(bench.store), "documents"))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_text_that_has_other_labels_now_does_not_stay_beside_what_is_added(
    bench: Bench, tmp_path: Path, is_lost: bool
) -> None:
    """Below a record that cannot be read, or at copies of which the table of files was lost."""
    corpus = Corpus(tmp_path / "labelled")
    corpus.write("a.jsonl", lines(("sun", []), ("moon", [])))
    corpus.write("b.jsonl", lines(("sea", []), ("wind", []), ("sea", [])))
    result = indexed(bench, corpus.folder)
    if is_lost:
        bench.store.delete(read_files_path(result.manifest.snapshot_id))
        corpus.write("b.jsonl", lines(("sea", ["red"]), ("wind", []), ("sea", ["red"])))
    else:
        corpus.write("a.jsonl", lines('{"text": half', ("sun", ["red"]), ("moon", [])))
    work_on(bench, lambda build: build.add([str(corpus.folder)]))
    changed = "sea" if is_lost else "sun"
    assert [found for found in labels_of(bench) if found[0] == changed] == [(changed, ["red"])]


def test_the_table_names_each_file_and_its_copies(bench: Bench, corpus: Corpus) -> None:
    corpus.write("b/copy.txt", "sun moon")
    result = indexed(bench, corpus.folder)
    documents = {row["uri"]: row["document_id"] for row in rows(open_snapshot(bench.store), "documents")}
    found = load_read_files(bench.store, result.manifest.snapshot_id)
    assert found.schema == READ_FILES
    twice = [documents["a/1.txt"]]
    copies = {"a/1.txt": twice, "a/2.txt": [], "b/3.txt": [], "b/copy.txt": twice}
    assert {row["name"]: row["copies"] for row in found.to_pylist()} == copies
    assert set(found["n_documents"].to_pylist()) == {1}


def test_a_removal_finds_a_text_by_a_copy_and_lists_its_other_places(bench: Bench, corpus: Corpus) -> None:
    corpus.write("b/copy.txt", "sun moon")
    indexed(bench, corpus.folder)
    selection = DocumentSelection(sources=("b/copy.txt",))
    (found,) = select_documents(bench.store.uri, selection).documents
    assert (found.uri, found.copies, found.source_ids) == ("a/1.txt", [("b/copy.txt", 0)], ["a/1.txt", "b/copy.txt"])
    assert "sun moon" not in texts_of(bench, work_on(bench, lambda build: build.remove(selection)))


def test_files_are_named_below_their_input_and_refused_ones_are_rows(tmp_path: Path) -> None:
    (tmp_path / "docs/sub").mkdir(parents=True)
    (tmp_path / "docs/sub/a.txt").write_text("Alice met Bob.")
    (tmp_path / "docs/ring").symlink_to("ring")
    (tmp_path / "docs/out.txt").symlink_to("/etc/hostname")
    Path(os.fsdecode(bytes(tmp_path) + b"/docs/\xff.txt")).write_text("x")
    rows = {row["shown"]: row for row in source_table([str(tmp_path / "docs")]).to_pylist()}
    assert [name for name, row in rows.items() if not row["refusal"]] == ["sub/a.txt"]
    assert sorted(rows) == [r"\xff.txt", "out.txt", "ring", "sub/a.txt"]
    assert int(rows["sub/a.txt"]["modified"]) == (tmp_path / "docs/sub/a.txt").stat().st_mtime_ns
    planned = read_planned([str(tmp_path / "docs")], Config())
    assert [document.place for document in planned.documents.values()] == ["sub/a.txt#0"]
    assert len(planned.unreadable) == 3


def test_an_argument_that_is_not_utf8_is_recorded_as_a_uri(tmp_path: Path) -> None:
    folder = os.fsdecode(bytes(tmp_path) + b"/\xff")
    os.mkdir(folder)
    Path(folder, "a.txt").write_text("x")
    recorded = portable_uri(folder)
    recorded.encode()
    assert find_inputs([recorded]) == find_inputs([folder])
    assert portable_uri(str(tmp_path)) == str(tmp_path)


def test_files_that_need_a_package_are_refused_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal is part of the table, so that the files are read once the package is there."""
    for name in ("a.docx", "b.docx", "c.txt"):
        (tmp_path / name).write_bytes(b"x")
    installed = source_table([str(tmp_path)])
    assert installed["refusal"].to_pylist() == ["", "", ""]
    monkeypatch.setitem(office_files.PACKAGES, "docx", ("no_such_module", "python-docx"))
    missing = source_table([str(tmp_path)])
    assert [bool(reason) for reason in missing["refusal"].to_pylist()] == [True, True, False]
    assert "a.docx and 1 more cannot be read without the extra `documents`" in caplog.text
