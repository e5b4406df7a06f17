"""Estimated cost of an index and of its updates, against those of the same files; sizes cut to the models' windows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import run_add, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.changed_documents import DocumentCounts
from hirag_dist.indexing.estimate import (
    FIRST_TOKEN_S,
    S_PER_TOKEN,
    TOKENS_PER_ENTITY,
    CostEstimate,
    embedding_calls,
    estimate_build,
)
from hirag_dist.indexing.window_sizes import fit_to_windows
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from tests.built_in_builds import CONFIG
from tests.toy_builds import LAYER_0_ALONE

CORPUS = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
PRICE = {"input": 2.0, "output": 8.0}
CHAT = {"base_url": "http://127.0.0.1:9", "model": "m", "price": PRICE, "rpm": 60, "max_concurrent": 1000}
ROLES = ("extract", "summarise", "report")
SMALL = sorted(CORPUS.glob("newton-*"))[:3]
SETTINGS = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}}
FILES = ("melville-brit-and-squid.md", "monroe-1823-doctrine.md", "newton-whiteness-from-colours.md")
ADDED = CORPUS / "lincoln-1862-one-national-family.md"


def plan(inputs: list[Path], **keys: Any) -> Any:
    return estimate_build([str(path) for path in inputs], Config.model_validate(keys), Prompts())


def priced(**more: Any) -> dict[str, Any]:
    return {"endpoints": {"paid": CHAT | more}, "roles": dict.fromkeys(ROLES, "paid")}


def test_counts_documents_copies_and_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The same words.")
    (tmp_path / "b.txt").write_text("The same words.")
    (tmp_path / "c.md").write_text("Other words.")
    (tmp_path / "d.pdf").write_bytes(b"no PDF")
    found = plan([tmp_path])
    assert (found.documents, found.duplicates, found.chunks) == (2, 1, 2)
    assert [Path(name).name for name, _ in found.unreadable] == ["d.pdf"]


def test_calls_cost_and_time_of_a_paid_endpoint() -> None:
    found = plan([CORPUS], llm=priced())
    stages = {stage.stage: stage for stage in found.stages}
    extract = stages["extract"]
    assert (extract.endpoint, extract.calls) == ("paid", found.chunks)
    assert extract.input_tokens > found.tokens
    assert extract.cost_usd == pytest.approx((extract.input_tokens * 2 + extract.output_tokens * 8) / 1e6)
    assert extract.seconds == pytest.approx(found.chunks)  # 60 a minute
    assert stages["embed"].cost_usd == 0


def test_each_task_of_each_layer_embeds_by_calls_of_its_own() -> None:
    """As many calls as a build of the sample corpus sends: 7 for layer 0, one for each layer above, one for chunks."""
    keys: dict[str, Any] = {"llm": priced(dim=8)}
    keys["llm"]["roles"]["embed"] = "paid"
    config = Config.model_validate(keys)
    assert embedding_calls(config, [815, 109, 17], 60) == 10
    assert embedding_calls(config, [1025, 0], 257) == 9 + 3
    assert 9 <= plan([CORPUS], **keys).stages[-1].calls <= 11
    assert embedding_calls(Config(), [815, 109, 17], 60) == 17  # 64 texts a call where weights are in this process
    hashing = {"llm": {"endpoints": {"h": {"kind": "hashing"}}, "roles": {"embed": "h"}}}
    assert embedding_calls(Config.model_validate(hashing), [815, 109, 17], 60) == 0


def test_extraction_by_names_makes_no_call() -> None:
    assert "extract" not in {stage.stage for stage in plan(SMALL, extraction={"method": "nlp"}).stages}


def test_entity_resolution_is_counted_where_it_asks() -> None:
    def asked(**keys: Any) -> dict[str, Any]:
        return {stage.stage: stage for stage in plan(SMALL, llm=priced(), **keys).stages}

    assert "resolve" not in asked()
    on = {"enabled": True}
    packed, alone = asked(resolution=on)["resolve"], asked(resolution=on, pack_tokens=0)["resolve"]
    assert packed.endpoint == "paid"
    assert 0 < packed.calls < alone.calls
    assert packed.input_tokens < alone.input_tokens
    assert packed.output_tokens == alone.output_tokens


def test_shares_of_several_endpoints_and_their_time() -> None:
    llm = {
        "endpoints": {"fast": CHAT | {"rpm": 600}, "slow": CHAT | {"rpm": 6}},
        "roles": {"extract": [{"endpoint": "fast", "weight": 3}, {"endpoint": "slow"}]},
    }
    found = plan([CORPUS], llm=llm)
    fast, slow = (stage for stage in found.stages if stage.stage == "extract")
    assert (fast.endpoint, slow.endpoint) == ("fast", "slow")
    assert fast.calls == pytest.approx(3 * slow.calls, abs=2)
    assert fast.calls + slow.calls == found.chunks
    assert (slow.bound, slow.seconds) == ("rpm", pytest.approx(slow.calls * 10))
    assert found.seconds == pytest.approx(slow.seconds)  # side by side, and built-in models have no limits


def test_without_limits_the_time_of_the_replies_is_assumed_or_known() -> None:
    llm = priced(rpm=None, max_concurrent=4)
    assumed = plan(SMALL, llm=llm).stages[0]
    in_a_row = assumed.calls * FIRST_TOKEN_S + assumed.output_tokens * S_PER_TOKEN
    assert (assumed.bound, assumed.seconds) == ("concurrency", pytest.approx(in_a_row / min(4, assumed.calls)))
    inputs, config = [str(path) for path in SMALL], Config.model_validate({"llm": llm})
    known = estimate_build(inputs, config, Prompts(), {"paid": 50.0}).stages[0]
    assert (known.bound, known.seconds) == ("speed", pytest.approx(known.output_tokens / 50))


def test_replies_in_json_are_longer() -> None:
    forms = ("delimited", "auto", "json_schema")
    lines, found, json = (plan(SMALL, llm=priced(output=form)).stages[0].output_tokens for form in forms)
    assert found == json > 1.4 * lines


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, IndexResult]:
    """An index of half of the sample corpus, by the built-in model."""
    folder = tmp_path_factory.mktemp("sample")
    (folder / "corpus").mkdir()
    for path in [path for path in sorted(CORPUS.iterdir()) if path != ADDED][::2]:
        shutil.copy(path, folder / "corpus")
    return folder, run_build([str(folder / "corpus")], str(folder / "index"), CONFIG)


def planned_tokens(made: CostEstimate, stage: str = "") -> int:
    stages = [each for each in made.stages if each.stage.startswith(stage) and each.stage != "embed"]
    return sum(each.input_tokens + each.output_tokens for each in stages)


def check_due(made: CostEstimate, update: Any) -> None:
    """Check that as many texts were due as were expected, or nearly so."""
    for planned, counts in ((made.summaries, update.summaries), (made.reports, update.reports)):
        fewest, most = planned.due_range
        assert fewest <= counts.written + counts.deferred <= most


def test_a_small_corpus_is_planned_within_a_factor_of_two(sample: tuple[Path, IndexResult]) -> None:
    """Calls and tokens of every stage that matters, against a build of the sample corpus with the built-in model."""
    folder, built = sample
    made = plan([folder / "corpus"])
    for stage in ("extract", "summarise", "reports", ""):
        rows = [row for row in built.usage if row["stage"].startswith(stage) and row["role"] in ROLES]
        planned = sum(each.calls for each in made.stages if each.stage.startswith(stage) and each.stage != "embed")
        assert 1 / 1.5 <= planned / sum(row["calls"] for row in rows) <= 1.5, stage
        tokens = sum(row["input_tokens"] + row["output_tokens"] for row in rows)
        assert 1 / 1.5 <= planned_tokens(made, stage) / tokens <= 1.5, stage


def test_an_update_of_a_small_index_is_planned_as_it_is_made(sample: tuple[Path, IndexResult], tmp_path: Path) -> None:
    """A document that comes makes some reports due, not as many as if its names were spread over all of them."""
    folder = Path(shutil.copytree(sample[0], tmp_path / "copy"))
    shutil.copy(ADDED, folder / "corpus")
    snapshot = open_snapshot(Store(str(folder / "index")))
    made = estimate_build([str(folder / "corpus")], CONFIG, Prompts(), snapshot=snapshot)
    result = run_build([str(folder / "corpus")], str(folder / "index"), CONFIG)
    assert 0.5 < planned_tokens(made) / result.update.spent_tokens < 2
    check_due(made, result.update)
    for planned in (made.summaries, made.reports):
        fewest, most = planned.due_range
        assert fewest <= planned.due <= most < planned.total


def test_descriptions_that_an_update_merges_again_are_planned(tmp_path: Path) -> None:
    """A document that names what many chunks name pays for their descriptions."""
    settings = {"execution": {"executor": "inline"}, "description_tokens": 60} | LAYER_0_ALONE
    config, index = Config.model_validate(settings), str(tmp_path / "index")
    inputs = [*map(str, sorted(CORPUS.glob("[jmp]*-18*"))), str(ADDED)]
    run_build(inputs[:-1], index, config)
    made = estimate_build(inputs, config, Prompts(), snapshot=open_snapshot(Store(index)))
    again = [row for row in run_build(inputs, index, config).usage if row["stage"] == "describe"]
    planned = next(stage for stage in made.stages if stage.stage == "describe")
    assert again[0]["calls"] > 10
    assert 1 / 1.5 < planned.calls / again[0]["calls"] < 1.5
    assert 1 / 1.5 < planned.input_tokens / again[0]["input_tokens"] < 1.5


@pytest.mark.parametrize(("n_before", "n_after"), [(1, 5), (10, 3)])
def test_an_update_of_most_of_an_index_is_planned_as_it_is_made(
    sample: tuple[Path, IndexResult], tmp_path: Path, n_before: int, n_after: int
) -> None:
    """Where most text comes or goes, the texts that are due are those of an index of what is there then."""
    folder, index = sample[0], tmp_path / "index"
    texts = sorted((folder / "corpus").iterdir())
    if n_before == len(texts):
        shutil.copytree(folder / "index", index)
    else:
        run_build([str(path) for path in texts[:n_before]], str(index), CONFIG)
    inputs = [str(path) for path in texts[:n_after]]
    made = estimate_build(inputs, CONFIG, Prompts(), snapshot=open_snapshot(Store(str(index))))
    update = run_build(inputs, str(index), CONFIG).update
    spent = update.spent_tokens + update.debt_tokens
    assert 0.4 < planned_tokens(made) / spent < 2.5
    check_due(made, update)
    assert made.summaries.due <= made.summaries.total
    assert made.reports.due <= made.reports.total


def test_a_small_window_means_more_calls() -> None:
    config, inputs = Config.model_validate({"llm": priced()}), [str(path) for path in SMALL]
    whole, small = (estimate_build(inputs, each, Prompts()) for each in (config, fitted(1024, config)))
    assert small.calls > 2 * whole.calls


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "corpus").mkdir()
    for name in FILES:
        shutil.copy(CORPUS / name, folder / "corpus" / name)
    run_build([str(folder / "corpus")], str(folder / "index"), Config.model_validate(SETTINGS))
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def plan_update(folder: Path, corpus: str = "corpus", *, add: bool = False, **keys: Any) -> CostEstimate:
    config, snapshot = Config.model_validate(SETTINGS | keys), open_snapshot(Store(str(folder / "index")))
    return estimate_build([str(folder / corpus)], config, Prompts(), snapshot=snapshot, add=add)


def texts(folder: Path) -> set[str]:
    """Return the texts of all chunks of the index."""
    return set(open_snapshot(Store(str(folder / "index"))).table("chunks", ["text"])["text"].to_pylist())


def test_an_update_of_nothing_changed_costs_nothing(folder: Path) -> None:
    made = plan_update(folder)
    assert not made.changes
    assert (made.documents, made.calls, made.cost_usd, made.stages) == (3, 0, 0, ())
    assert repr(made) == "<CostEstimate 3 documents, 0 chunks to extract: 0 calls, $0.00, 0 s>"


def test_documents_and_chunks_are_those_of_the_update(folder: Path) -> None:
    corpus = folder / "corpus"
    (corpus / FILES[0]).unlink()
    edited = (corpus / FILES[1]).read_text("utf-8")
    (corpus / FILES[1]).write_text(f"{edited}\nOne more sentence about the Treasury of Lisbon.\n", "utf-8")
    (corpus / FILES[2]).write_bytes(bytes(range(256)) * 8)  # it cannot be read, and is not removed
    shutil.copy(ADDED, corpus)
    made = plan_update(folder)
    before = texts(folder)
    result = run_build([str(corpus)], str(folder / "index"), Config.model_validate(SETTINGS))
    assert made.base == result.update.base
    assert made.changes == result.update.documents == DocumentCounts(added=1, changed=1, removed=1)
    assert made.chunks == len(texts(folder) - before)
    assert made.chunks < plan([corpus]).chunks
    assert made.extraction_tokens == pytest.approx(result.update.extraction_tokens, rel=0.6)
    assert made.budget_tokens is None
    assert 0.4 < planned_tokens(made) / result.update.spent_tokens < 2.5
    assert 0.3 < made.summaries.written / result.update.summaries.written < 3


def test_an_update_costs_less_than_a_build_keeps_its_bound_and_embeds_what_it_writes(folder: Path) -> None:
    shutil.copy(ADDED, folder / "corpus")
    paid = {"llm": priced()}
    made, rebuild = plan_update(folder, **paid), plan([folder / "corpus"], **SETTINGS, **paid)
    assert made.cost_usd is not None
    assert 0 < made.cost_usd < rebuild.cost_usd
    assert made.budget_tokens == 3 * made.extraction_tokens
    assert planned_tokens(made) <= made.budget_tokens
    tight = plan_update(folder, **paid, update={"max_ratio": 1})
    assert tight.summaries.written == tight.reports.written == 0
    assert tight.summaries.due == made.summaries.due > 0
    sizes = open_snapshot(Store(str(folder / "index"))).table("layers", ["n_entities"])["n_entities"].to_pylist()
    summaries = sum(sizes[1:]) * made.summaries.written / made.summaries.total
    embedded, fewer = (next(stage for stage in each.stages if stage.stage == "embed") for each in (made, tight))
    assert embedded.calls > fewer.calls > 0
    assert embedded.input_tokens - fewer.input_tokens == pytest.approx(TOKENS_PER_ENTITY * summaries, abs=1)


def test_another_configuration_is_a_build_from_nothing(folder: Path) -> None:
    made = plan_update(folder, chunk_tokens=500)
    assert (made.base, made.budget_tokens) == ("", None)
    assert "chunk_tokens" in made.rebuilt_because
    assert made.stages == plan([folder / "corpus"], **SETTINGS, chunk_tokens=500).stages


def test_an_addition_keeps_the_documents_of_the_index(folder: Path) -> None:
    more = folder / "more"
    more.mkdir()
    shutil.copy(ADDED, more)
    text = (folder / "corpus" / FILES[1]).read_text("utf-8")
    (more / FILES[1]).write_text(f"{text}\nOne more sentence about the Treasury of Lisbon.\n", "utf-8")
    made = plan_update(folder, "more", add=True)
    before = texts(folder)
    result = run_add([str(more)], str(folder / "index"), Config.model_validate(SETTINGS))
    assert made.changes == result.update.documents == DocumentCounts(added=1, changed=1)
    assert made.chunks == len(texts(folder) - before)
    assert made.documents == 4
    assert not plan_update(folder, "more", add=True).changes


def test_an_addition_keeps_a_text_that_is_at_another_place_too(tmp_path: Path) -> None:
    for name in ("corpus", "more"):
        (tmp_path / name).mkdir()
    for name in "ab":
        (tmp_path / "corpus" / f"{name}.txt").write_text("The Zarnow Mine was closed by Hedda Krull.")
    run_build([str(tmp_path / "corpus")], str(tmp_path / "index"), Config.model_validate(SETTINGS))
    (tmp_path / "more/a.txt").write_text("Greta Foss built the pump of Halden.")
    made = plan_update(tmp_path, "more", add=True)
    result = run_add([str(tmp_path / "more")], str(tmp_path / "index"), Config.model_validate(SETTINGS))
    assert made.changes == result.update.documents == DocumentCounts(added=1)
    assert made.documents == 2


def test_edits_of_most_documents_make_due_what_the_index_has(sample: tuple[Path, IndexResult], tmp_path: Path) -> None:
    folder, snapshot = sample[0], open_snapshot(Store(str(sample[0] / "index")))
    for file in sorted((folder / "corpus").iterdir()):
        (tmp_path / file.name).write_text(file.read_text().replace(" the ", " that "))
    made = estimate_build([str(tmp_path)], CONFIG, Prompts(), snapshot=snapshot)
    n_reports = snapshot.table("report_inputs").num_rows
    assert n_reports <= made.reports.due <= made.reports.total < 1.2 * n_reports


def fitted(window: int, config: Config | None = None) -> Config:
    return fit_to_windows(config or Config(), dict.fromkeys(ROLES, window), Prompts())


def sizes(config: Config) -> list[int]:
    own = [config.chunk_tokens, config.chunk_overlap_tokens, config.description_tokens, config.pack_tokens]
    return [*own, config.clustering.target_size, config.communities.report_tokens]


def test_sizes_shrink_with_the_window_and_never_grow() -> None:
    windows = [768, 1024, 2048, 4096, 8192, 16_384, 32_768, 131_072]
    found = [sizes(fitted(window)) for window in windows]
    for smaller, larger in zip(found, [*found[1:], sizes(Config())], strict=True):
        assert all(a <= b for a, b in zip(smaller, larger, strict=True))
    assert fitted(131_072) == Config()
    assert fitted(8192).chunk_tokens == Config().chunk_tokens


def test_a_role_without_a_known_window_keeps_its_sizes_and_in_a_small_one_units_share_no_call() -> None:
    assert fit_to_windows(Config(), {"summarise": 131_072, "report": 1024}, Prompts()).pack_tokens == 0
    cut = fit_to_windows(Config(), {"report": 1024}, Prompts())
    assert cut.communities.report_tokens < Config().communities.report_tokens
    assert (cut.chunk_tokens, cut.clustering) == (Config().chunk_tokens, Config().clustering)


def test_a_window_without_room_for_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"512 tokens, has room for \d+ tokens of text .* larger window"):
        fitted(512)
