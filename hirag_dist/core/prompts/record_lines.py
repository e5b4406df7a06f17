"""Lines of delimited replies: where a record ends, and the next one begins."""

from __future__ import annotations

import re

from hirag_dist.core.prompts.templates import FIELD

# Runs are bounded, so that no reply makes the search quadratic.
_LINE_END = r"[ \t]{0,20}(?:\r?\n|\Z)"
_RECORD = (
    r"""[\s\-*•>\d.)(\["'`“”]{0,20}(?:entity|relation|relationship|claim|unit|answer)\b["'`“”*]{0,20}\s{0,20}"""
    + re.escape(FIELD)
)
_BREAK = re.compile(rf"\r?\n|##(?={_LINE_END}|{_RECORD})", re.IGNORECASE)


def record_lines(text: str) -> list[str]:
    """Return the lines of a delimited reply, each with one record at most.

    Some models put `##` between records, with or without a line break. It ends a record only where the next one begins
    or the line ends: in a name or a text (`C##`, a heading, a URL) it is a part of it.

    >>> record_lines("entity<|>C##<|>language<|>See ## Use.##relation<|>C##<|>D<|>Like.<|>5")
    ['entity<|>C##<|>language<|>See ## Use.', 'relation<|>C##<|>D<|>Like.<|>5']
    """
    return _BREAK.split(text)
