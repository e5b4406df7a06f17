"""Communities → reports: the text that they are written from, and the order in which one is asked for after another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.prompts.packing import approximate_tokens, packs
from hirag_dist.core.prompts.reply_parsing import ReportRecord, parse_report
from hirag_dist.core.prompts.templates import PACKED, Prompts, report_request
from hirag_dist.core.reports.material import (
    ChildReport,
    ClaimLine,
    ReportDraft,
    ReportMaterial,
    ReportMember,
    ReportRelation,
    members_report,
    report_row,
)
from hirag_dist.core.reports.selection import ENTITY_PLACES, OUTLINES, RELATION_PLACES
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, Services, Split, Tables, gather_calls, reject_row
from hirag_dist.indexing.stages.merge import with_descriptions
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_pack, stand_ins
from hirag_dist.schemas import CLAIMS, ENTITIES, REJECTS, RELATIONS, REPORTS
from hirag_dist.types import ClaimItem, Rejected

ENTITY_TEXTS = pa.schema([ENTITIES.field(name) for name in ("entity_id", "name", "type", "description")])
RELATION_TEXTS = pa.schema(
    [RELATIONS.field(name) for name in ("relation_id", "source_id", "target_id", "description", "weight")]
)
ENTITY_LINES = pa.schema([*ENTITY_PLACES, *list(ENTITY_TEXTS)[1:]])
ENTITY_CHUNKS = pa.schema([ENTITIES.field(name) for name in ("entity_id", "chunk_ids")])
CLAIM_LINES = pa.schema(
    [
        *(ENTITY_PLACES.field(name) for name in ("tree", "entity_id")),
        CLAIMS.field("claim_id"),
        pa.field("text", pa.string(), nullable=False),
    ]
)
RELATION_LINES = pa.schema([*RELATION_PLACES, *list(RELATION_TEXTS)[1:]])


@dataclass(frozen=True)
class EntityLines:
    """Entities → those that reports show, once for each tree of reports."""

    name: ClassVar[str] = "report_entities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("entity_id", 50_000)

    class Inputs(TableSet):
        places: Annotated[Dataset, ENTITY_PLACES]
        entities: Annotated[Dataset, ENTITY_TEXTS]

    class Outputs(TableSet):
        lines: Annotated[Dataset, ENTITY_LINES]

    description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the places with their entities' texts, sorted by (tree, id)."""
        return {"lines": _joined(tables["places"], tables["entities"], "entity_id", self.description_chars)}


@dataclass(frozen=True)
class RelationLines:
    """Relations → those that reports show, once for each tree of reports."""

    name: ClassVar[str] = "report_relations"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("relation_id", 50_000)

    class Inputs(TableSet):
        places: Annotated[Dataset, RELATION_PLACES]
        relations: Annotated[Dataset, RELATION_TEXTS]

    class Outputs(TableSet):
        lines: Annotated[Dataset, RELATION_LINES]

    description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the places with their relations' ends and texts, sorted by (tree, id)."""
        return {"lines": _joined(tables["places"], tables["relations"], "relation_id", self.description_chars)}


@dataclass(frozen=True)
class ClaimLines:
    """Claims → those about entities that reports show, once for each tree of reports.

    A claim of a chunk that does not mention its subject is left out: a report is visible to a caller who may read
    all chunks that mention its members, and such a claim may come from a document that this caller may not read.
    """

    name: ClassVar[str] = "report_claims"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("entity_id", 50_000)

    class Inputs(TableSet):
        places: Annotated[Dataset, ENTITY_PLACES]
        entities: Annotated[Dataset, ENTITY_CHUNKS]
        claims: Annotated[Dataset, CLAIMS]

    class Outputs(TableSet):
        lines: Annotated[Dataset, CLAIM_LINES]

    text_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the claims by their subjects' places, sorted by (tree, entity, claim)."""
        entities = tables["entities"]
        chunks = dict(zip(entities["entity_id"].to_pylist(), map(set, entities["chunk_ids"].to_pylist()), strict=True))
        of_entity: dict[str, list[tuple[str, str]]] = {}
        for row in tables["claims"].sort_by("claim_id").to_pylist():
            own = row["subject_id"]
            if row["chunk_id"] in chunks.get(own, ()):
                item = ClaimItem(**row | {"object_id": row["object_id"] or ""})
                of_entity.setdefault(own, []).append((item.claim_id, shorten(one_line(item.line), self.text_chars)))
        lines = [
            {"tree": place["tree"], "entity_id": place["entity_id"], "claim_id": own, "text": text}
            for place in tables["places"].sort_by([("tree", "ascending"), ("entity_id", "ascending")]).to_pylist()
            for own, text in of_entity.get(place["entity_id"], ())
        ]
        return {"lines": pa.Table.from_pylist(lines, CLAIM_LINES)}


