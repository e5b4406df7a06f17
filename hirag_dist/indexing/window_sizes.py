"""What the models of a build read, cut to their context windows: the sizes of a configuration, made smaller."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from hirag_dist.config.model import META_TYPES as USUAL_META_TYPES
from hirag_dist.config.model import Config
from hirag_dist.core.entities.claims import CLAIM_TASK, claims_request
from hirag_dist.core.prompts import reply_limits as core
from hirag_dist.core.prompts.templates import (
    PACKED,
    Prompts,
    describe_request,
    extraction_request,
    meta_types_request,
    report_request,
    summary_request,
)
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import ConfigError
from hirag_dist.types import ChatRequest

logger = logging.getLogger(__name__)
_MIN_CHUNK = 64  # tokens; in less there is no relation to find
_MEMBER_TOKENS = 52  # of a cluster's member, at least: number, name, type and a short description
_MIN_PACK = 1000  # tokens of units that share a call; below, each unit has its own
_REPLY_OF_PACK = {"summary": 0.5, "report": 1.0}  # tokens of the reply for each token of the units
_WRITTEN = {  # task → tokens of the reply for each token of the chunk: of short chunks, in which more is named
    "extract-graph": 2.0,
    "extract-entities": 1.2,
    "extract-relations": 1.2,
    CLAIM_TASK: 1.2,
}
_SHOWN = {"extract-relations": 0.3, CLAIM_TASK: 0.1}  # tokens of entities' names for each token of the chunk
_SIZES = (
    "chunk_tokens",
    "chunk_overlap_tokens",
    "description_tokens",
    "pack_tokens",
    "clustering.target_size",
    "communities.report_tokens",
)
_AGAIN_TOKENS = 40  # of the question for what was missed


def fit_to_windows(config: Config, windows: Mapping[str, int], prompts: Prompts) -> Config:
    """Return the configuration with no size larger than the models' context windows allow.

    Args:
        windows: Role → tokens of the smallest window of its models; a role without one is not cut.

    Raises:
        ConfigError: a window is too small for the instructions of a task.
    """
    fitted = config
    for name, value in chain.from_iterable(
        sizes(config, windows, prompts).items() for sizes in (_extract_sizes, _summary_sizes, _report_sizes)
    ):
        *sections, key = name.split(".")
        section: Any = fitted
        for part in sections:
            section = getattr(section, part)
        before = getattr(section, key)
        if value >= before:
            continue
        changed = section.model_copy(update={key: value})
        fitted = changed if not sections else fitted.model_copy(update={sections[0]: changed})
    return fitted


def size_changes(before: Config, after: Config) -> list[str]:
    """Return the sizes that differ, such as "chunk_tokens 1,200 → 193"."""
    values = ((name, attrgetter(name)(before), attrgetter(name)(after)) for name in _SIZES)
    return [f"{name} {old:,} → {new:,}" for name, old, new in values if old != new]


def member_tokens(window: int, prompts: Prompts, meta_types: Sequence[str], tokenizer: str) -> int:
    """Return the tokens that the members of a cluster may take in the prompt of its summary."""
    return _room(window, summary_request([], prompts, meta_types, None), core.SUMMARY, tokenizer)


def described_tokens(window: int, prompts: Prompts, tokenizer: str) -> int:
    """Return the tokens of descriptions of which one call makes one."""
    return _room(window, describe_request("", "", [], prompts, 1000), core.DESCRIPTION, tokenizer)


def excerpt_tokens(window: int, prompts: Prompts, tokenizer: str) -> int:
    """Return the tokens of the excerpts from which meta types are proposed."""
    return _room(window, meta_types_request([], prompts), core.META_TYPES, tokenizer)


def _room(window: int, request: ChatRequest, reply: core.ReplyShare, tokenizer: str) -> int:
    """Return the tokens that a window leaves for material, beside the instructions of a request and the reply."""
    instructions = counter(tokenizer)(request.messages[0].content)
    return max(core.prompt_room(window, instructions, core.reply_tokens(window, reply)), 1)


def _extract_sizes(config: Config, windows: Mapping[str, int], prompts: Prompts) -> dict[str, int]:
    window = windows.get("extract")
    tasks = _extract_tasks(config)
    if window is None or not tasks:
        return {}
    count = counter(config.tokenizer)
    rooms = []
    for task in tasks:
        if task == CLAIM_TASK:
            request = claims_request("", [], prompts, None)
        else:
            request = extraction_request(task, "", prompts, config.entity_types, None)
        rounds = 0 if task == CLAIM_TASK else config.gleaning_rounds
        instructions = count(request.messages[0].content) + _AGAIN_TOKENS * rounds
        rooms.append(core.text_room(window, instructions, _WRITTEN[task] * (1 + rounds), _SHOWN.get(task, 0.0)))
    size = min(rooms)
    if size < _MIN_CHUNK:
        raise ConfigError(
            f"the context window of the extract model, {window:,} tokens, has room for {max(size, 0)} tokens of text "
            "beside the instructions and the reply: serve the model with a larger window, such as "
            "`llama-server -c 4096`, or take another model for llm.roles.extract"
        )
    if config.chunking == "none":
        logger.warning("chunking: none takes chunks as they are: one of more than %d tokens may not fit", size)
        return {}
    overlap = config.chunk_overlap_tokens * min(size, config.chunk_tokens) // config.chunk_tokens
    return {"chunk_tokens": size, "chunk_overlap_tokens": overlap}


def _extract_tasks(config: Config) -> list[str]:
    """Return the tasks in which the extract model reads chunks."""
    tasks = [CLAIM_TASK] if config.claims else []
    if config.extraction.method == "nlp":
        return tasks
    joint = config.extraction.calls == "joint"
    return [*(["extract-graph"] if joint else ["extract-entities", "extract-relations"]), *tasks]


def _summary_sizes(config: Config, windows: Mapping[str, int], prompts: Prompts) -> dict[str, int]:
    window = windows.get("summarise")
    if window is None:
        return {}
    kinds = USUAL_META_TYPES if config.meta_types == "generate" else config.meta_types
    members = max(member_tokens(window, prompts, kinds, config.tokenizer) // _MEMBER_TOKENS, 2)
    packed = counter(config.tokenizer)(prompts.system(PACKED["summarise"], None, meta_types=", ".join(kinds)).content)
    return {
        "description_tokens": core.reply_tokens(window, core.DESCRIPTION),
        "clustering.target_size": max(members // 2, 2),
        "pack_tokens": _pack_tokens(window, packed, "summary"),
    }


def _report_sizes(config: Config, windows: Mapping[str, int], prompts: Prompts) -> dict[str, int]:
    window = windows.get("report")
    if window is None:
        return {}
    count = counter(config.tokenizer)
    alone = count(report_request([], [], [], prompts, None).messages[0].content)
    packed = count(prompts.system(PACKED["report"], None).content)
    room = core.prompt_room(window, alone, core.reply_tokens(window, core.REPORT))
    return {
        "communities.report_tokens": max(room - core.FRAME, 1),  # sections have tags of their own
        "pack_tokens": _pack_tokens(window, packed, "report"),
    }


def _pack_tokens(window: int, instructions: int, kind: str) -> int:
    """Return the tokens of units that may share a call; 0 where each has its own."""
    room = core.text_room(window, instructions, _REPLY_OF_PACK[kind])
    return room if room >= _MIN_PACK else 0
