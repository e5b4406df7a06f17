"""Tests of the prose check: every kind of finding, and text that is none."""

import pytest

from tools.prose import doubles, files, python_findings, refused_words, text_findings


@pytest.mark.parametrize(
    ("source", "rule", "line"),
    [
        ('"""Built anew."""\n', "word", 1),
        ('def f():\n    """Read.\n\n    A reply is made\n    of lines.\n    """\n', "word", 4),
        ("x = 1  # nobody waits\n", "word", 1),
        ("# a reader had\n# better wait\n", "word", 1),
        ('raise ValueError(f"{1} was not told")\n', "word", 1),
        ('logger.info("whoever asks: %s", 1)\n', "word", 1),
        ('option(help="The desk.")\n', "word", 1),
        ('def f():\n    """What is read."""\n', "opening", 2),
        ('def f():\n    """Return what is read."""\n', "opening", 2),
        ("_MOST_ROWS = 3\n", "name", 1),
        ("LEAST_ROWS: int = 3\n", "name", 1),
        ("log = logging.getLogger(__name__)\n", "name", 1),
        ("class QuotaDesk:\n    pass\n", "name", 1),
        ("def f():\n" + 80 * "    pass\n", "size", 1),
        (401 * "x = 1\n", "size", 1),
    ],
)
def test_a_planted_fault_is_found(source: str, rule: str, line: int) -> None:
    (finding,) = python_findings("hirag_dist/planted.py", source)
    assert (finding.rule, finding.line) == (rule, line)


@pytest.mark.parametrize(
    "source",
    [
        '"""Return whether a row is read."""\nlogger = logging.getLogger(__name__)\n',
        'PROMPT = "Whoever is told of the treasury ..."\n',
        '"""The word `told` and the text "told anew".\n\n>>> told(beside)\n"""\n',
        "class Desktop:\n    pass\n",
        "# a workstation\n",
    ],
)
def test_text_that_keeps_the_rules_passes(source: str) -> None:
    assert list(python_findings("hirag_dist/planted.py", source)) == []


def test_markdown_is_checked_outside_code() -> None:
    page = "# Page\n\n```\ntold\n```\nSee [rates](rates.md#told) and `told`.\n\nMade\nof stages.\n"
    (finding,) = text_findings("docs/planted.md", page)
    assert (finding.line, finding.message) == (8, "made of; write: consists of, built from")


def test_only_comments_of_other_files_are_checked() -> None:
    source = "told: 1 # told by the chart\nname: beside\n"
    (finding,) = text_findings("deploy/values.yaml", source)
    assert finding.line == 1


def test_a_phrase_is_found_over_a_line_break() -> None:
    assert [line for line, _ in refused_words("one\ntwo made\n    of three")] == [1]


def test_generated_code_and_samples_are_not_checked() -> None:
    checked = files(["hirag_dist"])
    assert "hirag_dist/errors.py" in checked
    assert not [path for path in checked if "/_pb/" in path or path.startswith("hirag_dist/samples/")]
    assert all(finding.rule == "double" for finding in doubles(checked))
