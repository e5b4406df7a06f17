"""Packed tasks: each unit is done exactly as it would be alone, and the replies are put into one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from hirag_dist.core.prompts.templates import BAR, DONE
from hirag_dist.llm.rule_based.requests import ParsedRequest

_UNIT = re.compile(r"<unit-(\d+)>\n(.*?)\n</unit-\1>", re.DOTALL)


def each_unit(alone: Callable[[ParsedRequest], str]) -> Callable[[ParsedRequest], str]:
    """Return the function that replies to a packed task, from the one that replies to one unit."""

    def packed(ask: ParsedRequest) -> str:
        form = None if ask.form is None else ask.form.removesuffix("-pack")
        task = ask.task.removesuffix("-pack")
        replies = [
            (int(unit.group(1)), alone(replace(ask, task=task, form=form, body=unit.group(2))))
            for unit in _UNIT.finditer(ask.body)
        ]
        if form is not None:
            units = [{"unit": number, **json.loads(reply)} for number, reply in replies]
            return json.dumps({"units": units}, ensure_ascii=False)
        parts = [f"unit{BAR}{number}\n{reply.removesuffix(DONE).rstrip() or 'none'}" for number, reply in replies]
        return "\n".join([*parts, DONE])

    return packed
