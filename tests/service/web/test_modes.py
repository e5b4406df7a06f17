"""The modes that the page offers and shows are those of the engine."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from hirag_dist.retrieval.search import MODES
from hirag_dist.types import MAP_REDUCE

STATIC = files("hirag_dist.service.web") / "static"


def test_every_mode_is_an_option() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    (choice,) = re.findall(r'<select[^>]*id="mode".*?</select>', page, re.DOTALL)
    assert set(re.findall(r'<option value="([^"]+)"', choice)) == {*MODES, *MAP_REDUCE}


def test_the_levels_of_every_mode_are_known() -> None:
    script = (STATIC / "modes.js").read_text(encoding="utf-8")
    (table,) = re.findall(r"const SEARCHED = \{(.*?)\};", script)
    assert {first or second for first, second in re.findall(r'(?:"([\w-]+)"|\b(\w+)): \[', table)} == {
        *MODES,
        *MAP_REDUCE,
    }
    assert json.loads(re.findall(r"hirag: (\[[^\]]*\])", table)[0]) == ["local", "global", "bridge"]
