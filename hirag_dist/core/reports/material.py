"""Material of a community report, and the report itself (GraphRAG paper §3.1.4; HiRAG §4.1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.core.prompts.reply_parsing import COVERED, ReportRecord
from hirag_dist.core.text.normalize import one_line, shorten

_MAX_DESCRIPTION_CHARS = 400


@dataclass(frozen=True, slots=True)
class ReportMember:
    """An entity of a community, with its degree in the whole graph."""

    entity_id: str
    name: str
    type: str
    description: str
    degree: int


@dataclass(frozen=True, slots=True)
class ReportRelation:
    """A relation inside a community."""

    relation_id: str
    source_id: str
    target_id: str
    source: str
    target: str
    description: str
    weight: float


@dataclass(frozen=True, slots=True)
class ClaimLine:
    """A claim about a member, as a prompt shows it."""

    claim_id: str
    entity_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ChildReport:
    """The report of a sub-community, which can stand in for its members.

    Attributes:
        n_entities: all its members; the largest sub-communities stand in first.
        entity_ids: those of them that the material of the community above names.
    """

    community_id: str
    title: str
    summary: str
    n_entities: int
    entity_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReportMaterial:
    """Numbered lines for the prompt, and the ids that their references stand for.

    Attributes:
        complete: every member is in, as a line of its own or through a sub-report.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    reports: tuple[str, ...]
    refs: dict[str, str]
    complete: bool
    claims: tuple[str, ...] = ()

    def halved(self) -> ReportMaterial | None:
        """Return the more prominent half of the lines of each kind; None where no kind has more than one."""
        kinds = (self.entities, self.relations, self.reports, self.claims)
        if all(len(lines) < 2 for lines in kinds):
            return None
        entities, relations, reports, claims = (lines[: (len(lines) + 1) // 2] for lines in kinds)
        return ReportMaterial(entities, relations, reports, self.refs, False, claims)


class ReportDraft:
    """Material that a report may use, with its tokens counted once, before and after sub-reports exist."""

    def __init__(
        self,
        members: Sequence[ReportMember],
        links: Sequence[ReportRelation],
        max_tokens: int,
        count_tokens: Callable[[str], int],
        claims: Sequence[ClaimLine] = (),
    ) -> None:
        """Render the lines, most prominent first, and count them.

        Args:
            max_tokens: of all lines of the material together.
            claims: shown where members and relations leave room, those of the most prominent members first.
        """
        self._members = [m.entity_id for m in sorted(members, key=lambda member: (-member.degree, member.entity_id))]
        self._links = sorted(links, key=lambda link: (-link.weight, link.relation_id))
        self._lines = {
            m.entity_id: f"{one_line(m.name)} ({m.type}): {shorten(one_line(m.description), _MAX_DESCRIPTION_CHARS)}"
            for m in members
        }
        self._cost = {key: count_tokens(line) + 6 for key, line in self._lines.items()}
        self._texts = {link.relation_id: _link_text(link, self._lines) for link in links}
        self._cost |= {key: (0 if told_by else count_tokens(own)) + 12 for key, (own, told_by) in self._texts.items()}
        self._total = sum(self._cost.values())
        self._claims = claims
        self._max_tokens = max_tokens
        self._count_tokens = count_tokens

    @property
    def fits(self) -> bool:
        """Return whether all members and relations have room, so that sub-reports are not needed."""
        return self._total <= self._max_tokens

    def material(self, children: Sequence[ChildReport]) -> ReportMaterial:
        """Return the lines that fit: all members and relations, or reports in place of sub-communities.

        Where not everything fits, sub-community reports stand in for their members, largest first, until the rest
        does; what still does not fit is left out from the least prominent on.
        """
        cost, members, links, total = self._cost, self._members, self._links, self._total
        replaced: set[str] = set()
        used: list[ChildReport] = []
        report_cost = 0
        for child in sorted(children, key=lambda child: (-child.n_entities, child.community_id)):
            if total + report_cost <= self._max_tokens:
                break
            size = self._count_tokens(child.title) + self._count_tokens(child.summary) + 10
            if report_cost + size > self._max_tokens:
                continue
            used.append(child)
            report_cost += size
            replaced |= child.entity_ids
            members = [key for key in members if key not in replaced]
            links = [link for link in links if not replaced.issuperset((link.source_id, link.target_id))]
            total = sum(cost[key] for key in members) + sum(cost[link.relation_id] for link in links)
        room = self._max_tokens - report_cost
        entity_lines, refs, room, complete = _fill(members, "E", self._lines, cost, room)
        link_lines, link_cost = self._link_lines(links, {key: ref for ref, key in refs.items()})
        relation_lines, relation_refs, room, whole = _fill(list(link_lines), "R", link_lines, link_cost, room)
        shown = members[: len(entity_lines)]
        claim_lines, claim_refs = self._claim_lines(shown, room) if complete and whole else ([], {})
        report_lines = [
            f"C{at}. {one_line(child.title)}: {one_line(child.summary)}" for at, child in enumerate(used, 1)
        ]
        report_refs = {f"C{at}": child.community_id for at, child in enumerate(used, 1)}
        return ReportMaterial(
            tuple(entity_lines),
            tuple(relation_lines),
            tuple(report_lines),
            refs | relation_refs | report_refs | claim_refs,
            complete,
            tuple(claim_lines),
        )

    def _link_lines(
        self, links: Sequence[ReportRelation], ref_of: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, int]]:
        """Return the lines of relations and their tokens; an end that is shown stands there by its reference."""
        lines, cost = {}, {}
        for link in links:
            own, told_by = self._texts[link.relation_id]
            own = "" if any(end in ref_of for end in told_by) else own
            ends = ref_of.get(link.source_id), ref_of.get(link.target_id)
            cost[link.relation_id] = self._cost[link.relation_id]
            if None in ends or (own and told_by):
                names = one_line(link.source), one_line(link.target)
                shown = " — ".join(ref or name for ref, name in zip(ends, names, strict=True))
                cost[link.relation_id] = self._count_tokens(f"{shown}: {own}") + 8
            else:
                shown = "-".join(ref for ref in ends if ref)
            lines[link.relation_id] = f"{shown}: {own}" if own else shown
        return lines, cost

    def _claim_lines(self, shown: Sequence[str], room: int) -> tuple[list[str], dict[str, str]]:
        """Return the claims about members that are shown, as far as there is room, and their references."""
        of_member: dict[str, list[ClaimLine]] = {}
        for claim in self._claims:
            of_member.setdefault(claim.entity_id, []).append(claim)
        own = {claim.claim_id: claim.text for member in shown for claim in of_member.get(member, ())}
        cost = {key: self._count_tokens(text) + 6 for key, text in own.items()}
        lines, refs, _, _ = _fill(list(own), "K", own, cost, room)
        return lines, refs


def _link_text(link: ReportRelation, lines: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the text of a relation's line, and its ends whose lines hold that text already."""
    own = shorten(one_line(link.description), _MAX_DESCRIPTION_CHARS)
    if own == COVERED:  # says no more than that the one is a summary of the other
        return "", ()
    return own, tuple(end for end in (link.source_id, link.target_id) if own and own in lines.get(end, ""))


def _fill(
    keys: Sequence[str], letter: str, lines: dict[str, str], cost: dict[str, int], room: int
) -> tuple[list[str], dict[str, str], int, bool]:
    chosen: list[str] = []
    refs: dict[str, str] = {}
    for key in keys:
        if cost[key] > room:
            return chosen, refs, room, False
        room -= cost[key]
        ref = f"{letter}{len(chosen) + 1}"
        chosen.append(f"{ref}. {lines[key]}")
        refs[ref] = key
    return chosen, refs, room, True


def community_rating(n_entities: int, n_relations: int, n_reports: int) -> float:
    """Return 1 to 10: larger and denser communities rate higher.

    Args:
        n_entities, n_relations, n_reports: of the material; a sub-community's report counts as four entities.

    >>> community_rating(1, 0, 0), community_rating(60, 240, 0)
    (1.8, 10.0)
    """
    size = min(n_entities + 4 * n_reports, 60)
    return round(min(1.0 + 0.8 * math.sqrt(size) + min(n_relations / max(n_entities, 1), 3.0), 10.0), 1)


def report_row(community_id: str, level: int, record: ReportRecord, refs: dict[str, str]) -> dict[str, Any]:
    """Return a REPORTS row; a reference that names nothing of the material is dropped and counted.

    Where the model was not asked for a rating it is computed from the numbers of records.
    """
    count = Counter(ref[0] for ref in refs)
    counted = f"{count['E']} entities, {count['R']} relations, {count['C']} sub-communities."
    is_rated = record.rating is not None
    findings = []
    dropped = 0
    for finding in record.findings:
        known = [refs[ref] for ref in finding.references if ref in refs]
        dropped += len(finding.references) - len(known)
        kinds = {refs[ref]: ref[0] for ref in finding.references if ref in refs}
        findings.append(
            {
                "summary": finding.summary,
                "explanation": finding.explanation,
                "entity_ids": [key for key in dict.fromkeys(known) if kinds[key] == "E"],
                "relation_ids": [key for key in dict.fromkeys(known) if kinds[key] == "R"],
            }
        )
    return {
        "community_id": community_id,
        "level": level,
        "title": record.title,
        "summary": record.summary,
        "rating": record.rating if is_rated else community_rating(count["E"], count["R"], count["C"]),
        "rating_explanation": record.rating_explanation if is_rated else counted,
        "findings": findings,
        "origin": "model",
        "n_dropped_references": dropped,
    }


def members_report(community_id: str, level: int, members: Sequence[ReportMember]) -> dict[str, Any]:
    """Return the REPORTS row of a community too small to be worth a call: a list of its members."""
    ranked = sorted(members, key=lambda member: (-member.degree, member.entity_id))
    names = ", ".join(member.name for member in ranked)
    return {
        "community_id": community_id,
        "level": level,
        "title": shorten(names, 120),
        "summary": " ".join(f"{m.name}: {m.description}" if m.description else f"{m.name}." for m in ranked),
        "rating": 0.0,
        "rating_explanation": "",
        "findings": [],
        "origin": "members",
        "n_dropped_references": 0,
    }


def main_members(members: Iterable[tuple[str, str, str]], max_chars: int, member_chars: int) -> str:
    """Return members as text in the place of a report, a line each, as many as have room.

    Args:
        members: (name, type, description), most prominent first.
        max_chars: of all together; the first one is always in.

    >>> main_members([("Ada", "person", "wrote notes"), ("Engine", "work", "")], 40, 30).splitlines()
    ['Ada (person): wrote notes', 'Engine (work)']
    """
    lines: list[str] = []
    room = max_chars
    for name, kind, description in members:
        said = f"{one_line(name)} ({one_line(kind)})"
        line = shorten(f"{said}: {one_line(description)}" if description.strip() else said, member_chars)
        room -= len(line) + 1
        if lines and room < 0:
            break
        lines.append(line)
    return "\n".join(lines)


def report_text(report: dict[str, Any]) -> str:
    """Return a report as plain text: its summary, then a paragraph for each finding."""
    lines = [report["summary"]]
    for finding in report["findings"]:
        summary = finding["summary"].rstrip(".")
        lines.append(f"{summary}. {finding['explanation']}" if finding["explanation"] else f"{summary}.")
    return "\n".join(one_line(line) for line in lines if line)
