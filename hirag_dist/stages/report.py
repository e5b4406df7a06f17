"""Communities → reports, level by level from the deepest, so that sub-reports can stand in for their members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from hirag_dist.core.prompts import Prompts, report_request
from hirag_dist.core.replies import parse_report
from hirag_dist.core.reports import ChildReport, Link, Member, members_report, report_material, report_row
from hirag_dist.schemas import REJECTS, REPORTS
from hirag_dist.stages.base import ByRows, Schemas, Services, Split, Tables, reject_row, together
from hirag_dist.stages.communities import REPORT_MATERIAL
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
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(16)
    reads: ClassVar[Schemas] = {"material": REPORT_MATERIAL, "children": CHILD_REPORTS}
    writes: ClassVar[Schemas] = {"reports": REPORTS, "as_children": CHILD_REPORTS, "rejects": REJECTS}

    level: int
    structured: bool
    max_tokens: int
    min_entities: int
    tokenizer: str
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
        results = await together(self._report(row, children, services) for row in material)
        reports, above, rejects = [], [], []
        for row, result in zip(material, results, strict=True):
            if isinstance(result, Rejected):
                rejects.append(reject_row(self.name, result) | {"unit_id": row["community_id"]})
                continue
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

    async def _report(
        self, row: dict[str, Any], children: dict[str, ChildReport], services: Services
    ) -> dict[str, Any] | Rejected:
        members = [Member(**member) for member in row["members"]]
        if row["n_entities"] < self.min_entities:
            return members_report(row["community_id"], row["level"], members)
        material = report_material(
            members,
            [Link(**link) for link in row["links"]],
            [children[child] for child in row["child_ids"] if child in children],
            self.max_tokens,
            services.count_tokens,
        )
        form = "report" if self.structured else None
        request = report_request(material.entities, material.relations, material.reports, self.prompts, form)
        record = await services.chat.ask(request, parse_report)
        if isinstance(record, Rejected):
            return record
        return report_row(row["community_id"], row["level"], record, material.refs)
