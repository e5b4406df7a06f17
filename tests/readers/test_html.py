from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.readers.html import parse_page

PAGE = """<!DOCTYPE html><html><head><title>Stave  One</title><style>p{}</style>
<script>var x = "<p>no</p>";</script>
</head><body><nav><a href="#x">skip</a></nav><h1>Marley&rsquo;s Ghost</h1>
<p>Alice <b>met</b>
 Bob<i>by</i>.<!-- not this --> Really.</p><div>one<div>two</div>three</div>
<ul><li>first</li><li>second <a>link</a></li></ul>line<br>break
<table><tr><th>Name</th><th>Role</th></tr><tr><td>Scrooge</td><td>miser &amp; lender</td></tr></table>
<pre>  kept
    as is</pre><template><p>no</p></template><p hidden>no</p><noscript>no</noscript>last</body></html>"""


def test_blocks_are_on_lines_of_their_own(read: Any) -> None:
    (found,) = read("page.html", PAGE)
    assert found.title == "Stave One"
    assert found.text == (
        "Marley’s Ghost\n\nAlice met Bobby. Really.\n\none\ntwo\nthree\n\nfirst\nsecond link\n\n"
        "line\nbreak\n\nName | Role\nScrooge | miser & lender\n\n  kept\n    as is\n\nlast"
    )


@pytest.mark.parametrize("declaration", ['<meta charset="{}">', '<?xml version="1.0" encoding="{}"?>'])
def test_the_declared_charset_is_honoured(read: Any, declaration: str) -> None:
    page = declaration.format("koi8-r").encode() + "<p>Привет".encode("koi8-r")
    (found,) = read("page.htm", page)
    assert found.text == "Привет"


@pytest.mark.parametrize("page", ["", "<script>x</script>"])
def test_pages_without_text(read: Any, page: str) -> None:
    assert [each.reason for each in read("page.html", page)] == ["the text is empty"]


def test_places_are_sections_with_the_anchors_before_them(read: Any) -> None:
    page = (
        "<body><p>Before.</p><h1 id='top'>The <i>Guide</i></h1><p>One.</p><div id='two'>Two <b id='in'>words</b>.</div>"
        "<h2><span id='deep'></span>Install &amp; run</h2><p>Three.\x00</p><a name='old'></a><pre>four\r\n</pre>"
        "<section id='hidden' hidden>no</section><h3> </h3><p>Five.</p></body>"
    )
    (found,) = read("a.html", page)
    assert [(place.section, place.anchor, found.text[place.start : place.end].split()) for place in found.places] == [
        ("The Guide", "top", ["The", "Guide", "One."]),
        ("The Guide", "two", ["Two", "words."]),
        ("Install & run", "deep", ["Install", "&", "run", "Three."]),
        ("Install & run", "old", ["four", "Five."]),
    ]
    assert read("a.html", "<p>Nothing to point at.</p>")[0].places == ()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("10<sup><em>6</em></sup> litres", "10^6 litres"),
        ("10<sup> 6</sup>", "10^6"),
        ("10<sup><span>-</span>3</sup>", "10^-3"),
        ("3<sup>1</sup>/<sub>2</sub> cups", "3 1/2 cups"),
        ("<sup>3</sup>\u2044<sub>4</sub> litre", "3\u20444 litre"),
        ("101<sub>2</sub> is 5", "101_2 is 5"),
        ("CO<sub>2</sub>, the 1<sup>st</sup>", "CO2, the 1st"),
    ],
)
def test_raised_and_lowered_numbers_stay_apart(page: str, text: str) -> None:
    found = parse_page(f"<p>{page}</p>".encode(), 1 << 28)
    assert not isinstance(found, str)
    assert found.text == text
