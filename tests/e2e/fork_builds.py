"""A process that reads jobs (a JSON line each), forks a child for each, and says how the child ended.

A job with `argv` is a command line, run as `python -m hirag_dist` runs it; any other is a build. A building child kills
itself with SIGKILL where its job says so: after its n-th durable write, or at an event of a stage. So the same place is
hit every time, which a killer from outside cannot promise.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any

import numpy as np
import typer

from hirag_dist.cli import _command_line
from hirag_dist.cli import main as command_line
from hirag_dist.composition.build import make_executor, resolve
from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.config.model import Config
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.events import StageFinished, StageStarted, TaskFinished
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.pipeline import Build
from hirag_dist.llm.endpoints import onnx_models
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.store import Store
from hirag_dist.types import CsrGraph
from tests.mortal_store import MortalStore

EVENTS: dict[type, str] = {StageStarted: "started", TaskFinished: "task", StageFinished: "finished"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def build(
    inputs: list[str],
    index: str,
    config: dict[str, Any],
    at_write: int | None = None,
    at_event: tuple[str, str] | None = None,
    fresh: bool = False,
    retry: bool = False,
) -> dict[str, Any]:
    """Build, inline.

    Args:
        at_write: die after this change of the index.
        at_event: (started, task or finished; label of a stage): die at the first such event.
    """
    told: list[tuple[str, str, bool]] = []

    def listen(event: Any) -> None:
        kind = EVENTS.get(type(event))
        if kind is None:
            return
        told.append((kind, event.label, getattr(event, "reused", False)))
        if at_event is not None and (kind, event.label) == tuple(at_event):
            die()

    store = MortalStore(index, at_write, die)
    made = Config.model_validate(config | {"execution": {"executor": "inline"}})
    with BuildLock(Store(index)):
        executor = make_executor(made, store, None, None)
        try:
            runner = StageRunner(store, executor, (listen,), made.max_reject_ratio, fresh, retry)
            context = BuildContext(runner, made, load_prompts(None), resolve(made))
            result = Build(context, base_id=None if fresh or retry else "").index(inputs)
        finally:
            executor.close()
    return {
        "snapshot": result.manifest.snapshot_id,
        "stages_run": result.stages_run,
        "changed": result.changed,
        "writes": len(store.changed),
        "told": told,
        "sent": sum(use.calls - use.ledger_hits for use in runner.bill.sent.uses.values()),
    }


def command(argv: list[str], cwd: str, out: str, err: str, environ: dict[str, str]) -> None:
    """Become the command: exits as it exits.

    Args:
        environ: what it has on top of this process's environment.
    """
    os.chdir(cwd)
    os.environ.update(environ)
    for number, file, how in ((0, os.devnull, "rb"), (1, out, "wb"), (2, err, "wb")):
        with open(file, how) as stream:
            os.dup2(stream.fileno(), number)
    sys.argv = ["hirag-dist", *argv]
    command_line.main()


def main() -> None:
    onnx_models.is_installed = lambda: False  # a new index is built with `hashing`, as in the process of the tests
    for name in _command_line.COMMANDS:
        _command_line.add_command(typer.Typer(), name)  # imports all that the commands need
    counter(Config().tokenizer)("read once, by the parent of all builds")
    pair = CsrGraph(np.array([0, 1, 2]), np.array([1, 0], np.int32), np.ones(2, np.float32), np.zeros(2, np.int32))
    CpuKernels().leiden(pair, 2, 1.0, np.zeros(2, np.uint64))  # compiled once too
    gc.collect()
    gc.freeze()  # else every child goes through all of it, and copies its pages, when it ends
    for line in sys.stdin:
        reading, writing = os.pipe()
        own = os.fork()
        if own == 0:
            os.close(reading)
            job = json.loads(line)
            if "argv" in job:
                os.close(writing)
                return command(**job)
            os.write(writing, json.dumps(build(**job)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            said = stream.read()
        _, status = os.waitpid(own, 0)
        answer = json.loads(said) if said else {}
        if os.WIFSIGNALED(status):
            answer["signal"] = os.WTERMSIG(status)
        elif os.WEXITSTATUS(status):
            answer["code"] = os.WEXITSTATUS(status)
        print(json.dumps(answer), flush=True)
    return None


if __name__ == "__main__":
    main()
