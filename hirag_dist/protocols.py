"""Ports around the algorithms. Each has several implementations and one contract test suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import (
    AccessFilter,
    Assignment,
    ChatReply,
    ChatRequest,
    CsrGraph,
    FloatMatrix,
    FloatVector,
    GroupSums,
    IntVector,
    LabelledCell,
    Memberships,
    Mixture,
    Moments,
    Projection,
    RateLimits,
    Rejected,
    WarmStart,
)

T = TypeVar("T")


class ChatModel(Protocol):
    """One endpoint: a request in, a reply out, or a `ModelError`."""

    name: str  # goes to stage keys and the bill: the model, not the machine

    @property
    def rate_limits(self) -> RateLimits | None:
        """The limits that the endpoint's last answer named; None where it named none."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply. Raises RateLimited, ModelUnavailable or RequestRejected."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the reply's text in pieces, and at last the whole reply with its finish reason and token counts."""

    async def close(self) -> None:
        """Close connections."""


class Embedder(Protocol):
    """Texts to vectors."""

    name: str
    dim: int

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length; an empty text gives a row of zeros."""


class Reranker(Protocol):
    """Relevance of texts to a question.

    Attributes:
        max_texts: chunks of a question that it judges, unless more are returned.
    """

    max_texts: int

    async def scores(self, question: str, texts: Sequence[str]) -> FloatVector:
        """Return (n_texts,) relevance, larger is better. Raises ModelError."""


@runtime_checkable
class Closable(Protocol):
    """An object that keeps files or connections open."""

    async def close(self) -> None:
        """Release them."""


class ChatPool(Protocol):
    """Every model of the run, behind the layers cached → retried → limited → endpoint."""

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        """Ask a model and return the parsed reply: the result of `accept`.

        `accept` raises `core.prompts.reply_parsing.MalformedReply` to refuse a reply; it is stored, counted and asked
        again as the next attempt. After the last attempt the result is a `Rejected`.
        """


class AnswerModel(ChatPool, Protocol):
    """Pool that answers questions: streams text, or returns whole replies where an answer takes several calls."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the reply's text in pieces, and at last the whole reply with its finish reason and token counts."""

    def model_name(self, request: ChatRequest) -> str:
        """Return the name of the model that answers this request."""

    async def close(self) -> None:
        """Close connections."""


