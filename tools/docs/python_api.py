"""Reference of the public Python API: what `hirag_dist.__all__` and `hirag_dist.client.__all__` name."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from pydantic import BaseModel

from tools.docs.markdown import NOTICE

_MODULES = ("hirag_dist", "hirag_dist.client")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples):$")
_HEAD = """# Python API

The public names of the package. Everything else may change without notice. Examples:
[Use the Python API](../tutorials/python-api.md).

"""


def page() -> str:
    """Return the page `reference/python-api.md`."""
    parts = [NOTICE, _HEAD]
    shown: list[Any] = []
    for name in _MODULES:
        module = importlib.import_module(name)
        names = [public for public in getattr(module, "__all__", ()) if not public.startswith("__")]
        members = {public: getattr(module, public) for public in names}
        members = {public: member for public, member in members.items() if all(member is not other for other in shown)}
        shown += members.values()
        if members:
            parts.append(f"## `{name}`\n\n")
            parts += [_member(public, member) for public, member in members.items()]
    return "".join(parts).rstrip() + "\n"


def _member(name: str, member: Any) -> str:
    if inspect.ismodule(member):
        return f"### {name}\n\n{_first(inspect.getdoc(member))}\n\n"
    if inspect.isclass(member) and issubclass(member, BaseModel):
        about = "Its keys: [Configuration](configuration.md)."
        return f"### {name}\n\n{_first(inspect.getdoc(member))} {about}\n\n"
    if not callable(member):
        return f"### {name}\n\n`{type(member).__name__}`\n\n"
    parts = [f"### {name}\n\n", _signature(name, member), _docstring(_own_doc(member))]
    if inspect.isclass(member):
        for attribute, method in _methods(member):
            parts += [
                f"#### {name}.{attribute}\n\n",
                _signature(attribute, method),
                _docstring(inspect.getdoc(method) or ""),
            ]
    return "".join(parts)


def _own_doc(member: Any) -> str:
    """Return the docstring; empty for the one that a dataclass makes of its signature."""
    text = inspect.getdoc(member) or ""
    return "" if inspect.isclass(member) and text.startswith(f"{member.__name__}(") else text


def _methods(owner: type) -> list[tuple[str, Any]]:
    """Return the public methods that the class or its bases in this package define."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("hirag_dist"):
            for name, value in vars(base).items():
                function = getattr(value, "__func__", value)
                if not name.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
                    found[name] = function
    return list(found.items())


def _signature(name: str, member: Any) -> str:
    if isinstance(member, property):
        return f"```python\n{name}  # property\n```\n\n"
    try:
        parameters = inspect.signature(member)
    except (TypeError, ValueError):
        return ""
    shown = [_shown(parameter) for parameter in parameters.parameters.values() if parameter.name != "self"]
    returned = parameters.return_annotation
    if inspect.isclass(member):
        returned = inspect.Signature.empty
    elif isinstance(returned, str):
        returned = _Text(returned)
    text = str(parameters.replace(parameters=shown, return_annotation=returned)).replace("hirag_dist.", "")
    if len(name + text) > 100:
        text = re.sub(
            r"^\((.*)\)", lambda match: "(\n    " + ",\n    ".join(_split(match[1])) + ",\n)", text, flags=re.DOTALL
        )
    prefix = "async def " if inspect.iscoroutinefunction(member) else "class " if inspect.isclass(member) else "def "
    return f"```python\n{prefix}{name}{text}\n```\n\n"


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose annotation and default have the same form in every run."""
    if isinstance(parameter.annotation, str):
        parameter = parameter.replace(annotation=_Text(parameter.annotation))
    default = repr(parameter.default)
    if parameter.default is not parameter.empty and (" at 0x" in default or len(default) > 60):
        parameter = parameter.replace(default=_Text("..."))
    return parameter


class _Text:
    """A text that is its own representation."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _split(text: str) -> list[str]:
    """Return the parameters of a signature: the text cut at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]


def _first(text: str | None) -> str:
    return (text or "").split("\n\n")[0]


def _docstring(text: str) -> str:
    """Return Markdown of a Google-style docstring."""
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found[1]
            lines += [f"**{section}**", ""]
        elif (
            section
            and line.startswith("    ")
            and not line.startswith("     ")
            and section not in ("Returns", "Yields", "Example", "Examples")
        ):
            lines.append(re.sub(r"^    \*{0,2}([\w.]+)( \([^)]*\))?:", r"- `\1`\2:", line))
        elif section and line.startswith("        ") and section not in ("Example", "Examples"):
            lines.append("  " + line.strip())
        elif section in ("Example", "Examples"):
            lines.append(line)
        else:
            section = section if line.startswith("    ") or not line else ""
            lines.append(line.strip() if section else line)
    return _fenced("\n".join(lines).strip()) + "\n\n" if text else ""


def _fenced(text: str) -> str:
    """Put doctest blocks into fences."""
    return re.sub(
        r"(?m)((?:^ *>>> .*\n?)(?:^(?! *$).*\n?)*)", lambda match: f"```python\n{match[1].rstrip()}\n```\n", text
    )
