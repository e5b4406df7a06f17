from __future__ import annotations

import pyarrow as pa

from hirag_dist.indexing.stages.skeleton import CHUNK_IDS, ChooseChunks, DivideChunks, ListTerms
from tests.bare_services import SERVICES
from tests.indexing.stages.test_extract_nlp import chunks

TEXTS = ["plague of Athens and siege of Troy", "plague plague Athens", "siege Troy", "nothing else"]


async def chosen(texts: list[str], max_tokens: int, at_least_one: bool = False) -> list[str]:
    terms = await ListTerms().run({"chunks": chunks(texts).select(["chunk_id", "text", "n_tokens"])}, SERVICES)
    found = await ChooseChunks(max_tokens, at_least_one).run(terms, SERVICES)
    ids: list[str] = found["chosen"]["chunk_id"].to_pylist()
    return ids


async def test_the_chunk_between_the_others_is_chosen_first() -> None:
    assert await chosen(TEXTS, 10) == await chosen(TEXTS, 8, at_least_one=True) == ["c0"]
    assert await chosen(TEXTS, 4 * 9) == ["c0", "c1", "c2", "c3"]
    assert await chosen(TEXTS, 8) == await chosen([], 9, at_least_one=True) == []


async def test_the_share_is_one_of_the_extraction_too() -> None:
    """A quarter of the tokens is one chunk of four; the first one's extraction takes more than a quarter of all."""
    assert await chosen(TEXTS, 9) == []
    long = [f"plague of Athens {'and siege of Troy ' * 400}", *TEXTS[1:]]
    assert await chosen(long, 18) == []
    assert await chosen(long, 30) == ["c0"]


async def test_every_chunk_is_on_one_side() -> None:
    table = chunks(TEXTS)
    ids = pa.table([pa.array(["c0", "c2"])], schema=CHUNK_IDS)
    found = await DivideChunks().run({"chunks": table, "chosen": ids}, SERVICES)
    assert found["central"]["chunk_id"].to_pylist() == ["c0", "c2"]
    assert found["others"]["chunk_id"].to_pylist() == ["c1", "c3"]
