"""Entities by a GLiNER model (Zaratiana et al., NAACL 2024): a small encoder that marks spans of any named types."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from hirag_dist.core.text.normalize import clean_name, is_name, name_key
from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.rule_based.records import safe_name
from hirag_dist.types import FinderOptions, FoundName

_WINDOW_WORDS = 200  # of sentences read together: GLiNER models cut a text at 384 words
_BATCH = 8  # windows in one pass
_HINT = "extraction.nlp.finder: gliner needs `pip install hirag_dist[gliner]`"


class SpanModel(Protocol):
    """The part of `gliner.GLiNER` that is used."""

    def inference(self, texts: list[str], labels: list[str], **options: Any) -> list[list[dict[str, Any]]]:
        """Return the spans of each text: start and end (characters), text, label, score."""
        ...


def load_gliner(options: FinderOptions) -> SpanModel:
    """Return a model.

    Raises:
        BackendUnavailable: the package is not installed, there is no such model, or no GPU where one is asked for.
    """
    try:
        from gliner import GLiNER
    except ImportError as error:
        raise BackendUnavailable(_HINT) from error
    onnx = {"load_onnx_model": True, "onnx_model_file": options.onnx_file} if options.onnx_file else {}
    device = "cuda" if options.device == "gpu" else "cpu"
    try:
        model: SpanModel = GLiNER.from_pretrained(options.model, map_location=device, **onnx)
    except Exception as error:  # those of huggingface_hub, safetensors, onnxruntime and torch
        raise BackendUnavailable(f"extraction.nlp.model: {options.model} cannot be loaded: {error}") from error
    return model


class GlinerFinder:
    """Spans of a GLiNER model, those of one name together."""

    def __init__(self, model: SpanModel, threshold: float) -> None:
        """Take a model and the score from which a span is an entity."""
        self._model = model
        self._threshold = threshold
        self._lock = threading.Lock()

    def find(self, texts: Sequence[Sequence[str]], types: Sequence[str]) -> list[list[FoundName]]:
        """Return the names of each text, best first, each once and with the type of most of its spans."""
        windows = [(number, first, lines) for number, text in enumerate(texts) for first, lines in _windows(text)]
        found: list[_Spans] = [_Spans() for _ in texts]
        marked = self._marked([" ".join(lines) for _, _, lines in windows], types) if windows else []
        for (number, first, lines), spans in zip(windows, marked, strict=True):
            for span in spans:
                found[number].add(span, first, lines)
        return [spans.names() for spans in found]

    def _marked(self, texts: list[str], types: Sequence[str]) -> list[list[dict[str, Any]]]:
        with self._lock:
            return self._model.inference(
                texts, list(types), flat_ner=True, threshold=self._threshold, batch_size=_BATCH
            )


def _windows(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return runs of sentences that a model reads at once, each with the number of its first sentence."""
    found: list[tuple[int, list[str]]] = []
    size = 0
    for number, line in enumerate(lines):
        words = line.count(" ") + 1
        if not found or size + words > _WINDOW_WORDS:
            found.append((number, []))
            size = 0
        found[-1][1].append(line)
        size += words
    return found


class _Spans:
    """The spans of one text, by name."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._scores: Counter[str] = Counter()
        self._types: dict[str, Counter[str]] = {}
        self._forms: dict[str, Counter[str]] = {}

    def add(self, span: dict[str, Any], first: int, lines: Sequence[str]) -> None:
        """Add a span of a window of sentences."""
        name = clean_name(safe_name(str(span["text"])))
        key = name_key(name)
        if not is_name(key):
            return
        number, start = first, int(span["start"])
        for line in lines:
            if start <= len(line):
                break
            start -= len(line) + 1
            number += 1
        else:
            return
        self._places.setdefault(key, []).append((number, lines[number - first][:start].count(" ")))
        self._scores[key] += float(span["score"])  # type: ignore[assignment]
        self._types.setdefault(key, Counter())[str(span["label"])] += 1
        self._forms.setdefault(key, Counter())[name] += 1

    def names(self) -> list[FoundName]:
        """Return the names, best first."""
        found = [
            FoundName(
                _most(self._forms[key]), _most(self._types[key]), tuple(sorted(places)), round(self._scores[key], 6)
            )
            for key, places in self._places.items()
        ]
        return sorted(found, key=lambda one: (-one.score, one.places[0], one.name))


def _most(counts: Counter[str]) -> str:
    return min(counts, key=lambda value: (-counts[value], value))