class VectorIndex(Protocol):
    """Nearest rows by cosine similarity."""

    async def search(
        self,
        vector: NDArray[np.float32],
        limit: int,
        max_layer: int | None = None,
        access: AccessFilter | None = None,
        is_by_row: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return (rows, similarities), best first, ties by row.

        A waiting caller may be cancelled, for example by its deadline; the searches of other callers continue.

        Args:
            vector: (dim,) of unit length.
            limit: rows at most.
            max_layer: rows of layers above it are left out.
            access: rows beyond it are left out, and those seen in part are as near as the nearest part in reach.
            is_by_row: whether the patterns of `access` are rows, as under a filter by metadata.
        """

    def prepare(self, access: AccessFilter | None = None) -> None:
        """Compile what searches for such a caller need, so that the first of them does not wait for it."""

    def close(self) -> None:
        """Release files and connections."""


CPU = "cpu"  # the name of the kernels that any worker has; those of other names need a GPU


class Kernels(Protocol):
    """The numerical work that a GPU can do. Arrays in and out are numpy's."""

    name: str

    def pca(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) float32 scores, components by falling variance."""

    def moments(self, vectors: FloatMatrix) -> Moments:
        """Return the sums that `core.clustering.pca.principal_axes` takes; those of shards add up to the layer's."""

    def project(self, vectors: FloatMatrix, projection: Projection) -> FloatMatrix:
        """Return (n, c) float32 scores of any rows on the layer's axes."""

    def kmeans(self, rows: FloatMatrix, k: int, seed: int) -> tuple[FloatMatrix, GroupSums]:
        """Return k means of n ≥ k finite rows, and the sums of the rows by their nearest mean."""

    def nearest_sums(self, rows: FloatMatrix, means: FloatMatrix) -> GroupSums:
        """Return the sums of finite rows by the nearest of the (k, d) means, the first of equally near ones."""

    def trees(self, groups: Sequence[FloatMatrix], sizes: Sequence[IntVector] | None) -> Sequence[FloatVector]:
        """Return the (n − 1, 4) merges by Ward's criterion of each group of n finite rows, as `core.clustering.ward`.

        Args:
            sizes: (n,) rows that each row stands for as their mean; None for one each.
        """

    def memberships(self, cells: Sequence[LabelledCell], threshold: float) -> Sequence[Memberships]:
        """Return each cell's memberships under a mixture that starts from its labels, in the components it keeps."""

    def assign(self, rows: FloatMatrix, fitted: Mixture, threshold: float) -> Assignment:
        """Return the components of each finite row: the best, and all whose responsibility passes the threshold.

        At a threshold of 1.0 it is the best alone.
        """

    def umap(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        """Return (n, n_components) float32 positions that keep neighbours together. Raises BackendUnavailable."""

    def leiden(
        self,
        graph: CsrGraph,
        max_size: int,
        resolution: float,
        order_keys: NDArray[np.uint64],
        warm: WarmStart | None = None,
    ) -> list[NDArray[np.int64]]:
        """Return hierarchical communities: for each level, coarsest first, (n_nodes,) labels.

        A label is −1 where the community of a node is not split further.

        Args:
            max_size: a larger community is partitioned again by itself.
            resolution: of modularity; larger, more and smaller communities.
            order_keys: (n_nodes,) nodes are visited by ascending key, where the library lets the caller choose.
            warm: communities of an earlier graph to start from; those without a change near them are kept.
        """

    def bfs(self, graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
        """Return (len(sources), n_nodes) the fewest hops from each source to each node, −1 where there is no path.

        Raises IndexError for a source that is no node. The result is the caller's to keep small: `sources` in blocks.
        """


class ResidentShards(Protocol):
    """Shards of data that stay where they were loaded, for algorithms that go round (`Executor.hold`)."""

    def each(self, step: Callable[[Any, Any, Any], T], argument: Any) -> Iterator[T]:
        """Do a step on every shard, yield the results in the order of the shards, however they came.

        Add them up as they come: no more than one has to be in memory, and a sum in this order has the same bits
        wherever the shards were. Take all of them, or close the iterator, before the next step.

        Args:
            step: (services, data of a shard, argument) → result; a plain function that workers can import. It may be
                done again on the same shard, so it must not change the data.
            argument: the same for all shards; sent once a worker.

        Raises:
            HiragError: a step failed; the others in flight have ended.
        """


class Executor(Protocol):
    """Engine that runs tasks and holds shards of data."""

    name: str

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Run tasks and yield each result as it comes, in any order.

        A failed task raises after the others in flight have finished.
        """

    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> AbstractContextManager[ResidentShards]:
        """Lend shards that stay in the workers while the block lasts, for algorithms that go round.

        Where a worker dies its shards are loaded again by others and its steps done again, so results depend neither
        on that nor on the number of workers. `map` waits for the end of the block.

        Args:
            load: (services, shard) → data, a plain function that workers can import. Together the workers need room
                for the data of all shards.
            shards: arguments of `load` that say where the data are; small, since it travels with every step.
            keep: False loads the data again for each step, where they are too large to stay.
            kernels: that steps compute with, by name: those of a GPU are for workers that have one.
        """

    def release_idle(self) -> None:
        """Release idle workers that cost while no work comes."""

    def close(self) -> None:
        """Stop what was started."""


class EventListener(Protocol):
    """Receiver of progress events (`execution.events`)."""

    def __call__(self, event: object) -> None:
        """Take one event."""
