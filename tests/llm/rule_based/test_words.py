"""Single words: their stems and scripts."""

from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.language import Script, scripts_of


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Der Kurfürst gründete die Universität.", Script.CASED),
        ("نجيب محفوظ", Script.CASELESS),
        ("세종대왕은 훈민정음을", Script.CASELESS),
        ("孙悟空", Script.IDEOGRAPHIC),
        ("กรุงเทพมหานคร", Script.UNSPACED),
    ],
)
def test_the_writing_of_a_text(text: str, script: Script) -> None:
    assert scripts_of(text) == (script,)
