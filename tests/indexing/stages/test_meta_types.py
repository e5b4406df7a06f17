"""Meta types that a model proposes from a sample of the corpus."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.meta_types import EXCERPTS, ProposeMetaTypes
from hirag_dist.types import ChatRequest
from tests.indexing.stages.test_packed_calls import Chat


def services_with(say: Callable[[ChatRequest], str]) -> Services:
    return Services(Chat(say), None, None, None, len)  # type: ignore[arg-type]


async def test_one_call_reads_the_excerpts_of_the_lowest_ids() -> None:
    seen: list[str] = []

    def reply(request: ChatRequest) -> str:
        seen.append(request.messages[1].content)
        return "- Legal Principle\n2. court\n* statute.\ncourt"

    table = pa.table({"chunk_id": list("cab"), "text": ["third", "first", "second"]}, schema=EXCERPTS)
    found = await ProposeMetaTypes(2, Prompts(), ("m",)).run({"excerpts": table}, services_with(reply))
    assert found["meta_types"]["meta_type"].to_pylist() == ["legal principle", "court", "statute"]
    assert len(seen) == 1
    assert seen[0].index("first") < seen[0].index("second")
    assert "third" not in seen[0]


@pytest.mark.parametrize("said", ["court", "These documents are about several things that courts do, and about law."])
async def test_a_reply_without_a_list_is_a_dead_letter(said: str) -> None:
    table = pa.table({"chunk_id": ["a"], "text": ["first"]}, schema=EXCERPTS)
    found = await ProposeMetaTypes(2, Prompts(), ("m",)).run({"excerpts": table}, services_with(lambda request: said))
    assert found["meta_types"].num_rows == 0
    assert found["rejects"]["unit_id"].to_pylist() == ["meta types"]
