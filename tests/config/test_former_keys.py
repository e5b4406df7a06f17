from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hirag_dist.config.former_keys import REMOVED, RENAMED
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError


def fault(folder: Path, dotted: str) -> str:
    """Return the error of a configuration that gives one key the value 1."""
    *sections, key = dotted.split(".")
    path = folder / "hirag.yaml"
    path.write_text("".join(f"{section}: {{" for section in sections) + f"{key}: 1" + "}" * len(sections))
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), {})
    return str(caught.value)


@pytest.mark.parametrize(("former", "now"), sorted(RENAMED.items()))
def test_a_renamed_key_is_named(tmp_path: Path, former: str, now: str) -> None:
    former, now = former.replace("*", "main"), now.replace("*", "main")
    assert f"unknown key {former}; it is called {now} now" in fault(tmp_path, former)
    assert now.rpartition(".")[2] in _section(now).model_fields


def _section(dotted: str) -> type[BaseModel]:
    """Return the class of the section that holds a key."""
    section: Any = Config
    for part in dotted.split(".")[:-1]:
        by_name = not isinstance(section, type)  # dict[str, the section of a name]
        section = section.__args__[1] if by_name else section.model_fields[part].annotation
    return section  # type: ignore[no-any-return]


@pytest.mark.parametrize(("removed", "advice"), sorted(REMOVED.items()))
def test_a_removed_key_says_what_to_do(tmp_path: Path, removed: str, advice: str) -> None:
    removed = removed.replace("*", "main")
    assert f"unknown key {removed}; there is no such key any more: {advice}" in fault(tmp_path, removed)
