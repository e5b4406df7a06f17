"""Stand-ins for texts of a model: by the rules of the built-in model, from the same material, without a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.errors import RequestRejected
from hirag_dist.indexing.stages.packed_calls import PackableUnit
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply, Rejected

T = TypeVar("T")


def stand_ins(units: Sequence[PackableUnit[T]]) -> list[T | Rejected]:
    """Return the parsed stand-in of each unit's reply; `Rejected` where the rules give none that can be read."""
    found: list[T | Rejected] = []
    for unit in units:
        request = unit.request
        try:
            found.append(unit.parse(ChatReply(reply_to(request.messages, request.form))))
        except (MalformedReply, RequestRejected) as error:
            found.append(Rejected(request.unit, str(error), 1, request.text, ""))
    return found
