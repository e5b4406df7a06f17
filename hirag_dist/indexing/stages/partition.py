"""A large layer cut into overlapping cells, and the clusters of each cell (paper Eq. 8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.clustering.gaussian_mixture import sample_numbers
from hirag_dist.core.clustering.partition_tree import (
    ClusterSettings,
    PartitionNode,
    assign_cells,
    fit_cells,
    sample_size,
)
from hirag_dist.core.clustering.soft_clusters import split_labels
from hirag_dist.core.clustering.ward import RowTree, row_trees
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Iterative, Services, Tables
from hirag_dist.indexing.stages.embed import vector_matrix
from hirag_dist.indexing.stages.memberships import CELL_LINKS, KEPT_LINKS, NAMED_LINKS, cluster_id
from hirag_dist.protocols import Kernels, ResidentShards
from hirag_dist.schemas import VECTORS
from hirag_dist.types import FloatMatrix, GroupSums, IntVector, LabelledCell, Mixture

CELL_NODES = pa.schema(  # a row a node, the root first, parents before their children; none where there is one cell
    [
        pa.field("parent", pa.int32(), nullable=False),  # row of the parent, −1 for the root
        pa.field("place", pa.int32(), nullable=False),  # among the parent's children
        pa.field("cells", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),  # −1: a node
        pa.field("min_variance", pa.float64(), nullable=False),
        pa.field("dims", pa.int32(), nullable=False),
        pa.field("weights", pa.binary(), nullable=False),  # (k,) float64; these are little endian
        pa.field("means", pa.binary(), nullable=False),  # (k, dims) float32
        pa.field("variance", pa.float64(), nullable=False),
    ]
)


def node_table(root: PartitionNode | None) -> pa.Table:
    """Return CELL_NODES."""
    rows: list[dict[str, Any]] = []

    def add(node: PartitionNode, parent: int, place: int) -> None:
        own, mixture = len(rows), node.mixture
        rows.append(
            {
                "parent": parent,
                "place": place,
                "cells": [-1 if isinstance(child, PartitionNode) else child for child in node.children],
                "min_variance": mixture.min_variance,
                "dims": mixture.means.shape[1],
                "weights": np.ascontiguousarray(mixture.weights, "<f8").tobytes(),
                "means": np.ascontiguousarray(mixture.means, "<f4").tobytes(),
                "variance": mixture.variance,
            }
        )
        for number, child in enumerate(node.children):
            if isinstance(child, PartitionNode):
                add(child, own, number)

    if root is not None:
        add(root, -1, 0)
    return pa.Table.from_pylist(rows, CELL_NODES)


def cells_of(table: pa.Table) -> PartitionNode | None:
    """Return the input of `node_table`, without likelihoods, which are not stored."""
    rows = table.to_pylist()
    if not rows:
        return None
    children: list[list[Any]] = [list(row["cells"]) for row in rows]
    for own in range(len(rows) - 1, -1, -1):  # children come after their parents: here they are done first
        row, k = rows[own], len(children[own])
        means = np.frombuffer(row["means"], "<f4").reshape(k, row["dims"])
        weights = np.frombuffer(row["weights"], "<f8")
        mixture = Mixture(weights, means, row["variance"], min_variance=row["min_variance"])
        node = PartitionNode(mixture, tuple(children[own]))
        if row["parent"] >= 0:
            children[row["parent"]][row["place"]] = node
    return node


CELL_ROWS = pa.schema(  # a row of the layer, once for each cell that sees it
    [
        pa.field("cell", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("is_home", pa.bool_(), nullable=False),
        pa.field("vector", pa.binary(), nullable=False),
    ]
)
CELL_TREES = pa.schema(  # a row for each cell where a row is at home
    [
        pa.field("cell", pa.int64(), nullable=False),
        pa.field("leaves", pa.binary(), nullable=False),  # (n_rows,) int32; these are little endian
        pa.field("merges", pa.binary(), nullable=False),  # (n_leaves - 1, 4) float64
    ]
)
CELL_HEIGHTS = pa.schema(  # of the same cells
    [
        pa.field("cell", pa.int64(), nullable=False),
        pa.field("heights", pa.binary(), nullable=False),  # (n_leaves - 1,) float64 of the merges
        pa.field("weights", pa.binary(), nullable=False),  # (n_leaves,) float64 of the merges and the root
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
    version: ClassVar[int] = 6

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

        def each(means: FloatMatrix) -> GroupSums:
            return reduce(add, shards.each(_sums, (self.kernels, means)))

        return {"nodes": node_table(fit_cells(kernels, each, sample, n_rows, self.settings))}


@dataclass(frozen=True)
class AssignCells:
    """Scores → the cells that see each row."""

    name: ClassVar[str] = "assign_cells"
    version: ClassVar[int] = 5

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
        """Return the rows of one shard with their cells, in the order of the layer."""
        scores = tables["scores"]
        rows = _finite_scores(scores, self.dims)
        found = assign_cells(services.kernels(self.kernels), rows, cells_of(tables["nodes"]))
        at = pa.array(found.rows)
        columns = [pa.array(found.cells), scores["id"].take(at), pa.array(found.is_home), scores["vector"].take(at)]
        return {"rows": pa.table(columns, schema=CELL_ROWS)}


@dataclass(frozen=True)
class MergeCells:
    """Rows of each cell → the tree of their merges, and its heights."""

    name: ClassVar[str] = "merge_cells"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        rows: Annotated[Dataset, CELL_ROWS]

    class Outputs(TableSet):
        trees: Annotated[Dataset, CELL_TREES]
        heights: Annotated[Dataset, CELL_HEIGHTS]

    dims: int
    rows_a_task: int
    kernels: str

    @property
    def split(self) -> ByKey:
        """The rows of a cell meet, in the order of the layer."""
        return ByKey("cell", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the trees of the cells of this partition."""
        trees, heights = [], []
        is_home = tables["rows"]["is_home"].to_numpy()
        rows = _finite_scores(tables["rows"], self.dims)
        cells = [(cell, at) for cell, at in _cells(tables["rows"]) if is_home[at].any()]
        made = row_trees([rows[at] for _, at in cells], services.kernels(self.kernels).trees)
        for (cell, at), tree in zip(cells, made, strict=True):
            columns = (tree.leaves.astype("<i4"), tree.merges, tree.heights, tree.weights(is_home[at]))
            leaves, merges, *of_merges = (np.ascontiguousarray(column).tobytes() for column in columns)
            trees.append({"cell": cell, "leaves": leaves, "merges": merges})
            heights.append({"cell": cell, "heights": of_merges[0], "weights": of_merges[1]})
        return {
            "trees": pa.Table.from_pylist(trees, CELL_TREES),
            "heights": pa.Table.from_pylist(heights, CELL_HEIGHTS),
        }


