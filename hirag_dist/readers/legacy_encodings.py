"""Detection of legacy encodings: the encoding under which bytes are likeliest (`character_model`)."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from hirag_dist.readers.character_model import RARE, character_model


@dataclass(frozen=True, slots=True)
class Encoding:
    """A candidate.

    Attributes:
        codec: Python's name for it.
        language: whose characters are expected, as `character_model` names it.
        prior: log of how often it is met, against the most usual ones.
    """

    codec: str
    language: str
    prior: float


ENCODINGS = (
    Encoding("cp1252", "western", 0.0),
    Encoding("gb18030", "chinese", 0.0),
    Encoding("cp932", "japanese", 0.0),
    Encoding("cp949", "korean", 0.0),
    Encoding("big5hkscs", "taiwanese", 0.0),
    Encoding("cp1251", "cyrillic", 0.0),
    Encoding("euc_jp", "japanese", -1.0),
    Encoding("cp1250", "polish", -2.0),
    Encoding("cp1250", "czech", -2.0),
    Encoding("cp1250", "danubian", -2.0),
    Encoding("cp1253", "greek", -1.0),
    Encoding("cp1254", "turkish", -2.0),
    Encoding("cp1255", "hebrew", -1.0),
    Encoding("cp1256", "arabic", -1.0),
    Encoding("cp1257", "baltic", -2.0),
    Encoding("cp874", "thai", -1.0),
    Encoding("koi8_u", "cyrillic", -2.0),
    Encoding("cp866", "cyrillic", -2.0),
    Encoding("iso8859_5", "cyrillic", -3.0),
    Encoding("iso8859_2", "polish", -3.0),
    Encoding("iso8859_2", "czech", -3.0),
    Encoding("mac_roman", "western", -4.0),
    Encoding("cp850", "western", -4.0),
)

ASCII = math.log(1 / 30)
"""Log-probability of an ASCII character, the same under every encoding."""

_STRANGE_PAIR = -5.0
_UTF8_PRIOR, _UTF8_CHARACTER, _UTF8_DAMAGE = -4.0, math.log(1 / 3000), -6.0

_PAIRS = re.compile(r"(?=(\w[^\x00-\x7f]|[^\x00-\x7f]\w))")
_GLUED = re.compile("[^\\W\\d_][€£¥¢¤‚„†‡‰¬¦¯¨¸]")
_LAST_LATIN = "\u024f"


def likeliest(data: bytes) -> tuple[str, float]:
    """Return the codec under which bytes are likeliest, and the natural log of that likelihood.

    Args:
        data: bytes that are not valid UTF-8, kilobytes rather than megabytes; the end may cut a character.

    Returns:
        `utf-8`, for UTF-8 with damaged bytes, or a codec of `ENCODINGS`; the first of equals.
    """
    codecs = ("utf-8", *dict.fromkeys(encoding.codec for encoding in ENCODINGS))
    scores = ((log_likelihood(data, codec), codec) for codec in codecs)
    score, codec = max(scores, key=lambda pair: pair[0])
    return codec, score


def log_likelihood(data: bytes, codec: str) -> float:
    """Return the natural log of how likely bytes are under a codec, by its best language, with the prior.

    Raises:
        ValueError: the codec is neither utf-8 nor in `ENCODINGS`.
    """
    text = data.decode(codec, errors="replace")
    counts = Counter(text)
    ascii_count = sum(count for character, count in counts.items() if character < "\x80")
    if codec == "utf-8":
        damaged = counts["\ufffd"]
        others = counts.total() - ascii_count - damaged
        return _UTF8_PRIOR + ASCII * ascii_count + _UTF8_DAMAGE * damaged + _UTF8_CHARACTER * others
    best = max(
        encoding.prior + _characters(counts, character_model(encoding.language))
        for encoding in ENCODINGS
        if encoding.codec == codec
    )
    return best + ASCII * ascii_count + _STRANGE_PAIR * _strange_pairs(text)


def _characters(counts: Counter[str], model: dict[str, float]) -> float:
    """Return the log-likelihood of the characters that are not ASCII."""
    return sum(count * model.get(character, RARE) for character, count in counts.items() if character >= "\x80")


def _strange_pairs(text: str) -> int:
    """Count pairs that texts do not have: a letter, then another script's letter, a capital or a sign."""
    count = len(_GLUED.findall(text))
    for left, right in _PAIRS.findall(text):
        if left.isalpha() and right.isalpha():
            two_scripts = left.isascii() != right.isascii() and max(left, right) > _LAST_LATIN
            count += two_scripts or (left.islower() and right.isupper())
    return count
