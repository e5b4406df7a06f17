"""Communities → reports, level by level from the deepest, so that sub-reports can stand in for their members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from hirag_dist.core.prompts import PACKED, Prompts, report_request
from hirag_dist.core.replies import ReportRecord, parse_report
from hirag_dist.core.reports import (
    ChildReport,
    Link,
    Material,
    Member,
    members_report,
    report_material,
    report_row,
)
from hirag_dist.schemas import REJECTS, REPORTS
from hirag_dist.stages.base import ByRows, Schemas, Services, Split, Tables, reject_row
from hirag_dist.stages.communities import REPORT_MATERIAL
from hirag_dist.stages.packing import Packing, Unit, ask_packed
from hirag_dist.types import Rejected

CHILD_REPORTS = pa.schema(
    [
        pa.field("community_id", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("summary", pa.string(), nullable=False),
        pa.field("entity_ids", pa.list_(pa.string()), nullable=False),
    ]
)


@dataclass(frozen=True)
class WriteReports:
    """The communities of one level → their reports. Paper: §4.1; GraphRAG paper §3.1.4."""

    name: ClassVar[str] = "reports"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByRows(64)  # packs end where a task ends
    reads: ClassVar[Schemas] = {"material": REPORT_MATERIAL, "children": CHILD_REPORTS}
    writes: ClassVar[Schemas] = {"reports": REPORTS, "as_children": CHILD_REPORTS, "rejects": REJECTS}

    level: int
    structured: bool
    max_tokens: int
    min_entities: int
    tokenizer: str
    packing: Packing
    same_language: bool
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return a report for each community of the level; one without a usable reply is absent and in rejects."""
        material = tables["material"].to_pylist()
        wanted = {child for row in material for child in row["child_ids"]}
        children = {
            row["community_id"]: ChildReport(
                row["community_id"], row["title"], row["summary"], frozenset(row["entity_ids"])
            )
            for row in tables["children"].to_pylist()
            if row["community_id"] in wanted
        }
        shown = {
            row["community_id"]: self._material(row, children, services)
            for row in material
            if row["n_entities"] >= self.min_entities
        }
        form = PACKED["report"] if self.structured else None
        system = self.prompts.system(PACKED["report"], form)
        units = [self._unit(each) for each in shown.values()]
        replies = await ask_packed(units, self.packing, "report", system, services)
        records = dict(zip(shown, replies, strict=True))
        reports, above, rejects = [], [], []
        for row in material:
            own, level = row["community_id"], row["level"]
            record = records.get(own)
            if isinstance(record, Rejected):
                rejects.append(reject_row(self.name, record) | {"unit_id": own})
                continue
            if record is None:
                result = members_report(own, level, [Member(**member) for member in row["members"]])
            else:
                result = report_row(own, level, record, shown[own].refs)
            reports.append(result)
            if row["entity_ids"]:
                above.append(
                    {
                        "community_id": row["community_id"],
                        "title": result["title"],
                        "summary": result["summary"],
                        "entity_ids": row["entity_ids"],
                    }
                )
        return {
            "reports": pa.Table.from_pylist(reports, REPORTS),
            "as_children": pa.Table.from_pylist(above, CHILD_REPORTS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }

    def _material(self, row: dict[str, Any], children: dict[str, ChildReport], services: Services) -> Material:
        return report_material(
            [Member(**member) for member in row["members"]],
            [Link(**link) for link in row["links"]],
            [children[child] for child in row["child_ids"] if child in children],
            self.max_tokens,
            services.count_tokens,
        )

    def _unit(self, shown: Material) -> Unit[ReportRecord]:
        compare = self.same_language and "report" not in self.prompts.instructions
        read = " ".join((*shown.entities, *shown.relations, *shown.reports)) if compare else ""
        form = "report" if self.structured else None
        return Unit(
            report_request(shown.entities, shown.relations, shown.reports, self.prompts, form),
            lambda reply: parse_report(reply, read),
        )
