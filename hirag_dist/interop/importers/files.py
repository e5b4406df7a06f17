"""Reading one file of a working folder. Whatever is wrong with it rises as `InputError`, on one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from hirag_dist.errors import InputError

if TYPE_CHECKING:
    from lxml import etree

_NAMESPACE = "{http://graphml.graphdrawing.org/xmlns}"


def damaged(path: Path, reason: object) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(f"{path} cannot be read: {' '.join(str(reason).split())}")


def read_json(path: Path) -> dict[str, dict[str, Any]]:
    """Return the objects of a kv_store file by their keys.

    Raises:
        InputError: it is not JSON, or no object of objects.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            held = json.load(stream)
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    if not isinstance(held, dict) or not all(isinstance(value, dict) for value in held.values()):
        raise damaged(path, "it does not hold an object for each key")
    return held


def read_parquet(path: Path, columns: Mapping[str, bool]) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file.

    Args:
        path: the file.
        columns: the columns to read where they are there, and whether they must be; `a|b` stands for either.

    Raises:
        InputError: it is not Parquet, or lacks a column that must be there.
    """
    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            for name, needed in columns.items():
                if needed and not set(name.split("|")) & set(there):
                    raise damaged(path, f"it has no column {' or '.join(name.split('|'))}")
            wanted = [each for name in columns for each in name.split("|") if each in there]
            rows: list[dict[str, Any]] = file.read(wanted).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from error
    return rows


def read_graphml(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (`node` or `edge`, its attributes and data by name), as networkx writes them.

    A node's id is under `id`, an edge's ends are under `source` and `target`. No entity is expanded and no network
    asked: a file with a DTD is refused. It is read as a stream; one element is in memory at a time.

    Raises:
        InputError: it is not well-formed, has a DTD, or is no GraphML.
    """
    from lxml import etree  # not at the top: most commands read no GraphML

    names: dict[str, str] = {}
    try:
        with path.open("rb") as stream:
            root: etree._Element | None = None
            parser = etree.iterparse(
                stream, events=("start", "end"), resolve_entities=False, no_network=True, load_dtd=False
            )
            for event, element in parser:
                if root is None:
                    root = element
                    _check_root(path, root)
                tag = str(element.tag).removeprefix(_NAMESPACE)
                if event == "start":
                    continue
                if tag == "key":
                    names[str(element.get("id"))] = str(element.get("attr.name"))
                elif tag in ("node", "edge"):
                    yield tag, _data(element, names)
                    _forget(element)
    except (OSError, etree.XMLSyntaxError) as error:
        raise damaged(path, error) from error
    if root is None:
        raise damaged(path, "it is empty")


def _check_root(path: Path, root: etree._Element) -> None:
    if root.getroottree().docinfo.internalDTD is not None:
        raise damaged(path, "it has a document type definition, which no GraphML of these tools has")
    if str(root.tag).removeprefix(_NAMESPACE) != "graphml":
        raise damaged(path, f"it is no GraphML: its root is {root.tag!r}")


def _data(element: etree._Element, names: Mapping[str, str]) -> dict[str, str]:
    found = {str(name): str(value) for name, value in element.attrib.items()}
    for child in element:
        if child.tag in (f"{_NAMESPACE}data", "data"):
            key = str(child.get("key"))
            found[names.get(key, key)] = child.text or ""
    return found


def _forget(element: etree._Element) -> None:
    """Free an element and those before it."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
