"""Functions as commands, whose parameters may be groups of options: frozen dataclasses with an option a field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from hirag_dist.cli._output import use_json


def flattened(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function as a command: a parameter whose type is a group of options stands for the options in it.

    The help lists the options of groups last.
    """
    groups: dict[str, type[Any]] = {}
    own: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for each in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(each.annotation) and isinstance(each.annotation, type):
            groups[each.name] = each.annotation
            shared += inspect.signature(each.annotation, eval_str=True).parameters.values()
        else:
            own.append(each)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]

    def command(**given: Any) -> None:
        use_json(bool(given.get("json")))
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        function(**given)

    command.__doc__ = function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
