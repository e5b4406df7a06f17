from __future__ import annotations

from hirag_dist.readers.office.placed_text import PlacedText
from hirag_dist.readers.office.word import read_word
from tests.readers.office import makers

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def body(content: str) -> PlacedText:
    """The text of a file with this body."""
    document = f"<w:document {WORD}><w:body>{content}</w:body></w:document>"
    return read_word(makers.with_parts(makers.word(), {"word/document.xml": document}), 10_000)


def test_headings_lists_and_tables() -> None:
    found = read_word(makers.word(), 10_000)
    assert found.text() == (
        "# The lamp\n\nThe keeper lit the lamp.\n\n- Oil\n- Wick\n\n## Parts\n\n"
        "| part | price\\|EUR |\n| --- | --- |\n| lens | 12 |\n\nThe end."
    )
    assert [place["section"] for place in found.places()] == ["The lamp", "Parts"]
    assert (found.title, found.properties["author"]) == ("Manual", "Anna Holm")


def test_tracked_changes_and_controls() -> None:
    found = body(
        "<w:p><w:r><w:t>The </w:t></w:r><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText>"
        "<w:t>old</w:t></w:r></w:del><w:r><w:t> lamp</w:t><w:tab/><w:t>shines</w:t><w:br/><w:t>here</w:t></w:r></w:p>"
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>Within a control.</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    )
    assert found.text() == "The new lamp shines\nhere\n\nWithin a control."


def test_footnotes_follow_their_paragraph() -> None:
    notes = f"<w:footnotes {WORD}><w:footnote w:type='separator' w:id='0'/>"
    notes += "<w:footnote w:id='2'><w:p><w:r><w:t>In 1921.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    data = makers.word()
    relations = makers.part(data, "word/_rels/document.xml.rels").replace(
        "</Relationships>", f'<Relationship Id="n1" Type="{kind}/footnotes" Target="footnotes.xml"/></Relationships>'
    )
    types = makers.part(data, "[Content_Types].xml").replace(
        "</Types>",
        '<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'wordprocessingml.footnotes+xml"/></Types>',
    )
    document = (
        f"<w:document {WORD}><w:body><w:p><w:r><w:t>Lit.</w:t><w:footnoteReference w:id='2'/></w:r></w:p>"
        "<w:p><w:r><w:t>Next.</w:t></w:r></w:p></w:body></w:document>"
    )
    parts = {"word/document.xml": document, "word/footnotes.xml": notes}
    parts |= {"word/_rels/document.xml.rels": relations, "[Content_Types].xml": types}
    assert read_word(makers.with_parts(data, parts), 1000).text() == "Lit.[^2]\n\n[^2]: In 1921.\n\nNext."


def run(text: str, position: str = "") -> str:
    form = f"<w:rPr><w:vertAlign w:val='{position}'/></w:rPr>" if position else ""
    return f"<w:r>{form}<w:t xml:space='preserve'>{text}</w:t></w:r>"


def test_a_fraction_of_raised_and_lowered_digits() -> None:
    half = run("1", "superscript") + run("/") + run("2", "subscript")
    runs = [run("Use "), half, run(" of 3"), half, run(" and 10"), run("6", "superscript"), run("/"), run("2")]
    assert body(f"<w:p>{''.join(runs)}</w:p>").text() == "Use 1/2 of 3 1/2 and 10^6/2"


def test_a_lowered_number_does_not_change_the_number_before_it() -> None:
    low = "subscript"
    base = run("101") + run("1", low) + run("0", low) + run(" and v") + run("1", low) + run(", 10") + run("x", low)
    assert body(f"<w:p>{run('H')}{run('2', low)}{run('O is ')}{base}</w:p>").text() == "H2O is 101_10 and v1, 10x"
