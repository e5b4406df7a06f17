"""The configuration as a whole: the number of its keys, and a help text for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args, get_origin

from pydantic import BaseModel

from hirag_dist.config.model import Config


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield (dotted key, description) of a section and of the sections below it."""
    for name, field in section.model_fields.items():
        kind = get_args(field.annotation)[1] if get_origin(field.annotation) is dict else field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.description


def test_there_are_at_most_130_keys_and_each_has_a_description() -> None:
    found = dict(keys(Config))
    assert len(found) <= 130
    assert [key for key, description in found.items() if not description] == []
