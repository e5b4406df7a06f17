"""Common part of index, retry and import: a recorded build even if its models are not reachable, and its summary."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from hirag_dist.application.build import Action, BuildOptions, execute_build, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.retry import check_same_configuration
from hirag_dist.cli._build import show
from hirag_dist.composition.build_records import BuildArguments, last_build, published
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError, HiragError, InputError, ModelUnavailable
from hirag_dist.indexing import pipeline
from hirag_dist.storage.layout import CURRENT
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

TEXT = "Ada Lovelace wrote notes on the Analytical Engine. Charles Babbage designed the Analytical Engine in London."


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text(TEXT)
    return str(tmp_path / "corpus")


def config(*roles: str) -> Config:
    """The built-in model, and an endpoint without a listener in some roles."""
    dead = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key": "k", "price": {"input": 1}}
    llm = {"endpoints": {"dead": dead}, "roles": dict.fromkeys(roles, "dead"), "outage_timeout_s": 0, "attempts": 1}
    return Config.model_validate({"execution": {"executor": "inline"}, "llm": llm})


def run(store: Store, corpus: str, made: Config, action: Action = "index", force_current: bool = False) -> IndexResult:
    options = BuildOptions(max_usd=1.0, make_current=force_current)
    arguments = BuildArguments.of("index", made, [corpus])
    return execute_build(made, store, action, arguments, options, lambda build: build.index([corpus]))


def test_models_that_cannot_be_asked_are_on_record(store: Store, corpus: str) -> None:
    with pytest.raises(HiragError) as raised:
        run(store, corpus, config("extract"))
    seen = last_build(store)
    assert (seen["state"], seen["action"], seen["limits"]["max_usd"]) == ("failed", "index", 1.0)
    assert seen["error"] == str(raised.value)


def test_the_build_before_can_still_be_retried_and_dropped(store: Store, corpus: str) -> None:
    result = run(store, corpus, config())
    before = last_build(store)
    with pytest.raises(HiragError):
        run(store, corpus, config("report"), action="retry")
    seen = last_build(store)
    assert (seen["attempt"]["action"], seen["attempt"]["state"]) == ("retry", "failed")
    assert published(store, seen) == result.manifest.snapshot_id
    assert (seen["decisive"], seen["stages"]) == (before["decisive"], before["stages"])
    run(store, corpus, config())
    after = last_build(store)
    assert after is not None
    assert "attempt" not in after


def test_a_summary_says_that_a_snapshot_somebody_went_back_to_stays(
    store: Store, corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = config()
    first = run(store, corpus, made)
    (Path(corpus) / "b.txt").write_text("Mary Somerville taught Ada Lovelace in London.")
    second = run(store, corpus, made)
    earlier, later = first.manifest.snapshot_id, second.manifest.snapshot_id
    store.write_bytes(CURRENT, earlier.encode())
    report = run(store, corpus, made).to_dict()
    assert (report["snapshot"], report["changed"], report["stays_current"]) == (later, False, earlier)
    show(report)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{earlier} stays current: `current` was set back to it from {later}." in said
    assert "--make-current" in said
    assert run(store, corpus, made).manifest.snapshot_id == later
    assert current_id(store) == earlier, "as often as it is run"
    report = run(store, corpus, made, force_current=True).to_dict()
    assert (report["changed"], report["stays_current"], current_id(store)) == (True, None, later)
    store.write_bytes(CURRENT, earlier.encode())
    (Path(corpus) / "c.txt").write_text("Ada Lovelace lived in London.")
    report = run(store, corpus, made).to_dict()
    assert (report["changed"], report["stays_current"]) == (True, None), "another snapshot than the one left"
    assert current_id(store) == report["snapshot"] not in (earlier, later)


def test_a_build_that_was_killed_before_its_snapshot_was_current_publishes_and_says_so(
    store: Store, corpus: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = config()
    for name in ("a.txt", "b.txt"):  # a first build, and an update
        (Path(corpus) / name).write_text(f"{TEXT} {name}")
        before = current_id(store)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "make_current", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(store, corpus, made)
        assert current_id(store) == before
        report = run(store, corpus, made).to_dict()
        assert (report["stages_run"], report["changed"]) == (0, True)
        assert current_id(store) == report["snapshot"] != before
        capsys.readouterr()
        show(report)
        said = capsys.readouterr().out
        assert f"Snapshot {report['snapshot']} published: " in said
        assert "This run made the snapshot current." in said
        assert "Nothing to do" not in said


def interrupted(*_: object) -> None:
    """Stand for the moment of Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("before", "now", "same"), [("", "gpu", True), ("gpu", "", True), ("gpu", "cupy", False)])
def test_kernels_that_are_not_known_yet_are_no_other_configuration(before: str, now: str, same: bool) -> None:
    with nullcontext() if same else pytest.raises(ConfigError, match="kernels: gpu → cupy"):
        check_same_configuration({"kernels": before, "seed": 1}, {"kernels": now, "seed": 1}, "here")


@pytest.mark.parametrize("name", ["work/thesis/t.txt", "snapshots/photos/p.jpg", "cache/pip/c"])
def test_a_folder_of_something_else_becomes_no_index(store: Store, corpus: str, name: str) -> None:
    store.write_bytes(name, b"x")
    with pytest.raises(InputError, match=f"is no index and holds {name.split('/')[0]}, .* a folder of its own"):
        run_build([corpus], store.uri, Config())
    assert store.walk("") == [name]


@pytest.mark.parametrize(
    "mark", ["build.json", "current", "run.lock", ".run.lock.guard", f"snapshots/{'0' * 16}/manifest.json"]
)
def test_a_folder_that_a_build_has_begun_is_an_index(store: Store, corpus: str, mark: str) -> None:
    store.write_bytes("work/read/key/part-000000.parquet", b"x")
    store.write_bytes(mark, b'{"started_at": ""}')
    with pytest.raises(ModelUnavailable):  # the next step
        run(store, corpus, config("extract"))


def test_a_reply_store_may_be_there_before_the_index(store: Store, corpus: str) -> None:
    store.write_bytes("ledger/other.seg", b"")
    with pytest.raises(ModelUnavailable):
        run(store, corpus, config("extract"))


def test_an_input_that_names_nothing_leaves_no_folder_behind(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        run_build([str(tmp_path / "nowhere")], store.uri, Config())
    assert not (tmp_path / "index").exists()
