"""`eval claims` from its material to its findings: claims listed by a model, or recorded ones counted again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hirag_dist.evaluation.claims import ClaimCounts, list_claims, read_claims
from hirag_dist.evaluation.claims_report import claim_results, claim_sections, claim_table
from hirag_dist.evaluation.findings import Findings
from hirag_dist.evaluation.judge_run import AnswerMaterial
from hirag_dist.evaluation.metrics.win_rates import VerdictTable
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.verdict_records import read_verdicts


async def count_claims(
    session: Session, *, material: AnswerMaterial, role: str, judgements: Sequence[str] = ()
) -> Findings:
    """Have claims of the answers listed, and return what is found.

    Args:
        role: who lists them.
        judgements: files of a judge's verdicts on the same answers.

    Raises:
        InputError: a file holds nothing that can be used.
    """
    verdicts = _verdicts(session, judgements)  # before anything is paid
    counts = await list_claims(session, await material.gather(session), role)
    return _findings(counts, verdicts, material.counts)


async def recount_claims(session: Session, *, paths: Sequence[str], judgements: Sequence[str] = ()) -> Findings:
    """Count recorded claims, and return what is found.

    Raises:
        InputError: a file holds nothing that can be used.
    """
    counts, unreadable = read_claims(paths)
    session.refuse_records("claims", unreadable)
    return _findings(counts, _verdicts(session, judgements), {})


def _verdicts(session: Session, judgements: Sequence[str]) -> VerdictTable | None:
    if not judgements:
        return None
    recorded = read_verdicts(judgements)
    session.refuse_records("verdicts", recorded.unreadable)
    return recorded.verdicts


def _findings(counts: ClaimCounts, verdicts: VerdictTable | None, read: Mapping[str, int]) -> Findings:
    results = claim_results(counts, verdicts)
    return Findings(results, claim_sections(results), [claim_table(results)], read)
