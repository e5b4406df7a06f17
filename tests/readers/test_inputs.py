"""Files of `inputs/` that readers are apt to get wrong: each gives the text that its program shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.readers import Document, ReadOptions, find_inputs, read_source

INPUTS = Path(__file__).with_name("inputs")
FERRY = "Die Fähre Möwe verließ Büsum um 7 Uhr."
GATES = ["The lock gates of Portumna were renewed by Shannon Works in 2016."]
PUMPS = ["## Pumps\n\nStation Athlone pumps 4,200 m3 an hour.\n\nStation Banagher is closed."]
SHIPS = ["The ferry Gannet left Cobh at dawn.", "The ferry Petrel stayed in Cobh."]
TIDES = "The tide tables of Cobh are printed by Dara Walsh.\n"

TEXTS = {
    "caps_greek_iso8859_7.txt": [
        "ΚΑΝΟΝΙΣΜΟΣ ΛΕΙΤΟΥΡΓΙΑΣ ΤΟΥ ΛΙΜΕΝΑ ΤΗΣ ΝΑΥΠΛΙΟΥ\nΤα πλοία μπαίνουν στο λιμάνι το πρωί.\n"
    ],
    "caps_russian_cp1251.txt": [
        "ПРИКАЗ О ПОРЯДКЕ СУДОХОДСТВА ПО РЕКЕ\n"
        "Суда проходят шлюз по очереди. Смотритель шлюза открывает ворота утром.\n"
    ],
    "csv_sep_line.csv": ["The boat came back.", "The lamp went out."],
    "html_charset_undefined.html": [FERRY],
    "html_charset_utf16_declared.html": [FERRY],
    "html_exponents.html": [
        "The river carries 10^6 litres a second, 3·10^-2 of the lake. The law is v^2=2gh for all weirs."
    ],
    "html_hidden_by_style.html": ["The weir is open."],
    "md_embedded_picture.md": [
        "# Weir\n\nThe weir of Meelick was built by Shannon Works.\n\n![plan]()\n\nIt was mended in 2010.\n"
    ],
    "md_frontmatter_bool_tag.md": [f"---\ntitle: Tide tables\nchecked: !!bool perhaps\n---\n\n{TIDES}"],
    "md_frontmatter_empty_int.md": [f'---\ntitle: Tide tables\nedition: !!int ""\n---\n\n{TIDES}'],
    "records_formfeed.tsv": ["Page one of the log. Page two of the log.", "The boat came back."],
    "records_nel.csv": ["The keeper wrote  and then the lamp went out.", "The boat came back."],
    "records_nel.jsonl": ["The keeper wrote\n and then the lamp went out.", "The boat came back."],
    "docx_math.docx": [
        "Give the pump 3/4 of a litre of oil. The boiler holds 10^4 litres. The safe pressure is p=2st/d. "
        "The side of the tank is 27^(1/3) metres."
    ],
    "docx_superscripts.docx": ["The sample holds 10^9 grains and 4·10^-3 mol of CO2. The fee is ~~250~~180 euros."],
    "docx_symbols.docx": ["Angle β is 40 degrees; Left Right."],
    "docx_table_grid_before.docx": [
        "Harbour masters\n\n| Name | Port | Since |\n| --- | --- | --- |\n| Orla Brennan | Kinsale | 2011 |\n"
        "|  | Dingle | 2019 |"
    ],
    "epub_lost_chapters.epub": [
        "\n\n".join(
            f"{name} lock\n\nThe {name.lower()} lock is kept by keeper {name}son."
            for name in ("First", "Second", "Third", "Fifth")
        ),
        "! chapter d is not in the list of the book's files",
        "! chapter ch6.xhtml is not in the file",
    ],
    "mail_charset_undefined.eml": ["# Tides\n\nFrom: orla@example.org\n\nDie Fähre fährt um 7 Uhr."],
    "mail_text_picture_text.eml": [
        "# Survey of the quay\n\nFrom: Orla <orla@example.org>\nTo: Dara <dara@example.org>\n"
        "Date: 2024-03-06 09:00:00+01:00\n\nThe north wall is sound.\n\nThe south wall must be closed before Friday."
    ],
    "parquet_far_dates.parquet": SHIPS,
    "parquet_ns_dates.parquet": SHIPS,
    "pdf_form.pdf": [
        "Application for a mooring permit Name of the boat:\nHome port:\nOwner:\nInsured:\n\n"
        "boat: Grey Heron\n\nport: Kinsale\n\nowner: Orla Brennan\n\ninsured: yes"
    ],
    "pptx_alternate_content.pptx": PUMPS,
    "slide_show.ppsx": PUMPS,
    "word_template.dotx": GATES,
    "word_with_macros.docm": GATES,
    "xlsx_numbers.xlsx": [
        "## Berths\n\n| what | value |\n| --- | --- |\n| share of free berths (percent format) | 12.5% |\n"
        "| fee rate, the value is in percent (quoted sign) | 12.5% |\n"
        "| fee rate, the value is in percent (escaped sign) | 12.5% |\n"
        "| depth with a word that has a sign | 3.5 m at 100% tide |\n| permit number, 16 digits | 4917203355018832 |\n"
        "| container number, 18 digits | 491720335501883300 |\n| post code with leading zero | 01067 |\n"
        "| count in a file of another language | 42 |\n"
        "| text with a carriage return as the format escapes it | first line second line |"
    ],
}


READ_HERE = {".csv", ".html", ".jsonl", ".md", ".tsv", ".txt"}  # other formats are read in processes of their own


@pytest.mark.parametrize(
    "name",
    [name if Path(name).suffix in READ_HERE else pytest.param(name, marks=pytest.mark.integration) for name in TEXTS],
)
def test_texts(name: str) -> None:
    (source,) = find_inputs([str(INPUTS / name)])
    found = read_source(source, ReadOptions())
    assert [each.text if isinstance(each, Document) else f"! {each.reason}" for each in found] == TEXTS[name]


def test_a_folder_without_the_lock_files_of_office_programs() -> None:
    assert {Path(source.display).name for source in find_inputs([str(INPUTS)])} == TEXTS.keys()
    assert (INPUTS / "~$survey.docx").exists()
