"""Markdown: front matter gives title and labels and goes; the rest stays as written."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import yaml

from hirag_dist.readers.document_builder import (
    ID_FIELDS,
    LABEL_FIELDS,
    TITLE_FIELDS,
    UNSAID,
    DocumentBuilder,
    find_field,
)
from hirag_dist.readers.encoding import clean_text
from hirag_dist.readers.model import Document, TextPlace, Unreadable

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_OPENED = re.compile(r"---[ \t]*\n((?:.*\S.*(?:\n|\Z))*)")  # up to an empty line
_LABELS = re.compile(rf"^[ \t]*[\"']?(?:{'|'.join(LABEL_FIELDS)})[\"']?[ \t]*:", re.MULTILINE | re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_HEADING_CHARS = 1000  # the pattern is quadratic in the spaces of a line
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKUP = re.compile(r"`|\*{1,3}|<[^<>]*>")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")
_PICTURE = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=%]{64,}")
_MAX_NAME_CHARS = 200
_MAX_FRONT_MATTER = 1 << 16  # characters; YAML takes some hundred times as much memory


def read_markdown(text: str, maker: DocumentBuilder) -> Document | Unreadable:
    """Return a Markdown text as a document.

    Pictures within the text, in base64, are left out. Front matter is YAML between `---` lines at the very start; what
    is no YAML mapping is taken as text, unless it
    names labels: then there is no telling who may read the text, and it is `Unreadable`. The title is its title
    field, else the first heading of the first level outside code, else the file's stem. Places are the sections below
    headings.
    """
    text, fields = _split_front_matter(_PICTURE.sub("", clean_text(text)))
    options = maker.options
    if not fields and _names_labels(text):
        return maker.unreadable(0, "its front matter names labels and is not valid YAML between two lines of ---")
    title_field = find_field(fields, options.title_field, TITLE_FIELDS)
    label_field = find_field(fields, options.label_field, LABEL_FIELDS)
    title = None if title_field is None else fields[title_field]
    labels = UNSAID if label_field is None else fields[label_field]
    id_field = find_field(fields, options.id_field, ID_FIELDS)
    source_id = None if id_field is None else fields[id_field]
    headings = list(_headings(text))
    first = next((name for _, name, level in headings if level == 1), None)
    return maker.document(
        text,
        title=title,
        labels=labels,
        default_title=first,
        source_id=source_id,
        places=_places(headings, len(text)),
        properties=fields,
    )


def _split_front_matter(text: str) -> tuple[str, dict[str, object]]:
    match = _FRONT_MATTER.match(text)
    if match is None or len(match[0]) > _MAX_FRONT_MATTER:
        return text, {}
    try:
        fields = yaml.safe_load(match[1] or "")
    except Exception:  # yaml raises KeyError and IndexError too, of odd values
        return text, {}
    if not isinstance(fields, dict):
        return text, {}
    return text[match.end() :].lstrip("\n"), {str(name): value for name, value in fields.items()}


def _names_labels(text: str) -> bool:
    """Check that a text begins with front matter, closed or not, that has a field for labels."""
    matter = _FRONT_MATTER.match(text) or _OPENED.match(text)
    return matter is not None and _LABELS.search(matter[1] or "") is not None


def _headings(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield (start, text, level) of the headings outside code, in the form with number signs."""
    fence = ""
    at = 0
    for line in io.StringIO(text):
        mark = _FENCE.match(line)
        if mark:
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = None if fence else _HEADING.match(line[:_HEADING_CHARS])
        if heading:
            yield at, heading[2], len(heading[1])
        at += len(line)


def _places(headings: Sequence[tuple[int, str, int]], n_chars: int) -> Iterator[TextPlace]:
    """Yield the sections below headings, with the anchors that GitHub and most converters give them."""
    ends = [*(start for start, _, _ in headings[1:]), n_chars]
    seen: Counter[str] = Counter()
    for (start, heading, _), end in zip(headings, ends, strict=False):
        name = " ".join(_MARKUP.sub("", _LINK.sub(r"\1", heading)).split())
        slug = _NOT_IN_SLUG.sub("", name.lower()).replace(" ", "-")
        anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1
        yield TextPlace(start, end, "section", section=name[:_MAX_NAME_CHARS], anchor=anchor[:_MAX_NAME_CHARS])
