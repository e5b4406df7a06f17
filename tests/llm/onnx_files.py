"""Two small models in files, as a test needs them: one looks tokens up in a table, the other adds their numbers.

They were made with the package `onnx` 1.23: Gather(table, input_ids), and ReduceSum(input_ids · attention_mask).
"""

from __future__ import annotations

import base64
from pathlib import Path

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
