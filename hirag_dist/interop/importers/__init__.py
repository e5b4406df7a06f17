"""Another tool's working folder → documents, chunks, entities and relations as in `schemas`, all of layer 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hirag_dist.errors import InputError
from hirag_dist.interop.importers import graphrag, nano_storage
from hirag_dist.interop.importers.merging import merge, place
from hirag_dist.interop.importers.model import ImportedGraph, SourceGraph
from hirag_dist.interop.importers.reports import claim_table, community_tables

__all__ = ["ImportedGraph", "read_working_folder"]

_KINDS: tuple[tuple[str, tuple[str, ...], Callable[[Path, bool], SourceGraph]], ...] = (
    ("graphrag", graphrag.FILES, lambda where, more: graphrag.read_graphrag(where, graphrag.FILES, more)),
    ("graphrag-0.x", graphrag.OLD_FILES, lambda where, more: graphrag.read_graphrag(where, graphrag.OLD_FILES, more)),
    ("nano-graphrag, lightrag or hirag", nano_storage.FILES, nano_storage.read_storage),
)


def read_working_folder(folder: str, count_tokens: Callable[[str], int], communities: bool = False) -> ImportedGraph:
    """Read the graph that another tool extracted, as tables by `schemas`, all of layer 0.

    The kind is recognised by the files, not by the folder's name: Microsoft GraphRAG (Parquet tables in the folder, or
    in `output` or a run's `artifacts` below it), and nano-graphrag, LightRAG and HiRAG (kv_store_*.json and a GraphML
    graph). Claims come with them. Their vectors are not read: they are computed
    again, and so are communities and reports unless they are asked for. HiRAG's summary entities bear no mark of their
    layer and come as entities of layer 0.

    Nothing goes unsaid: whatever is not in the tables, or not as it was in the folder, is in `left_out`. The whole
    index is in memory: 1.5 GB for a LightRAG folder of 180 MB with 200,000 entities and 400,000 relations.

    Args:
        communities: take over communities and their reports too.

    Raises:
        InputError: there is no such folder, its kind is not known, it holds no entity, or no community where these are
            asked for, or a file is missing or damaged.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise InputError(f"{folder} is no folder that can be read")
    source = _read(root, communities)
    places = place(source, count_tokens)
    merged = merge(source, places.chunk_ids)
    if not merged.entities.num_rows:
        raise InputError(f"{folder} is of kind {source.kind} and holds no entity: there is nothing to import")
    claims = claim_table(source, merged.entities, places.chunk_ids)
    kept = community_tables(source, merged.entities) if communities else (None, None)
    if kept[0] is not None and not kept[0].num_rows:
        raise InputError(f"{folder} is of kind {source.kind} and holds no communities to keep; have them built")
    return ImportedGraph(
        kind=source.kind,
        documents=places.documents,
        chunks=places.chunks,
        entities=merged.entities,
        relations=merged.relations,
        claims=claims,
        left_out=tuple(source.left_out),
        n_merged=merged.n_merged,
        n_merged_relations=merged.n_merged_relations,
        n_added=merged.n_added,
        communities=kept[0],
        reports=kept[1],
        properties=places.properties,
    )


def _read(root: Path, communities: bool) -> SourceGraph:
    """Read the first place that holds all files of a kind; else say which kind comes near, or what is looked for."""
    near: tuple[int, str] = (1, "")
    output = root / "output"
    # GraphRAG 0.x kept runs apart by time: output/<time>/artifacts; the latest is first
    timed = [found for found in output.glob("*/artifacts") if found.is_dir() and found.parent.name != "artifacts"]
    runs = [root, output, root / "artifacts", output / "artifacts", *sorted(timed, reverse=True)]
    for at, where in enumerate(runs):
        for kind, files, read in _KINDS:
            missing = [name for name in files if not (where / name).is_file()]
            if not missing:
                source = read(where, communities)
                source.left_out += [
                    (str(other), "an earlier run; the latest is read") for other in runs[max(at + 1, 4) :]
                ]
                return source
            n_there = len(files) - len(missing)
            if n_there > near[0]:
                near = (n_there, f"{where} looks like a folder of {kind}, but {', '.join(missing)} is missing")
    if near[1]:
        raise InputError(near[1])
    looked_for = "; ".join(f"{kind}: {', '.join(files)}" for kind, files, _ in _KINDS)
    raise InputError(f"{root} is no working folder of a known kind; looked for {looked_for}")
