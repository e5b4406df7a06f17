"""Names found in a text without a language model, and the choice of what finds them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name or term that a text holds.

    Attributes:
        type: one of the types that were asked for.
        places: (sentence, word) of each occurrence, in order.
        score: how well it stands out; comparable within one text.
    """

    name: str
    type: str
    places: tuple[tuple[int, int], ...]
    score: float


@dataclass(frozen=True)
class FinderOptions:
    """Choice of an entity finder; part of stage keys.

    Attributes:
        kind: builtin or gliner.
        model: gliner: folder or name of the model.
        onnx_file: gliner: file of the model that onnxruntime runs; empty: torch runs the model.
        threshold: gliner: score from which a span is an entity.
        device: gliner: cpu or gpu.
    """

    kind: str = "builtin"
    model: str = ""
    onnx_file: str = ""
    threshold: float = 0.0
    device: str = "cpu"
