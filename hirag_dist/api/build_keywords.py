"""Keyword arguments that all builds from Python share, and the call of a build outside event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from hirag_dist.api.config import ConfigLike, as_config
from hirag_dist.application.build import BuildOptions
from hirag_dist.application.index_result import IndexResult
from hirag_dist.config.model import Config
from hirag_dist.protocols import EventListener

T = TypeVar("T")
Inputs = str | Path | Iterable[str | Path]
Run = Callable[[Config, BuildOptions, tuple[EventListener, ...]], IndexResult]


class BuildKeywords(TypedDict, total=False):
    """Keyword arguments of a build; `build_index` describes them."""

    config: ConfigLike
    max_usd: float | None
    max_tokens: int | None
    fresh: bool
    require_complete: bool
    wait_s: float
    make_current: bool
    progress: EventListener | None


def run_with(keywords: BuildKeywords, run: Run, **options: Any) -> IndexResult:
    """Run a build with the configuration, options and listeners that keyword arguments give.

    Args:
        keywords: of the caller.
        run: builds.
        options: further fields of `BuildOptions`.

    Raises:
        TypeError: a keyword has no such name.
    """
    for name in keywords:
        if name not in BuildKeywords.__annotations__:
            near = get_close_matches(name, BuildKeywords.__annotations__, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(BuildKeywords.__annotations__)}"
            raise TypeError(f"a build has no option {name!r}; {hint}")
    build = BuildOptions(
        max_usd=keywords.get("max_usd"),
        max_tokens=keywords.get("max_tokens"),
        fresh=keywords.get("fresh", False),
        require_complete=keywords.get("require_complete", False),
        wait_s=keywords.get("wait_s", 0.0),
        force_current=keywords.get("make_current", False),
        **options,
    )
    progress = keywords.get("progress")
    listeners = () if progress is None else (progress,)
    return outside_event_loops(lambda: run(as_config(keywords.get("config")), build, listeners))


def input_names(inputs: Inputs) -> list[str]:
    """Return INPUT arguments as strings."""
    return [str(inputs)] if isinstance(inputs, str | Path) else [str(item) for item in inputs]


def outside_event_loops(work: Callable[[], T]) -> T:
    """Return the result of work that runs event loops of its own; in a thread where one is running, as in notebooks."""
    if not _in_event_loop():
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="hirag-dist-build") as thread:
        return thread.submit(work).result()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
