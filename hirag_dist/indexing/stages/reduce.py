"""Vectors of a large layer → their scores on the axes of largest variance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.clustering.pca import principal_axes
from hirag_dist.errors import ConfigError
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Iterative, Services, Split, Tables, Whole
from hirag_dist.indexing.stages.embed import vector_matrix, vector_table
from hirag_dist.protocols import Kernels, ResidentShards
from hirag_dist.schemas import VECTORS
from hirag_dist.types import FloatMatrix, Moments, Projection

PROJECTION = pa.schema(  # a row a component
    [
        pa.field("axis", pa.binary(), nullable=False),  # (dim,) float32, little endian
        pa.field("shift", pa.float32(), nullable=False),
    ]
)
MIN_UMAP_ROWS = 16  # fewer are one neighbourhood
_MAX_UMAP_ROWS = 1_000_000
_MAX_ROWS = 16_384  # that are in memory at a time with all their dimensions: 100 MB at 1,536


@dataclass(frozen=True)
class FitProjection:
    """Vectors → the axes of largest variance (Eq. 7's vectors have too many dimensions for a mixture).

    One round. A worker reads a shard, gives its moments, and forgets it; they are added up in the order of shards.
    """

    name: ClassVar[str] = "fit_projection"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        vectors: Annotated[Dataset, VECTORS]

    class Outputs(TableSet):
        projection: Annotated[Dataset, PROJECTION]

    dim: int
    reduce_dims: int
    shard_rows: int
    kernels: str

    @property
    def split(self) -> Iterative:
        """By shards, which do not stay."""
        return Iterative(self.shard_rows, keep=False)

    def load(self, rows: pa.Table, first_row: int) -> FloatMatrix:
        """Return the vectors."""
        return vector_matrix(rows, self.dim)

    def iterate(self, shards: ResidentShards, kernels: Kernels, n_rows: int) -> Tables:
        """Return the projection."""
        found = principal_axes(
            reduce(add, shards.each(_moments, self.kernels)), n_axes(self.dim, self.reduce_dims, n_rows)
        )
        rows = [axis.tobytes() for axis in np.ascontiguousarray(found.axes.T, "<f4")]
        return {"projection": pa.table([pa.array(rows, pa.binary()), pa.array(found.shift)], schema=PROJECTION)}


@dataclass(frozen=True)
class ReduceVectors:
    """Vectors → scores: VECTORS of few dimensions."""

    name: ClassVar[str] = "reduce_vectors"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        vectors: Annotated[Dataset, VECTORS]
        projection: Annotated[Dataset, PROJECTION]

    class Outputs(TableSet):
        scores: Annotated[Dataset, VECTORS]

    dim: int
    shard_rows: int
    kernels: str

    @property
    def split(self) -> ByRows:
        """By shards."""
        return ByRows(self.shard_rows)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the scores of one shard."""
        vectors, rows = tables["vectors"], tables["projection"]
        axes = np.frombuffer(b"".join(rows["axis"].to_pylist()), "<f4").reshape(rows.num_rows, self.dim)
        projection = Projection(np.ascontiguousarray(axes.T), rows["shift"].to_numpy())
        scores = services.kernels(self.kernels).project(vector_matrix(vectors, self.dim), projection)
        return {"scores": vector_table(vectors["id"], scores)}


@dataclass(frozen=True)
class ReduceByNeighbours:
    """Vectors → positions of few dimensions that keep neighbours together (UMAP, as in the paper's own code)."""

    name: ClassVar[str] = "reduce_by_neighbours"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = Whole(f"{_MAX_UMAP_ROWS:,} entities, whose vectors one worker and its GPU hold")

    class Inputs(TableSet):
        vectors: Annotated[Dataset, VECTORS]

    class Outputs(TableSet):
        scores: Annotated[Dataset, VECTORS]

    dim: int
    n_dims: int
    seed: int
    kernels: str

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the positions of all rows."""
        vectors = tables["vectors"]
        scores = services.kernels(self.kernels).umap(vector_matrix(vectors, self.dim), self.n_dims, self.seed)
        return {"scores": vector_table(vectors["id"], scores)}


def check_umap_rows(n_rows: int) -> None:
    """Refuse a layer that is larger than any for which UMAP was tried."""
    if n_rows > _MAX_UMAP_ROWS:
        raise ConfigError(
            f"clustering.reduction: umap takes {_MAX_UMAP_ROWS:,} entities at most, in one process; this layer has "
            f"{n_rows:,}: set clustering.reduction: pca"
        )


def full_rows(shard_rows: int) -> int:
    """Return how many rows a shard of unreduced vectors has: fewer than one of scores, for they are larger."""
    return min(shard_rows, _MAX_ROWS)


def n_axes(dim: int, reduce_dims: int, n_rows: int) -> int:
    """Return how many components a layer's vectors are reduced to."""
    return min(reduce_dims, dim, max(n_rows - 1, 1))


def reduced(vectors: FloatMatrix, reduce_dims: int, shard_rows: int, kernels: Kernels) -> FloatMatrix:
    """Return the scores that the stages give, in one process; the rows of a shard decide the last bits."""
    shards = [vectors[first : first + shard_rows] for first in range(0, len(vectors), shard_rows)]
    count = n_axes(vectors.shape[1], reduce_dims, len(vectors))
    projection = principal_axes(reduce(add, map(kernels.moments, shards)), count)
    return np.concatenate([kernels.project(shard, projection) for shard in shards])


def _moments(services: Services, vectors: FloatMatrix, kernels: str) -> Moments:
    return services.kernels(kernels).moments(vectors)
