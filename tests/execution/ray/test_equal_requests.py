"""Equal requests of tasks on several workers of a real cluster, at an endpoint whose replies differ each time."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import ray
from ray import cloudpickle
from ray._private import ray_constants
from ray.cluster_utils import Cluster

from hirag_dist.composition.build import make_executor, make_services
from hirag_dist.composition.models import make_coordinator
from hirag_dist.config.model import Config
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, gather_calls
from hirag_dist.protocols import Executor
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message
from tests.scripted_endpoint import Asked, Endpoint

TEXTS = pa.schema([pa.field("text", pa.string(), nullable=False)])
N_DISTINCT = 20
KEY = "sk-3f9d1c7ab24e"
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


@dataclass(frozen=True)
class AskTexts:
    """Texts → the replies to them. Kills its process once, after the calls, if `fatal` is there."""

    name: ClassVar[str] = "ask_texts"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(5)

    class Inputs(TableSet):
        texts: Annotated[Dataset, TEXTS]

    class Outputs(TableSet):
        replies: Annotated[Dataset, TEXTS]

    models: tuple[str, ...]
    fatal: str = ""

    async def run(self, tables: Tables, services: Services) -> Tables:
        texts = tables["texts"]["text"].to_pylist()
        asked = [ChatRequest("extract", (Message("user", text),), unit="u") for text in texts]
        replies = await gather_calls(services.chat.ask(request, _text) for request in asked)
        if self.fatal:
            with suppress(FileNotFoundError):
                Path(self.fatal).unlink()  # by one of the tasks
                os.kill(os.getpid(), signal.SIGKILL)
        return {"replies": pa.table({"text": [str(reply) for reply in replies]}, TEXTS)}


def _text(reply: ChatReply) -> str:
    return reply.text


def run(executor: Executor, store: Store, fatal: str = "") -> list[str]:
    """Run the stage on texts of which each occurs in five tasks, one after the other; return digests."""
    texts = [f"text {5 * group + at}" for group in range(N_DISTINCT // 5) for _ in range(5) for at in range(5)]
    table = pa.table({"text": texts}, TEXTS)
    runner = StageRunner(store, executor, (), 0.0)
    try:
        made = runner.run(AskTexts(("varying",), fatal), "ask", texts=runner.datasets.put("texts", table))
    finally:
        executor.close()
    return [part.digest for part in made.replies.parts]


def stored_by_ray() -> bytes:
    """Return the content of Ray's control service: its key-value store, the actors and the jobs."""
    client = ray._private.worker.global_worker.gcs_client
    spaces = {value for name, value in vars(ray_constants).items() if name.startswith("KV_NAMESPACE_")}
    found = [repr((ray._private.state.actors(), ray._private.state.jobs())).encode()]
    for space in (None, b"fun", *spaces):
        found += [client.internal_kv_get(key, space) or b"" for key in client.internal_kv_keys(b"", space)]
    assert b"QuotaActor" in b"".join(found), "the classes of actors are there"
    return b"".join(found)


def test_equal_requests_of_workers_are_sent_once_and_the_ledger_gives_the_same(
    ray_cluster: Cluster, tmp_path: Path
) -> None:
    numbers = count()
    chat: Counter[str] = Counter()

    def reply(asked: Asked) -> str:
        text = str(asked.body["messages"][0]["content"])
        chat[text] += 1
        time.sleep(0.2)  # the other tasks of the text begin meanwhile
        return f"{text}, reply {next(numbers)}"

    endpoint = Endpoint(reply)
    settings: dict[str, Any] = {"base_url": endpoint.url, "model": "varying", "output": "delimited", "api_key": KEY}
    config = Config.model_validate(
        {
            "llm": {"endpoints": {"varying": settings}, "roles": {"extract": "varying"}},
            "execution": {"executor": "inline"},
        }
    )
    fatal = tmp_path / "fatal"
    fatal.touch()
    store = Store(str(tmp_path / "first"))
    services = partial(make_services, config, store, False)
    try:
        on_ray = RayExecutor(services, partial(make_coordinator, config), workers=2, in_flight=lambda n: 2)
        made = run(on_ray, store, str(fatal))
        assert not fatal.exists()
        assert KEY.encode() not in stored_by_ray()
        assert len(chat) == N_DISTINCT
        assert chat.total() <= N_DISTINCT + 5, "the killed worker's other task had five in flight, at most"
        shutil.copytree(tmp_path / "first" / "ledger", tmp_path / "again" / "ledger")
        again = Store(str(tmp_path / "again"))
        n_sent = chat.total()
        assert run(make_executor(config, again, None, None), again, str(fatal)) == made
        assert chat.total() == n_sent
    finally:
        endpoint.close()
