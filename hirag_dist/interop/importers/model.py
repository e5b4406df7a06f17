"""Result of an import, the records that every reader of a folder makes, and the files of a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from hirag_dist.core.entities.claims import ClaimRecord
from hirag_dist.core.text.normalize import one_line
from hirag_dist.errors import InputError

if TYPE_CHECKING:
    from lxml import etree


_NAMESPACE = "{http://graphml.graphdrawing.org/xmlns}"


def damaged(path: Path, reason: object) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(f"{path} cannot be read: {' '.join(str(reason).split())}")


def read_json(path: Path) -> dict[str, dict[str, Any]]:
    """Return the objects of a kv_store file by their keys. Raises InputError where it is no JSON object of objects."""
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


SEP = "<SEP>"  # what nano-graphrag and its descendants join lists with
_SURROGATES = re.compile("[\ud800-\udfff]")
_QUOTES = "\"'“”"


@dataclass(frozen=True, slots=True)
class ImportedGraph:
    """A graph that another tool extracted, held in memory whole.

    Attributes:
        kind: graphrag, graphrag-0.x, nano-graphrag, lightrag or hirag.
        documents: DOCUMENTS, sorted by id.
        chunks: CHUNKS, sorted by document and position.
        entities: ENTITIES of layer 0, sorted by id.
        relations: RELATIONS of kind `extracted`, sorted by id.
        claims: CLAIMS, sorted by id; empty where the folder holds none.
        communities, reports: COMMUNITIES and REPORTS, members of layer 0 alone; None where they were not asked for.
        left_out: (what, reason) of all that is not in the tables, or not as it was in the folder.
        n_merged: entities that became one with another since their names differ in case, quotes or edges only.
        n_merged_relations: relations that became one with another between the same two entities.
        n_added: entities that the folder names as the end of a relation only.
        properties: document id → name → value of what else the folder has about documents.
    """

    kind: str
    documents: pa.Table
    chunks: pa.Table
    entities: pa.Table
    relations: pa.Table
    claims: pa.Table
    left_out: tuple[tuple[str, str], ...]
    n_merged: int
    n_merged_relations: int
    n_added: int
    communities: pa.Table | None = None
    reports: pa.Table | None = None
    properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as the folder has it; `text` is None where it holds none.

    Attributes:
        source_ids: what its owner calls it, where the folder says so besides the key.
        properties: name → value of what else the folder has about it, from which declared metadata fields are read.
    """

    key: str
    text: str | None
    uri: str = ""
    title: str = ""
    record: int = 0
    labels: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """A chunk as the folder has it, with the keys of the documents that it may be from."""

    key: str
    document_keys: tuple[str, ...]
    text: str | None
    start: int | None = None
    end: int | None = None
    n_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SourceEntity:
    """An entity as the folder has it. `n_mentions` and `described` are None where the folder does not say."""

    name: str
    type: str
    descriptions: tuple[str, ...]
    chunk_keys: tuple[str, ...]
    n_mentions: int | None = None
    described: bool | None = None


@dataclass(frozen=True, slots=True)
class SourceRelation:
    """A relation as the folder has it; `weight` is None where it holds none that is a number."""

    source: str
    target: str
    descriptions: tuple[str, ...]
    weight: float | None
    chunk_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceClaim(ClaimRecord):
    """A claim as the folder has it, with the folder's keys of it and of its chunk."""

    key: str
    chunk_key: str


@dataclass(frozen=True, slots=True)
class SourceCommunity:
    """A community as the folder has it: names of its members, and the key of its parent if the folder names it."""

    key: str
    level: int
    names: tuple[str, ...]
    parent: str = ""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The report of a community, by the community's key; each finding is (summary, explanation)."""

    key: str
    title: str
    summary: str
    rating: float
    rating_explanation: str
    findings: tuple[tuple[str, str], ...]


LABEL_FIELDS = ("labels", "label", "acl")


@dataclass(slots=True)
class SourceGraph:
    """All records of a folder: chunks in the order of their documents where the folder says, else in its own."""

    kind: str
    documents: list[SourceDocument]
    chunks: list[SourceChunk]
    entities: list[SourceEntity]
    relations: list[SourceRelation]
    claims: list[SourceClaim] = field(default_factory=list)
    communities: list[SourceCommunity] = field(default_factory=list)
    reports: list[SourceReport] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def has_labels(self) -> bool:
        """True if a document carries labels, so that the document of each text matters."""
        return any(document.labels for document in self.documents)


def text_of(value: object) -> str:
    r"""Return a value as text that encodes to UTF-8: a lone surrogate becomes U+FFFD; empty for None.

    >>> text_of("a\ud800"), text_of(None), text_of(3)
    ('a\ufffd', '', '3')
    """
    return "" if value is None else _SURROGATES.sub("\ufffd", str(value))


def texts_of(value: object, separator: str = SEP) -> tuple[str, ...]:
    """Return the texts of a list, or of a string that joins them; empty ones are dropped.

    >>> texts_of("a<SEP><SEP>b"), texts_of(["a", None]), texts_of(None)
    (('a', 'b'), ('a',), ())
    """
    items = value if isinstance(value, (list, tuple)) else text_of(value).split(separator)
    parts = (part.strip() for item in items for part in text_of(item).split(separator))
    return tuple(part for part in parts if part)


def labels_of(*held: Any) -> tuple[str, ...]:
    """Return the labels of a document: those of the first of its objects that has some.

    >>> labels_of({"labels": None}, {"acl": '["a", "b"]'}), labels_of({"label": "a"}, None)
    (('a', 'b'), ('a',))
    """
    for row in held:
        for name in LABEL_FIELDS if isinstance(row, Mapping) else ():
            value = row.get(name)
            found = texts_of(parsed(value) if isinstance(value, str) and value.lstrip().startswith("[") else value)
            if found:
                return found
    return ()


def parsed(text: str) -> object:
    """Return the value of a JSON text; of what is none, the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def unquoted(text: str) -> str:
    """Return a text on one line without the quotes around it, which early nano-graphrag kept.

    >>> unquoted('"He said: «no»."'), unquoted('"a" and "b"')
    ('He said: «no».', '"a" and "b"')
    """
    flat = one_line(text)
    inner = flat[1:-1]
    return inner.strip() if len(flat) > 1 and flat[0] == flat[-1] == '"' and '"' not in inner else flat


def type_of(value: object) -> str:
    """Return an entity type in lower case without quotes; empty for none and for `unknown`.

    >>> type_of('"ORGANIZATION"'), type_of("UNKNOWN"), type_of(None)
    ('organization', '', '')
    """
    kind = one_line(text_of(value)).strip(_QUOTES + " ").lower()
    return "" if kind == "unknown" else kind


def number_of(value: object) -> float | None:
    """Return a number, also one written as text; None for anything else."""
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None


def whole_of(value: object) -> int | None:
    """Return a whole number that is not negative; None for anything else."""
    number = number_of(value)
    return int(number) if number is not None and number >= 0 and number == number // 1 else None
