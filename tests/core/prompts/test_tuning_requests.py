"""Examples of extraction in the form of the replies that an endpoint gives."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_parsing import EntityRecord, ExtractionReply, RelationRecord, parse_extraction
from hirag_dist.core.prompts.tuning_requests import example_text
from hirag_dist.types import ChatReply

FOUND = ExtractionReply(
    (EntityRecord("Anna Berg", "person", "A keeper."), EntityRecord("Cape Stone", "location", "A cape.")),
    (RelationRecord("Anna Berg", "Cape Stone", "She kept its lamp.", 0.0),),
)


@pytest.mark.parametrize("form", ["extract-graph", None])
def test_an_example_is_a_reply_that_the_parser_reads(form: str | None) -> None:
    text = example_text("Anna Berg kept the lamp of Cape Stone.", FOUND, form)
    passage, _, reply = text.partition("\nReply:\n")
    assert passage == "<text>\nAnna Berg kept the lamp of Cape Stone.\n</text>"
    assert parse_extraction(ChatReply(reply)) == FOUND


@pytest.mark.parametrize("form", ["extract-entities", None])
def test_an_example_of_entities_alone_has_no_relations(form: str | None) -> None:
    _, _, reply = example_text("A text.", FOUND, form, relations=False).partition("\nReply:\n")
    assert "relation" not in reply
    assert parse_extraction(ChatReply(reply)).entities == FOUND.entities
