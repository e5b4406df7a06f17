"""One gate for every interface: visibility, tokens, quotas and what is logged are alike in all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from hirag_dist.service.access_log import RequestRecord
from tests.interfaces import INTERFACES, Interface, Question, Reply, Served, callers_file, serving
from tests.leaky_builds import HIDDEN, QUESTIONS, Indexes, corpus
from tests.service import fakes

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]  # indexes, and many servers
each_interface = pytest.mark.parametrize("interface", INTERFACES, ids=lambda each: each.name)
ASKED = [QUESTIONS[0], QUESTIONS[3]]  # of public words, and of hidden ones
RETRIEVING = [each for each in INTERFACES if each.retrieves]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def leaky(made: Indexes, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """An index that leaks if it can; ada sees what carries no label, bob everything."""
    engine = await asyncio.to_thread(made, corpus(1))
    callers = callers_file(tmp_path_factory.mktemp("callers"), ada=[], bob=["secret", "other"], eve=["other"])
    async with serving(engine, callers_file=callers.path, anonymous_labels=frozenset()) as served:
        yield served


async def both(interface: Interface, served: Served, asked: Question) -> list[Reply]:
    """The answer, and the retrieval where the interface has one."""
    replies = [await interface.answer(served, asked)]
    if interface.retrieves:
        replies.append(await interface.retrieve(served, asked))
    return replies


@each_interface
@pytest.mark.parametrize("mode", ["hirag", "naive"])
async def test_no_trace_of_hidden_documents(leaky: Served, interface: Interface, mode: str) -> None:
    for text in ASKED:
        for reply in await both(interface, leaky, Question(text, mode, "ada-token")):
            assert reply.status == "OK"
            asks_for_hidden = HIDDEN in text  # the model repeats the question, in pieces where the answer is streamed
            sent = reply.answer if asks_for_hidden and reply.answer else reply.text
            assert HIDDEN not in sent.replace(text, "").casefold()
    (reply, *_) = await both(interface, leaky, Question(ASKED[0], mode, "bob-token"))
    assert HIDDEN in reply.text, "else there was nothing to leak"


async def test_labels_of_a_request_only_narrow(leaky: Served) -> None:
    for interface in INTERFACES:
        for reply in await both(interface, leaky, Question(QUESTIONS[0], token="ada-token", labels=("secret",))):
            assert (reply.status, reply.found, reply.cited) == ("OK", (), ())
            assert HIDDEN not in reply.text.replace(QUESTIONS[0], "")


@pytest.mark.parametrize("caller", ["ada", "bob", "eve"])
async def test_equal_questions_of_a_caller_have_equal_results(leaky: Served, caller: str) -> None:
    for mode in ("hirag", "naive"):
        asked = Question(QUESTIONS[0], mode, f"{caller}-token")
        answers = [await interface.answer(leaky, asked) for interface in INTERFACES]
        assert len({(reply.status, reply.answer, reply.cited) for reply in answers}) == 1
        assert answers[0].cited
        found = {(await interface.retrieve(leaky, asked)).found for interface in RETRIEVING}
        assert len(found) == 1
        assert found != {()}


@each_interface
async def test_tokens(interface: Interface, tmp_path: Path) -> None:
    callers = callers_file(tmp_path, ada=[]).add("old", expires="2020-01-01T00:00:00Z")
    engine = fakes.FakeEngine()
    async with serving(engine, callers_file=callers.path, poll_s=0.05) as served:
        for token in (None, "eve-token", "old-token", "x" * 3000):
            reply = await interface.answer(served, Question(token=token))
            assert reply.status == "UNAUTHENTICATED", token
            assert "Lighthouse" not in reply.text
        if interface.retrieves:
            assert (await interface.retrieve(served, Question())).status == "UNAUTHENTICATED"
        assert not engine.queries
        assert (await interface.answer(served, Question(token="ada-token"))).status == "OK"
        del callers.callers["ada"]
        callers.add("bob")
        async with asyncio.timeout(20):
            while (await interface.answer(served, Question(token="ada-token"))).status == "OK":
                await asyncio.sleep(0.05)
        assert (await interface.answer(served, Question(token="bob-token"))).status == "OK"


@pytest.mark.smoke
@each_interface
async def test_every_request_is_counted_and_logged_by_the_service(interface: Interface, tmp_path: Path) -> None:
    callers = callers_file(tmp_path, ada=["a", "b"])
    records: list[RequestRecord] = []
    async with serving(fakes.FakeEngine(), callers_file=callers.path) as served:
        served.server.observe(records.append)
        await interface.answer(served, Question(token="ada-token", mode="naive"))
        await interface.answer(served, Question(token="eve-token"))
    assert [(each.method, each.caller, each.code) for each in records] == [
        ("Answer", "ada", "OK"),
        ("Answer", "", "UNAUTHENTICATED"),
    ]
    assert (records[0].labels, records[0].snapshot, records[1].reason) == (2, "s1", "unknown_token")


INJECTED = (
    "line\n\ndata: [DONE]\n\nevent: error\r\n\r\ndata: {}\n",
    '{"type": "error"}\n{"error": {}}\n',
    "<script>alert(1)</script> \u2028 \u2029 \x00 \x1b[31m \u202e",
    '"}]}\\u0000 \\" [E2]',
)


@each_interface
async def test_injected_text_stays_text(interface: Interface) -> None:
    engine = fakes.FakeEngine()
    async with serving(engine) as served:
        for text in INJECTED:
            local = replace(fakes.LIGHTHOUSE, name=text, description=text, entity_id=text)
            engine.whole = replace(fakes.WHOLE, local=(local,), sources=(replace(fakes.WHOLE.sources[0], title=text),))
            engine.answers(text)
            reply = await interface.answer(served, Question(text))
            assert (reply.status, reply.answer) == ("OK", text)
            if interface.retrieves:
                assert (await interface.retrieve(served, Question(text))).found[0] == text


async def test_quotas_are_of_a_caller_and_not_of_an_interface(tmp_path: Path) -> None:
    callers = callers_file(tmp_path).add("ada", quota_per_day=len(INTERFACES))
    async with serving(fakes.FakeEngine(), callers_file=callers.path) as served:
        for status in ("OK", "RESOURCE_EXHAUSTED"):
            replies = [await interface.answer(served, Question(token="ada-token")) for interface in INTERFACES]
            assert [reply.status for reply in replies] == [status] * len(INTERFACES)