@dataclass(frozen=True)
class ClusterCells:
    """Rows of each cell and its tree, cut at a height → the clusters that it keeps."""

    name: ClassVar[str] = "cluster_cells"
    version: ClassVar[int] = 5

    class Inputs(TableSet):
        rows: Annotated[Dataset, CELL_ROWS]
        trees: Annotated[Dataset, CELL_TREES]

    class Outputs(TableSet):
        links: Annotated[Dataset, CELL_LINKS]
        components: Annotated[Dataset, CELL_COMPONENTS]

    settings: ClusterSettings
    height: float
    dims: int
    rows_a_task: int
    kernels: str

    @property
    def split(self) -> ByKey:
        """The rows of a cell meet its tree, in the order of the layer."""
        return ByKey("cell", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the memberships of the cells of this partition, and the components that each keeps."""
        table = tables["rows"]
        rows, is_home = _finite_scores(table, self.dims), table["is_home"].to_numpy()
        trees = {
            row["cell"]: RowTree(
                np.frombuffer(row["leaves"], "<i4").astype(np.int64), np.frombuffer(row["merges"], "<f8").reshape(-1, 4)
            )
            for row in tables["trees"].to_pylist()
        }
        links, components = [CELL_LINKS.empty_table()], []
        cells = [(cell, at) for cell, at in _cells(table) if cell in trees]
        labelled = [LabelledCell(rows[at], trees[cell].labels(self.height), is_home[at]) for cell, at in cells]
        memberships = services.kernels(self.kernels).memberships(labelled, self.settings.threshold)
        for (cell, at), found in zip(cells, memberships, strict=True):
            columns = [
                np.full(len(found.rows), cell),
                pa.array(found.components),
                table["id"].take(pa.array(at[found.rows])),
                pa.array(found.shares),
                pa.array(found.evidence),
            ]
            links.append(pa.table(columns, schema=CELL_LINKS))
            components.append({"cell": cell, "n_components": found.n_components})
        return {
            "links": pa.concat_tables(links),
            "components": pa.Table.from_pylist(components, CELL_COMPONENTS),
        }


@dataclass(frozen=True)
class SplitClusters:
    """Memberships that count → the same, in clusters that a prompt takes, with ids: hashes of layer and members."""

    name: ClassVar[str] = "split_clusters"
    version: ClassVar[int] = 1

    class Inputs(TableSet):
        rows: Annotated[Dataset, CELL_ROWS]
        links: Annotated[Dataset, KEPT_LINKS]

    class Outputs(TableSet):
        links: Annotated[Dataset, NAMED_LINKS]

    layer: int
    settings: ClusterSettings
    dims: int
    rows_a_task: int

    @property
    def split(self) -> ByKey:
        """A cluster's members meet, with the rows of its cell."""
        return ByKey("cell", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the memberships. Clusters of two cells with the same members now have the same id."""
        cells = dict(_cells(tables["rows"]))
        vectors = _finite_scores(tables["rows"], self.dims)
        found = [NAMED_LINKS.empty_table()]
        for cell, at in _cells(tables["links"]):
            links, inside = tables["links"].take(pa.array(at)), cells[cell]
            places = inside[rows_of(links["entity_id"], tables["rows"]["id"].take(pa.array(inside)))]
            clusters = links["cluster"].to_numpy()
            order = np.lexsort((places, clusters))
            names = np.empty(len(order), object)
            for members in np.split(order, np.flatnonzero(np.diff(clusters[order])) + 1):
                labels = split_labels(vectors[places[members]], self.settings)
                for label in range(int(labels.max()) + 1):
                    part = members[labels == label]
                    names[part] = cluster_id(self.layer, sorted(links["entity_id"].take(pa.array(part)).to_pylist()))
            columns = [pa.array(names, pa.string())]
            columns += [links[name] for name in ("entity_id", "responsibility", "best")]
            found.append(pa.table(columns, schema=NAMED_LINKS))
        return {"links": pa.concat_tables(found)}


def _cells(rows: pa.Table) -> Iterator[tuple[int, IntVector]]:
    """Yield the cells of a table, ascending, with their rows in it."""
    cells = rows["cell"].to_numpy()
    order = np.argsort(cells, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(cells[order])) + 1) if len(order) else ():
        yield int(cells[at[0]]), at


def _finite_scores(rows: pa.Table, dims: int) -> FloatMatrix:
    return np.nan_to_num(vector_matrix(rows, dims), nan=0.0, posinf=0.0, neginf=0.0)


def _sampled(services: Services, shard: tuple[int, FloatMatrix], numbers: IntVector) -> FloatMatrix:
    """Return those of the numbered rows that are in a shard."""
    first_row, rows = shard
    first, last = np.searchsorted(numbers, [first_row, first_row + len(rows)])
    return rows[numbers[first:last] - first_row]


def _sums(services: Services, shard: tuple[int, FloatMatrix], asked: tuple[str, FloatMatrix]) -> GroupSums:
    kernels, means = asked
    return services.kernels(kernels).nearest_sums(shard[1], means)
