"""Files of every format, whole and damaged, as the process that reads them answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hirag_dist.readers.office.program import import_reader, read_file
from tests.readers.office import makers

MAKERS: dict[str, Callable[[], bytes]] = {
    "docx": makers.word,
    "pptx": makers.slides,
    "xlsx": makers.sheets,
    "epub": makers.book,
    "eml": makers.mail,
}


def reply(form: str, data: bytes) -> dict[str, Any]:
    limits = {"max_chars": 100_000, "max_bytes": 1 << 24, "max_tree_bytes": 1 << 24, "encoding": None}
    return read_file({"form": form} | limits, data)


@pytest.mark.parametrize("form", MAKERS)
def test_the_same_bytes_give_the_same_text(form: str) -> None:
    import_reader({"form": form})
    data = MAKERS[form]()
    first, second = reply(form, data), reply(form, data)
    assert first["text"]
    assert first == second


@pytest.mark.parametrize("form", MAKERS)
def test_damaged_files_are_refused_or_read_and_never_raise(form: str) -> None:
    data = MAKERS[form]()
    draw = random.Random(form)
    others = [own for other, make in MAKERS.items() if other != form for own in [make()]]
    damaged = [data[: draw.randrange(len(data))] for _ in range(8)] + [b"PK\x05\x06", b"\0" * 40, *others]
    for _ in range(8):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 30)):
            changed[draw.randrange(len(data))] = draw.randrange(256)
        damaged.append(bytes(changed))
    for each in damaged:
        found = reply(form, each)
        assert {"text", "refused", "error"} & found.keys()
