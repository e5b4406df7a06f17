"""Choice of the index of a collection and of its search parameters, for Lite and servers alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hirag_dist.errors import ConfigError

LITE = ("flat", "hnsw", "ivf_flat", "ivf_sq8")  # Lite accepts other names silently, without building the index
SERVER = (*LITE, "scann", "diskann")

# Up to so many rows a scan costs no more than a graph search. Lite copies all vectors for each scan.
_FLAT_ROWS = {"lite": 2_000, "server": 20_000}

_WITH_LISTS = ("ivf_flat", "ivf_sq8", "scann")
_BREADTH = {"hnsw": "ef", "ivf_flat": "nprobe", "ivf_sq8": "nprobe", "scann": "nprobe", "diskann": "search_list"}
_MIN_EF = 512  # costs a millisecond more than 64, and finds 999 of 1,000 where that finds 930
_PROBED = 3  # one of so many lists is searched


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """An index to build.

    Attributes:
        kind: flat, hnsw, …
        named: whether the configuration names it, rather than leaving it to the size.
        build: parameters, by Milvus's names.
    """

    kind: str
    named: bool
    build: Mapping[str, int]


def choose_index(named: str, n_rows: int, *, lite: bool) -> IndexChoice:
    """Return the index for a collection.

    Args:
        named: of the configuration; auto: flat for few rows, else hnsw.
        n_rows: of the collection.
        lite: whether it is Milvus Lite's.

    Raises:
        ConfigError: Milvus Lite has no such index.
    """
    if lite and named not in ("auto", *LITE):
        raise ConfigError(
            f"vectors.index {named}: Milvus Lite does not have it; choose among auto, {', '.join(LITE)}, or a server"
        )
    flat_rows = _FLAT_ROWS["lite" if lite else "server"]
    kind = named if named != "auto" else "flat" if n_rows <= flat_rows else "hnsw"
    build: dict[str, int] = {}
    if kind == "hnsw":
        build = {"M": 16, "efConstruction": 200}
    elif kind in _WITH_LISTS:
        build = {"nlist": n_lists(n_rows)}
    return IndexChoice(kind, named != "auto", build)


def n_lists(n_rows: int) -> int:
    """Return the number of lists of an IVF index: four times the square root of the number of rows, as is usual.

    >>> n_lists(1_000_000), n_lists(10)
    (4000, 2)
    """
    return max(min(4 * math.isqrt(n_rows), n_rows // 4, 65_536), 1)


def search_params(
    kind: str, breadth: int | None, limit: int, n_rows: int, n_lists: int | None, admitted: float = 1.0
) -> dict[str, int]:
    """Return the parameters of a search.

    Args:
        kind: of index, as `choose_index` names it; an unknown one gets none and Milvus's own defaults.
        breadth: `vectors.search_breadth`: ef, nprobe or search_list, by the index; None for nearly
            full recall.
        limit: of rows wanted.
        n_rows: of the collection.
        n_lists: of the index, where it has lists and says so.
        admitted: share of the rows that the filter lets through, for Milvus Lite, and for filters that Milvus does not
            know. Lite walks its graph as if there were no filter and drops what it may not give, so a narrow filter
            needs a wide search; a server searches the few rows of its own filters directly.
    """
    name = _BREADTH.get(kind)
    if name is None:
        return {}
    wider = 1 / max(admitted, 1 / max(n_rows, 1))
    if name == "nprobe":
        lists = n_lists or 128
        probed = {name: min(math.ceil((breadth or max(lists // _PROBED, 16)) * wider), lists)}
        return probed | ({"reorder_k": max(_MIN_EF, limit)} if kind == "scann" else {})  # scored by whole vectors
    usual = breadth or min(_MIN_EF, n_rows)
    return {name: max(usual, limit, min(math.ceil(usual * wider), n_rows))}