def _joined(places: pa.Table, texts: pa.Table, key: str, description_chars: int) -> pa.Table:
    """Return each place with the other columns of its text, descriptions on one line and cut to length."""
    places = places.sort_by([("tree", "ascending"), (key, "ascending")])
    found = texts.take(pa.array(rows_of(places[key], texts[key]))).drop_columns(key)
    found = with_descriptions(
        found, [shorten(one_line(text), description_chars) for text in found["description"].to_pylist()]
    )
    columns = [*places.columns, *found.columns]
    return pa.table(columns, schema=pa.schema([*places.schema, *found.schema])).combine_chunks()


CHILD_REPORTS = pa.schema(
    [
        pa.field("tree", pa.string(), nullable=False),  # where the report above is written
        pa.field("community_id", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("summary", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class WriteReports:
    """The communities of whole trees → their reports. Paper: §4.1; GraphRAG paper §3.1.4.

    Reports of one tree and level share calls in the order of (parent, id), whatever is done first, so that a build
    asks the same again. A call waits for the reports that stand in for members in it, and for no others.
    """

    name: ClassVar[str] = "reports"
    version: ClassVar[int] = 4
    split: ClassVar[Split] = ByKey("tree", 256)

    class Inputs(TableSet):
        outlines: Annotated[Dataset, OUTLINES]
        entities: Annotated[Dataset, ENTITY_LINES]
        relations: Annotated[Dataset, RELATION_LINES]
        children: Annotated[Dataset, CHILD_REPORTS]
        claims: Annotated[Dataset | None, CLAIM_LINES] = None

    class Outputs(TableSet):
        reports: Annotated[Dataset, REPORTS]
        as_children: Annotated[Dataset, CHILD_REPORTS]
        rejects: Annotated[Dataset, REJECTS]

    structured: bool
    max_tokens: int
    min_entities: int
    tokenizer: str
    packing: PackingOptions
    same_language: bool
    prompts: Prompts
    models: tuple[str, ...]
    stand_in: bool = False  # by rules, without a call

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return a report for each community; one without a usable reply is absent and in rejects."""
        rows = sorted(
            tables["outlines"].to_pylist(),
            key=lambda row: (row["tree"], -row["level"], row["parent_id"] or "", row["community_id"]),
        )
        lines = _Lines(tables["entities"], tables["relations"], tables.get("claims", CLAIM_LINES.empty_table()))
        reports = _Reports(rows, tables["children"])
        wanted = []
        for row in rows:
            own, members = row["community_id"], lines.members(row)
            if row["n_entities"] < self.min_entities:
                reports.put(own, members_report(own, row["level"], members))
            else:
                claims = lines.claims(row)
                draft = ReportDraft(members, lines.links(row), self.max_tokens, services.count_tokens, claims=claims)
                wanted.append(_Wanted(row, draft))
        system = self.prompts.system(PACKED["report"], PACKED["report"] if self.structured else None)

        async def write(pack: Sequence[_Wanted]) -> None:
            shown = [each.draft.material(await reports.below(each)) for each in pack]
            units = [self._unit(material) for material in shown]
            if self.stand_in:
                replies = stand_ins(units)
            else:
                replies = await ask_pack(units, "report", system, services, packing=self.packing)
            for each, material, reply in zip(pack, shown, replies, strict=True):
                own, level = each.row["community_id"], each.row["level"]
                if not isinstance(reply, Rejected):
                    written = report_row(own, level, reply, material.refs)
                    reports.put(own, written | {"origin": "stand-in"} if self.stand_in else written)
                else:
                    reports.put(own, reply)

        await gather_calls(write(pack) for pack in self._packs(wanted))
        return reports.tables(rows, self.name)

    def _packs(self, wanted: Sequence[_Wanted]) -> Iterator[Sequence[_Wanted]]:
        """Yield the reports that share a call, by their sizes without sub-reports, which are known from the start."""
        for _, group in groupby(wanted, key=lambda each: (each.row["tree"], each.row["level"])):
            here = list(group)
            requests = (self._unit(each.draft.material([])).request for each in here)
            sizes = [approximate_tokens(request.messages[1].content) for request in requests]
            for pack in packs(sizes, self.packing.max_tokens, self.packing.max_units):
                yield here[pack.start : pack.stop]

    def _unit(self, shown: ReportMaterial) -> PackableUnit[ReportRecord]:
        compare = self.same_language and "report" not in self.prompts.instructions
        read = " ".join((*shown.entities, *shown.relations, *shown.claims, *shown.reports)) if compare else ""
        form = "report" if self.structured else None

        def divided() -> list[PackableUnit[ReportRecord]]:
            half = shown.halved()
            return [] if half is None else [self._unit(half)]

        return PackableUnit(
            report_request(shown.entities, shown.relations, shown.reports, self.prompts, form, shown.claims),
            lambda reply: parse_report(reply, read),
            divided,
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An OUTLINES row whose report takes a call."""

    row: dict[str, Any]
    draft: ReportDraft


class _Lines:
    """The text of entities, relations and claims, found by id. Trees that share an entity share its text."""

    def __init__(self, entities: pa.Table, relations: pa.Table, claims: pa.Table) -> None:
        self._entities = {row["entity_id"]: row for row in entities.drop_columns("tree").to_pylist()}
        self._relations = {row["relation_id"]: row for row in relations.drop_columns("tree").to_pylist()}
        self._claims: dict[str, dict[str, ClaimLine]] = {}
        for row in claims.drop_columns("tree").to_pylist():
            self._claims.setdefault(row["entity_id"], {})[row["claim_id"]] = ClaimLine(**row)

    def members(self, row: dict[str, Any]) -> list[ReportMember]:
        """Return the members that a report may show, most prominent first."""
        return [ReportMember(**self._entities[own]) for own in row["entity_ids"]]

    def links(self, row: dict[str, Any]) -> list[ReportRelation]:
        """Return the relations that a report may show, heaviest first."""
        return [
            ReportRelation(**found, source=self._name(found["source_id"]), target=self._name(found["target_id"]))
            for found in (self._relations[own] for own in row["relation_ids"])
        ]

    def claims(self, row: dict[str, Any]) -> list[ClaimLine]:
        """Return the claims about members that a report may show."""
        return [claim for own in row["entity_ids"] for claim in self._claims.get(own, {}).values()]

    def _name(self, entity: str) -> str:
        name: str = self._entities[entity]["name"]
        return name


class _Reports:
    """The reports of one task as they are written; a report waits for the sub-reports that its prompt shows."""

    def __init__(self, rows: Iterable[dict[str, Any]], children: pa.Table) -> None:
        self._found: dict[str, dict[str, Any] | Rejected] = {row["community_id"]: row for row in children.to_pylist()}
        self._written = {row["community_id"]: asyncio.Event() for row in rows}

    def put(self, own: str, report: dict[str, Any] | Rejected) -> None:
        self._found[own] = report
        self._written[own].set()

    async def below(self, wanted: _Wanted) -> list[ChildReport]:
        """Return the reports that may stand in for members, when they are there; none where all members fit.

        A report that fails is never there: its error ends the stage and cancels those that wait for it.
        """
        if wanted.draft.fits:
            return []
        found = []
        for child in wanted.row["children"]:
            own = child["community_id"]
            if own in self._written:
                await self._written[own].wait()
            report = self._found.get(own)
            if isinstance(report, dict):
                covered = frozenset(child["entity_ids"])
                found.append(ChildReport(own, report["title"], report["summary"], child["n_entities"], covered))
        return found

    def tables(self, rows: Iterable[dict[str, Any]], stage: str) -> Tables:
        """Return the reports in the order of the rows."""
        reports, above, rejects = [], [], []
        for row in rows:
            own = row["community_id"]
            report = self._found[own]
            if isinstance(report, Rejected):
                rejects.append(reject_row(stage, report) | {"unit_id": own})
                continue
            reports.append(report)
            if row["parent_tree"] is not None:
                said = {"title": report["title"], "summary": report["summary"]}
                above.append({"tree": row["parent_tree"], "community_id": own} | said)
        return {
            "reports": pa.Table.from_pylist(reports, REPORTS),
            "as_children": pa.Table.from_pylist(above, CHILD_REPORTS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }
