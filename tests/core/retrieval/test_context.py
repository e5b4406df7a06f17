"""The rendered context keeps to its budget, cannot be forged from inside, and its citations are checked."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hirag_dist.core.retrieval.citations import CitationReader
from hirag_dist.core.retrieval.context import (
    PLAIN,
    citations,
    community_text,
    entity_text,
    is_plain,
    relation_text,
    render_context,
    source_text,
    text_form,
)
from hirag_dist.core.text.tokens import counter
from hirag_dist.types import Citation, ClaimItem, CommunityItem, EntityItem, Retrieval, SourceItem, TripleItem

COUNT = counter("o200k_base")
NASTY = st.text(
    st.sampled_from("ab Z9.,;:!?…—[]#ERCS1\n\r\t \u00a0\u2028\x85\u3000中文。🧑🏽‍🚀é\u0301عر")
    | st.characters(exclude_categories=["Cs"]),
    max_size=300,
)
LONG = "Some words that go on and on about the matter at hand. " * 40


def retrieval(texts: Sequence[str] = (LONG,) * 8) -> Retrieval:
    """Return a retrieval with an entity, a community, a relation and a source for each text."""
    given = [(f"{at}", text[:30], text) for at, text in enumerate(texts)]
    return Retrieval(
        "q",
        "hirag",
        "snap",
        local=tuple(EntityItem("e" + own, name, "x\n##", text, 0, 0.5) for own, name, text in given),
        communities=tuple(CommunityItem("c" + own, 0, name, text, 5.0, 1, 0.5) for own, name, text in given),
        triples=tuple(
            TripleItem("r" + own, "a", "b", name, text[9:20], "extracted", text, 1.0, 0.5) for own, name, text in given
        ),
        sources=tuple(SourceItem("s" + own, "d", name, "u", 0, 9, text, 0.5) for own, name, text in given),
    )


def check_citations(text: str, found: Retrieval) -> tuple[str, tuple[Citation, ...], int]:
    """Return an answer as a reader shows it, its citations, and the number of references that name nothing."""
    reader = CitationReader(found.context_refs)
    shown = reader.feed(text) + reader.finish()
    return shown, citations(reader.cited, found), reader.dropped


def test_what_fits_is_whole_and_every_reference_stands_in_the_text() -> None:
    rendered = render_context(retrieval(["Short."] * 8), 10_000, COUNT)
    assert set(rendered.context_refs) == {f"{kind}{at}" for kind in "ERCS" for at in range(1, 9)}
    assert all(f"[{ref}] " in rendered.context for ref in rendered.context_refs)
    assert rendered.context_refs["S3"] == "s2"


@pytest.mark.parametrize("budget", [30, 60, 100, 150])
def test_a_budget_smaller_than_the_best_passage_cuts_the_passage(budget: int) -> None:
    for found in (retrieval(), replace(retrieval(), sources=())):
        rendered = render_context(found, budget, COUNT)
        assert rendered.context_refs
        assert COUNT(rendered.context) == rendered.context_tokens <= budget
    lines = render_context(retrieval(), budget, COUNT).context.partition("## Sources\n[S1] ")[2].splitlines()
    assert lines[1].startswith("Some words"), "after the title"


def test_the_best_passage_has_half_of_the_budget_where_it_needs_it() -> None:
    rendered = render_context(retrieval(), 1200, COUNT)
    assert f"{LONG.strip()}\n" in f"{rendered.context}\n"
    assert {ref[0] for ref in rendered.context_refs} == set("ERCS")
    cut = render_context(retrieval(), 600, COUNT)
    assert {ref[0] for ref in cut.context_refs} == set("ERCS"), "a longer one leaves the others their half"


def test_local_search_shares_its_budget_as_graphrag_does() -> None:
    claims = tuple(ClaimItem(f"k{i}", "Ann", "Bob", "", "", "debt", "true", "", "", LONG, "", "") for i in range(8))
    rendered = render_context(replace(retrieval(), mode="graphrag-local", claims=claims), 8000, COUNT)
    sections = {part.split("\n", 1)[0]: COUNT(part) for part in rendered.context.split("\n\n")}
    assert list(sections) == ["## Entities", "## Relations", "## Claims", "## Communities", "## Sources"]
    shares = dict(zip(sections, (0.15, 0.15, 0.05, 0.15, 0.5), strict=True))
    assert all(size <= 8000 * shares[title] * 1.2 for title, size in sections.items()), "what is spare goes on"
    assert sections["## Sources"] > 3000
    assert rendered.context_refs["K1"] == "k0"
    text, (cited,), _ = check_citations("Ann owes Bob [K1], and more [K9].", rendered)
    assert text == "Ann owes Bob [K1], and more."
    assert (cited.kind, cited.id, cited.title) == ("claim", "k0", "Ann → Bob")


@pytest.mark.parametrize("space", [" ", "\u3000", "\n", " \n\t", "\u200b"])
@pytest.mark.parametrize("text", ["See [S1{}] there", "(S1{})", "[S1,{}E2]", "x\n[S1\n{}]"])
def test_text_from_documents_cites_nothing_however_wide_it_was(space: str, text: str) -> None:
    forged = text.format(space * 200)
    found = replace(retrieval([forged]), local=(EntityItem("e", forged, forged, forged, 0, 0.1),))
    rendered = render_context(found, 100_000, COUNT)
    for line in rendered.context.splitlines():
        told = line.split("]", 1)[-1] if line.startswith("[") else line
        assert check_citations(told.replace("\u200b", ""), rendered)[1:] == ((), 0), line
    whole = rendered.context.replace("\u200b", "")
    assert len(check_citations(whole, rendered)[1]) == len(rendered.context_refs), "the records' own"
    assert check_citations(whole, rendered)[2] == 0


PIECES = st.lists(
    st.sampled_from(
        ["[", "]", "(", ")", "【", "】", "S1", "E1", "C1", "1", "†", "—", ",", "p", "see", "source", " ", "x", "."]
    ),
    max_size=6,
).map("".join)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(PIECES, min_size=3, max_size=3))
@example(["", "", "(S1†"])  # a claim's subject and object: one pair of brackets within another
def test_fields_side_by_side_cite_nothing(fields: list[str]) -> None:
    """A title that ends in an open bracket and a text that closes it must not be a citation together."""
    name, kind, text = fields
    found = Retrieval(
        "q",
        "graphrag-local",
        "snap",
        local=(EntityItem("e1", name, kind, text, 0, 0.5), EntityItem("e2", text, name, kind, 0, 0.5)),
        communities=(CommunityItem("c1", 0, name, text, 5.0, 1, 0.5),),
        triples=(TripleItem("r1", "a", "b", name, kind, "extracted", text, 1.0, 0.5),),
        claims=(ClaimItem("k1", name, kind, "", "", text, name, kind, text, name, text, ""),),
        sources=(SourceItem("s1", "d", name, "u", 0, 9, text, 0.5), SourceItem("s2", "d", text, "u", 0, 9, name, 0.5)),
    )
    rendered = render_context(found, 100_000, COUNT)
    marks = [f"[{ref}]" for ref in rendered.context_refs]
    assert len(marks) == 7
    rest = rendered.context
    for mark in marks:
        at = rest.index(mark)
        assert check_citations(rest[:at], rendered)[1:] == ((), 0)
        rest = rest[at + len(mark) :]
    assert check_citations(rest, rendered)[1:] == ((), 0)
    read, _, dropped = check_citations(rendered.context, rendered)
    assert (read, dropped) == (rendered.context.strip(), 0)


def test_a_record_that_is_cut_leaves_no_bracket_open() -> None:
    text = "x " * 100 + "[S1† as is written at length] " + LONG
    for budget in range(60, 260, 3):
        found = Retrieval("q", "local", "s", sources=(SourceItem("s0", "d", "T", "u", 0, 9, text, 0.5),))
        rendered = render_context(found, budget, COUNT)
        quoted = rendered.context.partition("[S1]")[2] + "\n[S2] next"
        assert check_citations(quoted, replace(rendered, context_refs={"S1": "s0"}))[1] == ()
        assert COUNT(rendered.context) == rendered.context_tokens <= budget


@settings(derandomize=True, deadline=None, max_examples=30)
@given(texts=st.lists(NASTY, max_size=5), repeated=st.integers(1, 12), budget=st.integers(1, 600))
def test_no_text_passes_the_budget_or_opens_a_record(texts: list[str], repeated: int, budget: int) -> None:
    rendered = render_context(retrieval([text * repeated for text in texts]), budget, COUNT)
    assert COUNT(rendered.context) == rendered.context_tokens <= budget
    lines = rendered.context.splitlines()
    assert [line[1:].split("]")[0] for line in lines if line.startswith("[")] == list(rendered.context_refs)
    sections = [line for line in lines if line.startswith("##")]
    assert sections == [
        f"## {name}" for name in ("Entities", "Bridge", "Communities", "Sources") if f"## {name}" in lines
    ]


def test_each_level_keeps_to_its_share_and_what_is_left_goes_on() -> None:
    budget = 4000
    shares = {"Entities": 0.25, "Bridge": 0.2, "Communities": 0.25, "Sources": 0.3}
    full = render_context(retrieval(), budget, COUNT)
    room = 0.0
    for section in full.context.split("\n\n"):
        title = section.splitlines()[0].removeprefix("## ")
        room += shares.pop(title) * budget
        size = COUNT(section)
        assert room - 600 < size <= room, title  # 600: a record that is neither whole nor worth cutting
        room -= size
    assert not shares
    few = render_context(replace(retrieval(), local=retrieval(["Short."] * 8).local), budget, COUNT)
    before, after = (text.context.partition("## Bridge")[2].partition("## Communities")[0] for text in (full, few))
    assert COUNT(after) > COUNT(before) + 300  # the bridge has what the entities did not need


@pytest.mark.parametrize("tokenizer", ["o200k_base", "cl100k_base"])
@settings(deadline=None, max_examples=40, derandomize=True)
@given(name=st.text(max_size=12), description=st.text(max_size=40), at=st.integers(1, 12_000))
def test_tokens_of_a_reference_and_of_its_text_add_up(tokenizer: str, name: str, description: str, at: int) -> None:
    """Snapshots count texts without references, which differ from question to question."""
    count = counter(tokenizer)
    name, description = (text.encode("utf-8", "replace").decode() for text in (name, description))
    for kind in "ERCS":
        for text in (source_text(name, 0, 9, description), relation_text(name, name, description)):
            assert count(f"[{kind}{at}]{text}") == count(f"[{kind}{at}]") + count(text)


RECORD_PIECES = st.lists(
    st.sampled_from(
        ["word", " ", "  ", "   ", "\n", "\n\n", " \n", "\t", "\r", "\u2028", "\u200b", "[S1]", "(e", " 3)"]
    )
    | st.sampled_from([" 3)", "## ", "[", "<s>", "(29.1 km2)", "é", "中文", ".", "\u00a0", "[INST]", "\ufffd"]),
    max_size=14,
).map("".join)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(RECORD_PIECES, RECORD_PIECES)
@example("A title", "Two  lines\n\n of text ")
def test_texts_of_several_lines(title: str, text: str) -> None:
    form = text_form(title, text)
    assert source_text(title, 3, 9, text, form) == source_text(title, 3, 9, text)
    assert community_text(title, 2, 7.5, text, form) == community_text(title, 2, 7.5, text)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(RECORD_PIECES, RECORD_PIECES, RECORD_PIECES)
def test_texts_of_one_line(name: str, other: str, text: str) -> None:
    if is_plain(name) and is_plain(text):
        assert entity_text(name, "(odd [S1]", 1, text, PLAIN) == entity_text(name, "(odd [S1]", 1, text)
        if is_plain(other):
            assert relation_text(name, other, text, PLAIN) == relation_text(name, other, text)
