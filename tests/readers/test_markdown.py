from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hirag_dist.readers import Unreadable

Read = Callable[..., list[Any]]


def test_front_matter_gives_title_and_labels_and_goes(read: Read) -> None:
    (found,) = read(
        "a.md", "---\r\ntitle: Stave One\r\nlabels: [staff, hr]\r\n---\r\n\r\n# Ghost\n\n*Marley* was dead.\n"
    )
    assert (found.title, found.labels, found.text) == (
        "Stave One",
        ("staff", "hr"),
        "# Ghost\n\n*Marley* was dead.\n",
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("intro\n\n# First #\n\n# Second\n", "First"),
        ("```sh\n# no heading\n```\n# Real\n", "Real"),
        ("## second level only\n", "a"),
        ("#hashtag\n", "a"),
    ],
)
def test_the_first_heading_is_the_title(read: Read, text: str, title: str) -> None:
    (found,) = read("a.md", text)
    assert (found.title, found.text) == (title, text)


@pytest.mark.parametrize(
    "text",
    [
        "---\nacl: [x\n---\ntext",
        "---\ntitle: a: b\n\nLabels: [x]\n---\ntext",
        "---\ntitle: t\nlabel: x\n\nnever closed",
        "---\n- 'acl' : x\n  - y\nlabels : x\n...\ntext",
    ],
)
def test_damaged_front_matter_that_names_labels_makes_no_public_document(read: Read, text: str) -> None:
    (found,) = read("a.md", text)
    assert isinstance(found, Unreadable)
    assert found.reason == "its front matter names labels and is not valid YAML between two lines of ---"


def test_labels_that_are_none_make_the_file_unreadable(read: Read) -> None:
    (found,) = read("a.md", "---\nacl: {a: b}\n---\ntext")
    assert isinstance(found, Unreadable)
    assert found.reason == "the labels are neither a string nor a list of strings"


def test_places_are_sections_with_anchors(read: Read) -> None:
    text = (
        "---\ntitle: T\n---\nIntro.\n\n# The `Guide` to [Widgets](x.html)!\r\n\nOne.\n```\n# no heading\n```\n"
        "## Set-up\n\nTwo.\n\n### Set-up ###\nThree.\n"
    )
    (found,) = read("a.md", text)
    assert [(place.section, place.anchor) for place in found.places] == [
        ("The Guide to Widgets!", "the-guide-to-widgets"),
        ("Set-up", "set-up"),
        ("Set-up", "set-up-1"),
    ]
    assert [found.text[place.start : place.end].split()[-1] for place in found.places] == ["```", "Two.", "Three."]
    assert found.text.endswith(found.text[found.places[-1].start : found.places[-1].end])
