"""Job of a package, and the interface of an adapter. Imported in every environment: standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Protocol

API_KEY = "none-needed"
CHAT_MODEL, EMBEDDING_MODEL = "gpt-4o-mini", "text-embedding-3-small"  # names that all packages know a tokenizer for
# Least cosine of what is found. Two packages default to 0.2; few of the nearest pass that in vectors of the hashing
# embedder, and who finds nothing is quick.
THRESHOLD = 0.0


@dataclass(frozen=True)
class Job:
    """One phase of one package.

    Attributes:
        adapter: name of a module of `adapters`.
        phase: "index", or on an index that is there "query".
        folder: the package's own, where its index is.
        corpus: path of JSON lines with `doc_id` and `text`: what is indexed.
        result: path that the worker's figures are written to.
        base_url: of the endpoint, with /v1.
        dim: of the endpoint's vectors.
        questions: part of a query phase → its questions: warm, alone, context, clients.
        clients: how many ask at a time in the part `clients`.
        checkout: of a package that is not installed but lies there, or empty.
    """

    adapter: str
    phase: str
    folder: str
    corpus: str
    result: str
    base_url: str
    dim: int
    questions: dict[str, list[str]]
    clients: int = 16
    checkout: str = ""

    def write(self, path: Path) -> None:
        """Write the job for `read`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Job:
        """Return a job that was written."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def documents(self) -> list[str]:
        """Return the texts of the corpus."""
        with Path(self.corpus).open(encoding="utf-8") as lines:
            return [row["text"] for row in map(json.loads, lines)]


class Adapter(Protocol):
    """A package in use, with its own defaults but for models, endpoint and folder.

    Attributes:
        retrieves: whether a context can be had without an answer.
    """

    retrieves: ClassVar[bool]

    def __init__(self, job: Job) -> None: ...

    async def index(self, documents: list[str]) -> None:
        """Build and save the index."""

    async def open(self) -> None:
        """Open the index that was saved."""

    async def sizes(self) -> dict[str, int]:
        """Return how many entities, relations, communities, reports there are; what it has none of is left out."""

    async def answer(self, question: str) -> str:
        """Return an answer."""

    async def context(self, question: str) -> str:
        """Return the context that the answering model would get."""

    async def close(self) -> None:
        """Release the resources of `open`."""
