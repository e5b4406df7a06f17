"""The finder over a model of the interface of `gliner.GLiNER` 0.2; its weights cannot be fetched here."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hirag_dist.errors import BackendUnavailable
from hirag_dist.extraction.gliner import GlinerFinder, load_gliner
from hirag_dist.types import FinderOptions

TYPES = ("person", "location")


class Spans:
    """Marks some words, as `inference` returns them."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.asked: list[tuple[list[str], list[str], dict[str, Any]]] = []

    def inference(self, texts: list[str], labels: list[str], **options: Any) -> list[list[dict[str, Any]]]:
        self.asked.append((texts, labels, options))
        return [
            [
                {"start": match.start(), "end": match.end(), "text": word, "label": label, "score": 0.75}
                for word, label in self.labels.items()
                for match in re.finditer(re.escape(word), text)
            ]
            for text in texts
        ]


def find(model: Spans, *texts: Sequence[str]) -> list[dict[str, tuple[str, tuple[tuple[int, int], ...], float]]]:
    found = GlinerFinder(model, 0.4).find(texts, TYPES)
    return [{one.name: (one.type, one.places, one.score) for one in each} for each in found]


def test_spans_of_one_name_are_one_entity_at_its_places() -> None:
    model = Spans({"Marie Curie": "person", "Paris": "location"})
    lines = ["Marie Curie lived in Paris.", "In Paris they knew Marie Curie.", "She worked."]
    assert find(model, lines, ["Nothing."]) == [
        {"Marie Curie": ("person", ((0, 0), (1, 4)), 1.5), "Paris": ("location", ((0, 4), (1, 1)), 1.5)},
        {},
    ]
    (texts, labels, options) = model.asked[0]
    assert len(texts) == 2, "one call for all texts"
    assert labels == list(TYPES)
    assert options["threshold"] == 0.4


def test_texts_without_sentences_are_not_read() -> None:
    model = Spans({"Curie": "person"})
    assert find(model, [], []) == [{}, {}]
    assert model.asked == []


def test_a_long_text_is_read_in_windows_of_whole_sentences() -> None:
    lines = [f"{'word ' * 90}Curie {number}." for number in range(9)]
    model = Spans({"Curie": "person"})
    (found,) = find(model, lines)
    assert found["Curie"][1] == tuple((number, 90) for number in range(9))
    assert all(len(text.split()) <= 200 for text in model.asked[0][0])


def test_the_type_and_the_spelling_are_those_of_most_spans() -> None:
    model = Spans({"CURIE": "location", "Curie": "person"})
    (found,) = find(model, ["Curie, CURIE and Curie."])
    assert found == {"Curie": ("person", ((0, 0), (0, 1), (0, 3)), 2.25)}


def test_the_model_is_loaded_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def from_pretrained(name: str, **options: Any) -> str:
        calls.append((name, options))
        if name == "missing":
            raise OSError("no such file")
        return "the model"

    monkeypatch.setitem(sys.modules, "gliner", SimpleNamespace(GLiNER=SimpleNamespace(from_pretrained=from_pretrained)))
    load_gliner(FinderOptions("gliner", "folder", device="gpu"))
    load_gliner(FinderOptions("gliner", "folder", "model.onnx"))
    assert calls == [
        ("folder", {"map_location": "cuda"}),
        ("folder", {"map_location": "cpu", "load_onnx_model": True, "onnx_model_file": "model.onnx"}),
    ]
    with pytest.raises(BackendUnavailable, match="missing cannot be loaded: no such file"):
        load_gliner(FinderOptions("gliner", "missing"))
    monkeypatch.setitem(sys.modules, "gliner", None)
    with pytest.raises(BackendUnavailable, match=r"hirag_dist\[gliner\]"):
        load_gliner(FinderOptions("gliner", "folder"))
