"""Builds of toy texts, with a model that is a function: every word is an entity, neighbours are related."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hirag_dist.composition.models import CHAT_ROLES
from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import DONE, Prompts
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.context import BuildContext, ResolvedModels
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.protocols import Embedder
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.spill import spill_file
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest
from tests.scripted_model import ScriptedModel

Script = Callable[[ChatRequest], ChatReply | str | None]
Kept = tuple[Path, BuildResult, ScriptedModel, list[object]]
LAYER_0_ALONE: dict[str, Any] = {"max_layers": 0, "communities": {"report_share": 0}}  # extraction alone asks a model
LONG = " ".join(f"word{letter}{other}" for letter in "abcdef" for other in "abcdefgh")  # 48 entities


def task_of(request: ChatRequest) -> str:
    return request.messages[0].content.splitlines()[0].removeprefix("Task: ")


def between(request: ChatRequest, tag: str) -> str:
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", request.messages[1].content, re.DOTALL)
    assert found
    return found.group(1)


def extract(request: ChatRequest, related: bool = True) -> str:
    words = between(request, "text").split()
    lines = [f"entity<|>{word}<|>concept<|>{word} is a word." for word in words]
    if related:
        pairs = pairwise(words)
        lines += [f"relation<|>{a}<|>{b}<|>{a} stands before {b}.<|>3" for a, b in pairs if a != b]
    return "\n".join([*lines, DONE])


def members(request: ChatRequest) -> list[str]:
    return [line.split(". ", 1)[1].split(" (")[0] for line in between(request, "members").splitlines()]


def summarise(request: ChatRequest, covers: bool = True) -> str:
    names = members(request)
    title = f"those like {names[0]}"
    lines = [f"entity<|>{title}<|>concept<|>What {', '.join(names)} share."]
    if covers:
        lines += [f"relation<|>{at}<|>{title}<|>It is one of them.<|>5" for at in range(1, len(names) + 1)]
    return "\n".join([*lines, DONE])


def obey(request: ChatRequest) -> str:
    task = task_of(request)
    if task == "extract-graph":
        return extract(request)
    if task == "summarise":
        return summarise(request)
    if task == "describe":
        return "One description."
    assert task == "report"
    finding = {"summary": "They are words.", "explanation": "All of them.", "references": ["E1", "R99"]}
    return json.dumps({"title": "Words", "summary": "A row of words.", "rating": 4, "findings": [finding]})


def claim(request: ChatRequest) -> str | None:
    """Each text's first word is claimed to lead its second, and no one is claimed to lead alpha."""
    if task_of(request) != "extract-claims":
        return None
    first, second, *_ = between(request, "text").split()
    told = f"order<|>TRUE<|>NONE<|>NONE<|>It stands first.<|>{first} {second}"
    lines = [f"claim<|>{first}<|>{second}<|>{told}", f"claim<|>Nobody<|>alpha<|>{told}"]
    return "\n".join([*lines, DONE])


def obedient(request: ChatRequest) -> None:
    """Leave every reply to `obey`."""


class FirstBuilds:
    """Indexes built from nothing by a model without a state: an equal build is a copy, which takes a tenth."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._kept: dict[str, Kept] = {}

    def key(self, inputs: list[str], facts: object) -> str:
        """Return what decides a build: the files and everything else that is given."""
        places = [Path(place) for place in inputs]
        paths = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*.*")))]
        return repr(([(path.name, path.read_bytes()) for path in paths], facts))

    def keep(self, key: str, index: Path, result: BuildResult, model: ScriptedModel, events: list[object]) -> None:
        """Copy an index."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="hirag-first-builds-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        folder = self._folder / str(len(self._kept))
        shutil.copytree(index, folder)
        self._kept[key] = (folder, result, model, events)

    def take(self, key: str, index: Path) -> Kept | None:
        """Make an index that is a copy, if there was an equal build."""
        kept = self._kept.get(key)
        if kept is not None:
            shutil.copytree(kept[0], index)
        return kept


FIRST_BUILDS = FirstBuilds()


