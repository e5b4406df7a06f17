"""Indexes that leak if they can: some documents are hidden, and the model repeats its whole input.

Documents with the label `secret` hold words of their own, which all begin alike, and speak of public words as well.
What the model says of a word names the document's first word, and summaries and reports repeat what they were made
from.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.prompts.templates import DONE, Prompts
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.engine_resources import EngineResources
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Answer, ChatReply, ChatRequest, Retrieval
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert import answer_to_proto, retrieval_fields
from hirag_dist.wire.records import message_of
from tests.labelled_builds import build
from tests.scripted_model import ScriptedModel
from tests.toy_builds import Bench, between, members, task_of

T = TypeVar("T")
HIDDEN = "zqx"  # hidden words begin so
Documents = list[tuple[str, list[str]]]


def corpus(seed: int) -> Documents:
    """Thirty documents of ten words, a third of them hidden, which speak of public words too."""
    choose = random.Random(seed)
    public = [f"word{first}{second}" for first in "abcde" for second in "abcdefgh"]
    secret = [f"{HIDDEN}{first}{second}" for first in "abc" for second in "abcdef"]
    documents: Documents = []
    for number in range(30):
        if number % 3:
            documents.append((" ".join(choose.sample(public, 10)), []))
        else:
            own = choose.sample(secret, 5)
            documents.append((" ".join([own[0], *choose.sample(public, 5), *own[1:]]), ["secret"]))
    return documents


def topics(seed: int) -> Documents:
    """Six documents on each of five topics, of the same eight words in other orders; two topics are hidden."""
    choose = random.Random(seed)
    documents: Documents = []
    for topic in ["worda", "wordb", "wordc", f"{HIDDEN}a", f"{HIDDEN}b"]:
        words = [topic + letter for letter in "abcdefgh"]
        labels = ["secret"] if topic.startswith(HIDDEN) else []
        documents += [(" ".join(choose.sample(words, 8)), labels) for _ in range(6)]
    return documents


def script(request: ChatRequest) -> str | None:
    task = task_of(request)
    if task == "extract-graph":
        words = between(request, "text").split()
        lines = [f"entity<|>{word}<|>concept<|>{word} as {words[0]} tells it." for word in words]
        lines += [
            f"relation<|>{a}<|>{b}<|>{a} stands before {b}, says {words[0]}.<|>{1 + len(set(a + b)) % 5}"
            for a, b in pairwise(words)
        ]
        return "\n".join([*lines, DONE])
    if task == "summarise":
        names, text = members(request), " ".join(between(request, "members").split())
        lines = [f"entity<|>those like {names[0]}<|>concept<|>{text}"]
        lines += [f"relation<|>{at}<|>those like {names[0]}<|>One of {names}.<|>5" for at in range(1, len(names) + 1)]
        return "\n".join([*lines, DONE])
    if task == "report":
        told = " ".join(request.messages[1].content.split())
        return json.dumps({"title": told[:200], "summary": told, "rating": 1 + len(told) % 9, "findings": []})
    return None


class Echo:
    """An answering model that repeats its whole input, and cites it."""

    def __init__(self) -> None:
        self.model = ScriptedModel(
            lambda request: f"{request.messages[-1].content} [E1] [S1] [R1] [C1]", piece_chars=500
        )
        self.stream = self.model.stream
        self.close = self.model.close

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T:
        """A point that says all that a part holds, and cites every record of it."""
        told = request.messages[-1].content
        refs = "".join(f"[{ref}]" for ref in re.findall(r"^\[([CS]\d+)\]", told, re.MULTILINE))
        return accept(ChatReply(json.dumps({"points": [{"text": f"{told} {refs}", "helpfulness": 50}]})))

    def model_name(self, request: ChatRequest) -> str:
        return "echo"


def engine_of(snapshot: Snapshot, **keys: Any) -> QueryEngine:
    config = RetrievalConfig(context_tokens=100_000)
    embedder = HashingEmbedder(32, 0)
    vectors = MemoryVectors(snapshot)
    resources = EngineResources(snapshot, vectors, embedder, Echo(), Prompts(), lambda text: len(text.split()), **keys)
    return QueryEngine(resources, config)


class Indexes:
    """Indexes of documents, each built once.

    Args:
        make: builds one.
    """

    def __init__(self, folders: pytest.TempPathFactory, make: Callable[..., Snapshot] | None = None) -> None:
        self._folders = folders
        self._make = make or partial(build, script=script)
        self._thread = ThreadPoolExecutor(1)  # a build has an event loop of its own
        self._built: dict[str, Snapshot] = {}

    def snapshot(self, documents: Sequence[Any], **keys: Any) -> Snapshot:
        key = json.dumps([documents, keys])
        if key not in self._built:
            bench = Bench(self._folders.mktemp("index"))
            self._built[key] = self._thread.submit(self._make, bench, documents, **keys).result()
        return self._built[key]

    def __call__(self, documents: Sequence[Any], *, access_rule: str = "all", **keys: Any) -> QueryEngine:
        """Return an engine."""
        return engine_of(self.snapshot(documents, **keys), access_rule=access_rule)


QUESTIONS = ["wordaa wordbb", "wordch", f"{HIDDEN}aa", f"{HIDDEN}ba wordda {HIDDEN}cc", "those like wordea"]
NOBODY: frozenset[str] = frozenset()


def public(documents: Documents) -> Documents:
    return [document for document in documents if not document[1]]


def _message(found: Retrieval) -> pb.Retrieval:
    return message_of(pb.Retrieval, **retrieval_fields(found))


def all_text(found: Retrieval | Answer) -> str:
    """Everything in a reply, as the wire and as JSON have it; without the question, which is the caller's own."""
    message = answer_to_proto(found) if isinstance(found, Answer) else _message(found)
    wire = message.SerializeToString().decode("utf-8", "replace")
    text = wire + json.dumps(asdict(found), ensure_ascii=False)
    question = found.retrieval.question if isinstance(found, Answer) else found.question
    return text.replace(question, "").casefold()
