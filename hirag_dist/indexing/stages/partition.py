"""A large layer cut into overlapping cells, and the clusters of each cell (paper Eq. 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.clustering.gaussian_mixture import sample_numbers, total
from hirag_dist.core.clustering.partition_tree import ClusterSettings, assign_cells, fit_cells, sample_size
from hirag_dist.core.clustering.soft_clusters import cluster_cell
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Iterative, Services, Tables
from hirag_dist.indexing.stages.embed import vector_matrix
from hirag_dist.indexing.stages.memberships import CELL_LINKS
from hirag_dist.indexing.stages.partition_tables import CELL_NODES, cells_of, node_table
from hirag_dist.protocols import Kernels, ResidentShards
from hirag_dist.schemas import VECTORS
from hirag_dist.types import FloatMatrix, IntVector, Mixture, MixtureStatistics

CELL_ROWS = pa.schema(  # a row of the layer, once for each cell that it is in
    [
        pa.field("cell", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("share", pa.float32(), nullable=False),
        pa.field("vector", pa.binary(), nullable=False),
    ]
)
CELL_COMPONENTS = pa.schema(
    [pa.field("cell", pa.int64(), nullable=False), pa.field("n_components", pa.int64(), nullable=False)]
)


@dataclass(frozen=True)
class FitCells:
    """Scores of a layer → the coarse mixtures that cut it into cells.

    The workers hold the scores, four bytes a dimension; a round brings back sums of some hundred kilobytes a shard.
    """

    name: ClassVar[str] = "fit_cells"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        scores: Annotated[Dataset, VECTORS]

    class Outputs(TableSet):
        nodes: Annotated[Dataset, CELL_NODES]

    settings: ClusterSettings
    dims: int
    kernels: str

    @property
    def split(self) -> Iterative:
        """By shards, which stay."""
        return Iterative(self.settings.shard_rows)

    def load(self, rows: pa.Table, first_row: int) -> tuple[int, FloatMatrix]:
        """Return the number of the first row, and the scores."""
        return first_row, _finite_scores(rows, self.dims)

    def iterate(self, shards: ResidentShards, kernels: Kernels, n_rows: int) -> Tables:
        """Return the mixtures."""
        numbers = sample_numbers(n_rows, sample_size(n_rows, self.settings), self.settings.seed)
        sample = np.concatenate(list(shards.each(_sampled, numbers)))

        def each(mixture: Mixture) -> MixtureStatistics:
            return total(shards.each(_statistics, (self.kernels, mixture)))

        return {"nodes": node_table(fit_cells(kernels, each, sample, n_rows, self.settings))}


@dataclass(frozen=True)
class AssignCells:
    """Scores → the cells that each row is in."""

    name: ClassVar[str] = "assign_cells"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        scores: Annotated[Dataset, VECTORS]
        nodes: Annotated[Dataset, CELL_NODES]

    class Outputs(TableSet):
        rows: Annotated[Dataset, CELL_ROWS]

    shard_rows: int
    dims: int
    kernels: str

    @property
    def split(self) -> ByRows:
        """By shards."""
        return ByRows(self.shard_rows)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the rows of one shard with their cells and shares, in the order of the layer."""
        scores = tables["scores"]
        rows = _finite_scores(scores, self.dims)
        found = assign_cells(services.kernels(self.kernels), rows, cells_of(tables["nodes"]))
        at = pa.array(found.rows)
        columns = [pa.array(found.cells), scores["id"].take(at), pa.array(found.shares), scores["vector"].take(at)]
        return {"rows": pa.table(columns, schema=CELL_ROWS)}


@dataclass(frozen=True)
class ClusterCells:
    """Rows of each cell → its clusters."""

    name: ClassVar[str] = "cluster_cells"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        rows: Annotated[Dataset, CELL_ROWS]

    class Outputs(TableSet):
        links: Annotated[Dataset, CELL_LINKS]
        components: Annotated[Dataset, CELL_COMPONENTS]

    settings: ClusterSettings
    dims: int
    rows_a_task: int
    kernels: str

    @property
    def split(self) -> ByKey:
        """The rows of a cell meet, in the order of the layer."""
        return ByKey("cell", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the memberships of the cells of this partition, and the components that BIC chose in each."""
        table = tables["rows"]
        cells, shares = table["cell"].to_numpy(), table["share"].to_numpy()
        rows = vector_matrix(table, self.dims)
        order = np.argsort(cells, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(cells[order])) + 1) if len(order) else []
        links, components = [CELL_LINKS.empty_table()], []
        kernels = services.kernels(self.kernels)
        for at in parts:
            found = cluster_cell(kernels, rows[at], shares[at], self.settings, self.settings.seed)
            cell = int(cells[at[0]])
            columns = [
                np.full(len(found.rows), cell),
                pa.array(found.clusters),
                table["id"].take(pa.array(at[found.rows])),
                pa.array(found.shares),
            ]
            links.append(pa.table(columns, schema=CELL_LINKS))
            components.append({"cell": cell, "n_components": found.n_components})
        return {
            "links": pa.concat_tables(links),
            "components": pa.Table.from_pylist(components, CELL_COMPONENTS),
        }


def _finite_scores(rows: pa.Table, dims: int) -> FloatMatrix:
    return np.nan_to_num(vector_matrix(rows, dims), nan=0.0, posinf=0.0, neginf=0.0)


def _sampled(services: Services, shard: tuple[int, FloatMatrix], numbers: IntVector) -> FloatMatrix:
    """Return those of the numbered rows that are in a shard."""
    first_row, rows = shard
    first, last = np.searchsorted(numbers, [first_row, first_row + len(rows)])
    return rows[numbers[first:last] - first_row]


def _statistics(services: Services, shard: tuple[int, FloatMatrix], asked: tuple[str, Mixture]) -> MixtureStatistics:
    kernels, mixture = asked
    return services.kernels(kernels).statistics(shard[1], mixture)
