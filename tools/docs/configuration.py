"""Reference of the configuration, read from the pydantic models."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hirag_dist.config import model
from tools.docs.markdown import NOTICE, cell, code, sentence, table

_HEAD = """# Configuration

One YAML file, given by `--config`; every key is optional. `hirag-dist init` writes a commented file, `hirag-dist config
show` prints the effective configuration with the origin of each value and masked secrets, and `hirag-dist config
schema` prints the JSON schema. An unknown key is an error that suggests the nearest known key.

- `${NAME}` inside a value is replaced by the environment variable `NAME`; `${NAME:-default}` has a default. A
  variable without one that is not set is an error, and so is an empty one for `api_key`.
- `HIRAG__SECTION__KEY=value` in the environment overrides a key, as in `HIRAG__LLM__ATTEMPTS=5`.
- `--set section.key=value` on the command line overrides both.

Keys at the top level, and the models that `llm` names, decide the content of an index: another value is another build.
`max_reject_ratio`, `pack_tokens` and the sections `retrieval`, `vectors`, `service` and `execution` do not change what
is built.

"""


def page() -> str:
    """Return the page `reference/configuration.md`."""
    parts = [NOTICE, _HEAD]
    for path, section in _sections(model.Config, ""):
        rows = [_row(path, name, field) for name, field in section.model_fields.items() if not _nested(field)]
        about = sentence((section.__doc__ or "").strip().split("\n\n")[0])
        title = f"`{path}`" if path else "Top level"
        parts += [f"## {title}\n\n{about}\n\n", table(("key", "type", "default", "meaning"), rows), "\n"]
    return "".join(parts).rstrip() + "\n"


def _sections(section: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield (dotted path, model) of a section and of the sections below it; `NAME` stands for a key of a mapping."""
    yield path, section
    for name, field in section.model_fields.items():
        if (below := _nested(field)) is not None:
            inner, suffix = below
            yield from _sections(inner, ".".join(filter(None, (path, name))) + suffix)


def _nested(field: FieldInfo) -> tuple[type[BaseModel], str] | None:
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, ""
    if get_origin(kind) is dict:
        value = get_args(kind)[1]
        if isinstance(value, type) and issubclass(value, BaseModel):
            return value, ".NAME"
    return None


def _row(path: str, name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    kind = cell(_type(field.annotation) + _bounds(field))
    return f"`{name}`", kind, _default(field), cell(field.description or "")


def _type(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(args[0])
    if origin is Literal:
        return ", ".join(f"`{arg}`" for arg in args)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if arg is type(None) else _type(arg) for arg in args)
    if origin in (tuple, list):
        return f"list of {_type(args[0])}"
    if origin is dict:
        return f"mapping of {_type(args[0])} to {_type(args[1])}"
    names = {str: "text", SecretStr: "secret", int: "integer", float: "number", bool: "true or false", Any: "any value"}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "{" + ", ".join(kind.model_fields) + "}"
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def _bounds(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "min_length": "length ≥", "max_length": "length ≤"}
    found = [
        f"{sign} {_number(getattr(item, attribute))}"
        for item in field.metadata
        for attribute, sign in signs.items()
        if getattr(item, attribute, None) is not None
    ]
    return f" ({', '.join(found)})" if found else ""


def _number(bound: float) -> str:
    return "2⁶³" if bound == 1 << 63 else f"{bound:,}"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    if value is PydanticUndefined:
        return "required"
    return code(list(value) if isinstance(value, tuple) else value)
