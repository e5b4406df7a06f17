"""The built-in model behind the port."""

from __future__ import annotations

from hirag_dist.core.prompts.templates import Prompts, extraction_request
from hirag_dist.llm.rule_based import ExtractiveModel, reply_to
from hirag_dist.types import ChatRequest


def request() -> ChatRequest:
    text = "Ebenezer Scrooge lives in London. Bob Cratchit works for Ebenezer Scrooge."
    return extraction_request("extract-graph", text, Prompts(), ["person", "location"], None)


def n_words(text: str) -> int:
    return len(text.split())


async def test_replies_with_the_text_and_its_cost() -> None:
    asked = request()
    reply = await ExtractiveModel(n_words).complete(asked)
    assert reply.text == reply_to(asked.messages, None)
    assert reply.finish_reason == "stop"
    assert reply.model == "extractive"
    assert reply.input_tokens == sum(n_words(message.content) for message in asked.messages)
    assert reply.output_tokens == n_words(reply.text)


async def test_streams_the_same_text_in_pieces() -> None:
    model = ExtractiveModel(n_words)
    *pieces, reply = [piece async for piece in model.stream(request())]
    assert len(pieces) > 5
    assert reply == await model.complete(request())
    assert "".join(map(str, pieces)) == reply.text
    await model.close()
