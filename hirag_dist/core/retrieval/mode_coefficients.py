"""Coefficients of the choice of a mode. Written by `python -m benchmarks.mode_choice`; not edited by hand."""

from typing import Final

CLASS_MODES: Final = {"fact": "local", "comparison": "local", "path": "bridge", "corpus-wide": "hirag"}
BY_WORDS: Final[dict[str, dict[str, float]]] = {}
BY_NAMES: Final[dict[str, dict[str, float]]] = {}
