"""Shortest paths between key entities (paper Eq. 15), deterministic on every machine.

Fewest hops; among those the largest smallest edge weight; among those the lexicographically smallest sequence of
rows from the earlier key. `shortest_path_kernel` has the algorithm.

All pairs of a question take one call of compiled code, or several if they read much of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.cooperative import Steps, all_at_once
from hirag_dist.core.graph.shortest_path_kernel import KernelGraph, PathBuffers, chain
from hirag_dist.core.numba_jit import read_only
from hirag_dist.types import AccessFilter, CsrGraph

_READ = 100_000  # entries of the graph per step: one to two milliseconds


class PathFinder:
    """Path search in one graph. Its buffers are reused, so one finder serves one thread at a time.

    Memory: 80 bytes per node are reserved in addition to the graph; only pages that searches reach are touched.
    """

    def __init__(self, graph: CsrGraph, components: NDArray[np.int32] | None = None) -> None:
        """Allocate the buffers, and compile.

        Args:
            components: (n_nodes,) connected component of each node, so that unconnected pairs cost nothing.
        """
        n = graph.n_nodes
        self._graph = KernelGraph(
            read_only(graph.indptr),
            read_only(graph.indices),
            read_only(graph.weights),
            read_only(graph.relation_rows),
        )
        self._components = read_only(np.zeros(0, np.int32) if components is None else components)
        self._work = PathBuffers(
            seen=np.zeros((3, n // 64 + 1), np.uint64),
            depth=np.empty((2, n), np.int32),
            width=np.empty((2, n), np.float32),
            queue=np.empty((3, n), np.int32),
            degrees=np.empty((2, n), np.int64),
            starts=np.empty((3, n + 2), np.int64),
            path=np.empty(n, np.int32),
            read=np.zeros(1, np.int64),
            frontiers=np.zeros((4, 2), np.int64),
        )
        self.chain([])  # compile now, not during the first question

    def path(self, source: int, target: int, access: AccessFilter | None = None) -> list[int]:
        """Return the rows of the path, both ends included; [source] to itself; [] where there is none.

        Args:
            source, target: rows that the caller may see.
            access: what else; entities and relations beyond it are not walked, and those seen in part have the
                weight that is in reach. None: everything.
        """
        return self.chain([source, target], access)[0]

    def chain(
        self, rows: Sequence[int], access: AccessFilter | None = None, components: NDArray[np.int32] | None = None
    ) -> list[list[int]]:
        """Return one path per consecutive pair; runs `chain_steps` to its end."""
        return all_at_once(self.chain_steps(rows, access, components))

    def chain_steps(
        self,
        rows: Sequence[int],
        access: AccessFilter | None = None,
        components: NDArray[np.int32] | None = None,
        most_read: int = _READ,
    ) -> Steps[list[list[int]]]:
        """Return the path of each consecutive pair of rows, step by step.

        Args:
            rows: that the caller may see.
            access: see `path`.
            components: (n_nodes,) connected component of each node in what the caller may see (`seen_components`).
                Without it pairs that only something hidden connects are looked for in all that may be seen.
            most_read: entries of the graph, after which a step ends with the pair at hand.
        """
        keys = np.array(rows, np.int64)
        known = self._components if components is None else read_only(components)
        access = None if access is None else AccessFilter._make(map(read_only, access))
        found: list[list[int]] = []
        while True:
            bounds, nodes = chain(self._graph, access, known, keys[len(found) :], self._work, most_read)
            listed = nodes.tolist()
            found += [listed[begin:end] for begin, end in pairwise(bounds.tolist())]
            yield
            if len(found) >= len(keys) - 1:
                return found
