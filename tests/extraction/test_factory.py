from __future__ import annotations

import sys

import pytest

from hirag_dist.errors import BackendUnavailable
from hirag_dist.extraction import make_entity_finder
from hirag_dist.extraction.builtin import BuiltinFinder
from hirag_dist.types import FinderOptions


def test_a_finder_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_entity_finder(FinderOptions()), BuiltinFinder)
    monkeypatch.setitem(sys.modules, "gliner", None)
    with pytest.raises(BackendUnavailable, match="needs"):
        make_entity_finder(FinderOptions("gliner", "folder"))
