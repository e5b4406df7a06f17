"""The tree of coarse mixtures that cuts a layer into cells, as a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from hirag_dist.core.clustering.partition_tree import PartitionNode, PartitionTree
from hirag_dist.types import Mixture

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


def node_table(cells: PartitionTree) -> pa.Table:
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

    if cells.root is not None:
        add(cells.root, -1, 0)
    return pa.Table.from_pylist(rows, CELL_NODES)


def cells_of(table: pa.Table) -> PartitionTree:
    """Return the input of `node_table`, without likelihoods, which are not stored."""
    rows = table.to_pylist()
    if not rows:
        return PartitionTree(None, 1)
    children: list[list[Any]] = [list(row["cells"]) for row in rows]
    for own in range(len(rows) - 1, -1, -1):  # children come after their parents: here they are done first
        row = rows[own]
        node = PartitionNode(_mixture(row), tuple(children[own]))
        if row["parent"] >= 0:
            children[row["parent"]][row["place"]] = node
    return PartitionTree(node, 1 + max(cell for row in rows for cell in row["cells"]))


def _mixture(row: dict[str, Any]) -> Mixture:
    k = len(row["cells"])
    dims = row["dims"]
    return Mixture(
        np.frombuffer(row["weights"], "<f8"),
        np.frombuffer(row["means"], "<f4").reshape(k, dims),
        row["variance"],
        min_variance=row["min_variance"],
    )
