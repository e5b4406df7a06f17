"""Entry point of the process that plans or makes an update for the web page: `python -m` this module.

Its task is one line of JSON on standard input, which stays open while the update is wanted: when it is closed, the
build is interrupted as by Ctrl-C. Messages are JSON lines on standard output: `progress`, and at the end `plan`,
`result` or `failed`.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from hirag_dist.application.build import BuildOptions, run_add
from hirag_dist.composition.logs import configure_logging
from hirag_dist.config.model import Config
from hirag_dist.errors import HiragError
from hirag_dist.execution.build_progress import ProgressReport
from hirag_dist.indexing.update_estimate import UpdateEstimate, estimate_update
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.usage import total_cost
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store

Send = Callable[[dict[str, Any]], None]
_SHOWN = 50  # files that cannot be read


def main() -> None:
    """Run the task of standard input."""
    task = json.loads(sys.stdin.buffer.readline())
    config, levels = pickle.loads(base64.b64decode(task["payload"]))  # only the page writes to this pipe
    configure_logging(levels, name="upload")
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no message

    def send(message: dict[str, Any]) -> None:
        messages.write(json.dumps(message) + "\n")
        messages.flush()

    threading.Thread(target=_interrupt_at_end, daemon=True).start()
    try:
        run_task(task, config, send)
    except HiragError as error:
        send({"failed": str(error)})
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def run_task(task: dict[str, Any], config: Config, send: Send) -> None:
    """Plan or make an update.

    Args:
        task: `action` (plan or add), `index`, `folder` and `max_usd`.

    Raises:
        HiragError: as `run_add`.
    """
    if task["action"] == "plan":
        snapshot = open_current(Store(task["index"]))
        made = estimate_update([task["folder"]], snapshot, config, load_prompts(config.prompts), add=True)
        send({"plan": plan_message(made)})
        return
    report = ProgressReport(lambda progress: send({"progress": progress}))
    options = BuildOptions(max_usd=task["max_usd"])
    result = run_add([task["folder"]], task["index"], config, options, (report,)).to_dict()
    kept = ("snapshot", "changed", "complete", "up_to_date", "seconds", "dead_letters", "update", "this_run")
    kept_counts = {name: result["counts"][name] for name in ("documents", "chunks", "entities", "relations", "reports")}
    send({"result": {name: result[name] for name in kept} | {"counts": kept_counts}})


def plan_message(made: UpdateEstimate) -> dict[str, Any]:
    """Return an estimate as the page shows it: the columns of `hirag-dist plan --index`.

    Raises:
        SnapshotError: the index cannot be updated.
    """
    unreadable = made.rebuild.unreadable
    return {
        "refused": made.rebuilt_because,
        "documents": asdict(made.documents),
        "documents_after": made.rebuild.documents,
        "chunks": made.chunks,
        "tokens": made.tokens,
        "unreadable": [list(one) for one in unreadable[:_SHOWN]],
        "unreadable_count": len(unreadable),
        "stages": [asdict(stage) for stage in made.stages],
        "calls": made.calls,
        "input_tokens": sum(stage.input_tokens for stage in made.stages),
        "output_tokens": sum(stage.output_tokens for stage in made.stages),
        "cost_usd": total_cost(stage.cost_usd for stage in made.stages),
        "seconds": made.seconds,
        "budget_tokens": made.budget_tokens,
    }


def _interrupt_at_end() -> None:
    """Interrupt this process when the page closes standard input, or ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