@dataclass
class Bench:
    """Builds in a folder of its own."""

    folder: Path
    model: ScriptedModel | None = None
    events: list[object] = field(default_factory=list)
    make_executor: Callable[[Callable[[], Services]], InlineExecutor] = InlineExecutor
    make_embedder: Callable[[int], Embedder] = HashingEmbedder
    force_current: bool = False  # also after a rollback
    counts_tokens: bool = False  # at four characters each; otherwise replies use none
    takes_copies: bool = True  # False where a test alters what builds: its index must not be another's
    dim: int = 32  # of the vectors: another one is another embedder
    base_id: str | None = None  # of an update; None: every build is from nothing; "": the current snapshot

    @property
    def store(self) -> Store:
        return Store(str(self.folder / "index"))

    def build(self, texts: list[str], script: Script = obedient, **keys: Any) -> Snapshot:
        """Build an index of texts; where the script says nothing, the model obeys. Keywords: those of `run_work`."""
        self.result = self.run(texts, script, **keys)
        return open_snapshot(self.store, self.result.manifest.snapshot_id, full_check=True)

    def run(self, texts: list[str], script: Script, **keys: Any) -> BuildResult:
        shutil.rmtree(self.folder / "corpus", ignore_errors=True)
        (self.folder / "corpus").mkdir(parents=True)
        for at, text in enumerate(texts):
            (self.folder / "corpus" / f"{at}.txt").write_text(text)
        return self.run_on([str(self.folder / "corpus")], script, **keys)

    def run_on(self, inputs: list[str], script: Script = obedient, **keys: Any) -> BuildResult:
        """Build an index of INPUT."""
        index = self.folder / "index"
        is_plain = "<" not in script.__qualname__  # no closure: what it says depends on the request alone
        is_plain &= self.takes_copies and self.make_executor is InlineExecutor
        is_first = is_plain and not (keys.get("retry") or keys.get("fresh") or index.exists())
        facts = (
            script.__module__,
            script.__qualname__,
            keys,
            self.counts_tokens,
            self.force_current,
            self.base_id or None,  # without an index there is no current snapshot
            self.dim,
        )
        key = FIRST_BUILDS.key(inputs, facts) if is_first else ""
        if is_first and (kept := FIRST_BUILDS.take(key, index)):
            _, result, self.model, events = kept
            self.events = [*events]
            return result
        result = self.run_work(lambda build: build.index(inputs), script, **keys)
        if is_first and self.model is not None:
            FIRST_BUILDS.keep(key, index, result, self.model, [*self.events])
        return result

    def run_work(
        self,
        work: Callable[[Build], BuildResult],
        script: Script = obedient,
        *,
        retry: bool = False,
        fresh: bool = False,
        **keys: Any,
    ) -> BuildResult:
        """Do something with a build.

        Args:
            keys: of the configuration.
        """
        plain = {"chunking": "none", "clustering": {"target_size": 4}, "max_reject_ratio": 1}
        plain["pack_tokens"] = 0  # the scripted model answers one unit at a time
        config = Config.model_validate(plain | keys)

        def reply(request: ChatRequest) -> ChatReply | str:
            said = script(request)
            found = obey(request) if said is None else said
            if not self.counts_tokens or isinstance(found, ChatReply):
                return found
            sizes = (len(request.messages[1].content) // 4, len(found) // 4)
            return ChatReply(found, input_tokens=sizes[0], output_tokens=sizes[1])

        self.model = model = ScriptedModel(reply)
        store = self.store
        embedder = self.make_embedder(self.dim)
        count = counter(config.tokenizer)

        def services() -> Services:
            roles = {role: [PricedModel("endpoint", model)] for role in CHAT_ROLES}
            limiter = RateLimiter(QuotaCoordinator({"endpoint": EndpointLimits(None, None, 8)}))
            caller = RetriedCalls(limiter, RetryPolicy(2, 0.0))
            pool = EndpointPool(roles, Ledger(store), caller, count)
            return Services(
                pool,
                embedder,
                lambda name: CpuKernels(),
                encoding(config.tokenizer),
                count,
                close=pool.close,
                bind=lambda context: (pool.with_context(context), embedder),
            )

        resolved = ResolvedModels(
            structured=dict.fromkeys(CHAT_ROLES, False),
            models=dict.fromkeys(CHAT_ROLES, (model.name,)),
            embedder=embedder.name,
            dim=embedder.dim,
            kernels="cpu",
        )
        executor = self.make_executor(services)
        try:
            self.events = []
            runner = StageRunner(store, executor, (self.events.append,), config.max_reject_ratio, fresh, retry)
            context = BuildContext(runner, config, Prompts(), resolved)
            with spill_file() as spill:
                return work(Build(context, force_current=self.force_current, base_id=self.base_id, spill=spill))
        finally:
            executor.close()

    def asked(self, task: str) -> list[ChatRequest]:
        return [request for request in self.model.requests if task_of(request) == task]


def rows(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    return list(snapshot.table(name).to_pylist())
