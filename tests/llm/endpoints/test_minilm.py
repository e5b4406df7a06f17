"""MiniLM by onnxruntime, against vectors of sentence-transformers 6 (torch 2.14)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.endpoints import minilm
from hirag_dist.llm.endpoints.minilm import FORMER_NAME, NAME, MiniLmEmbedder

REFERENCE = [
    json.loads(line)
    for line in Path(__file__).with_name("minilm_reference.jsonl").read_text(encoding="utf-8").splitlines()
]
LONG = " ".join(["The queen bee lays up to two thousand eggs a day, and the workers feed the larvae."] * 25)
LONG_STARTS = [0.01105867, -0.0404372, -0.02482975, 0.01638325, -0.09996568, 0.03468475]


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> MiniLmEmbedder:
    for module in minilm._MODULES:
        pytest.importorskip(module)
    monkeypatch.setattr(minilm, "is_installed", lambda: True)
    return MiniLmEmbedder()


def test_word_pieces_equal_those_of_bert() -> None:
    pytest.importorskip("tokenizers")
    tokenizer = minilm._tokenizer()
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
    monkeypatch.setattr(minilm, "is_installed", lambda: False)
    with pytest.raises(BackendUnavailable, match=r"pip install 'hirag-dist\[minilm\]'"):
        MiniLmEmbedder()
    with pytest.raises(BackendUnavailable, match="--fresh"):
        MiniLmEmbedder(FORMER_NAME)


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    module = tmp_path / "hirag_other_weights"
    module.mkdir()
    (module / "__init__.py").touch()
    (module / "model.onnx").write_bytes(b"other")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(minilm, "_MODULES", ("hirag_other_weights",))
    monkeypatch.setattr(minilm, "is_installed", lambda: True)
    with pytest.raises(BackendUnavailable, match="damaged or another version"):
        MiniLmEmbedder().embed_now(["a text"])
