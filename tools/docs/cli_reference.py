"""Reference of the command line, read from the typer application."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import typer

from hirag_dist.cli import _command_line
from tools.docs.markdown import NOTICE, cell, table, wrapped

_HEAD = """# Command line

`hirag-dist COMMAND [OPTIONS]`. Progress is shown on a terminal only, logs go to stderr, and `--json` prints one JSON
object on stdout. Exit codes are listed in [Exit codes](exit-codes.md).

"""


def page() -> str:
    """Return the page `reference/cli.md`."""
    app = _command_line._new_app()
    for name in _command_line.COMMANDS:
        _command_line.add_command(app, name)
    root: Any = typer.main.get_command(app)
    parts = [NOTICE, _HEAD, "## Common options\n\n", _options(root), "\n"]
    for names, command in _commands(root, ()):
        parts.append(_command(names, command))
    return "".join(parts).rstrip() + "\n"


def _commands(group: Any, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        yield (*prefix, name), command
        if hasattr(command, "commands"):
            yield from _commands(command, (*prefix, name))


def _command(names: tuple[str, ...], command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join(["hirag-dist", *names, *(_metavar(argument) for argument in arguments)])
    if hasattr(command, "commands"):
        usage += " COMMAND"
    paragraphs = [wrapped(part.replace("\b", "")) for part in (command.help or "").split("\n\n")]
    text = "\n\n".join(part for part in paragraphs if part)
    heading = "#" * (len(names) + 1)
    rows = [(f"`{_metavar(param)}`", cell(getattr(param, "help", "") or "")) for param in arguments]
    parts = [f"{heading} {' '.join(names)}\n", f"```\n{usage} [OPTIONS]\n```\n", f"{text}\n"]
    parts += [table(("argument", "meaning"), rows), _options(command)]
    return "\n".join(part for part in parts if part.strip()) + "\n"


def _options(command: Any) -> str:
    rows = []
    for param in command.params:
        if param.param_type_name != "option" or param.hidden or param.name == "help":
            continue
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
        value = "" if param.is_flag else f"`{_metavar(param)}`"
        rows.append((names, value, _default(param), cell(param.help or "")))
    return table(("option", "value", "default", "meaning"), rows)


def _metavar(param: Any) -> str:
    """Return the placeholder of a value: the one given, the choices, or the name of the type."""
    if param.metavar:
        return cell(str(param.metavar))
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, Enum):
            return ", ".join(str(choice.value) for choice in part)
        if get_origin(part) is Literal:
            return ", ".join(map(str, get_args(part)))
        if part in (int, float):
            return "INTEGER" if part is int else "NUMBER"
    return str(param.name).upper() if param.param_type_name == "argument" else "TEXT"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    default = param.default
    if default is None or callable(default) or default in ((), [], "") or isinstance(default, bool):
        return ""
    return f"`{cell(','.join(map(str, default)) if isinstance(default, list | tuple) else str(default))}`"
