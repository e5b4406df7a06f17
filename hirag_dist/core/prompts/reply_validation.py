"""Checks of whether a reply can be read at all: not empty, cut off, refused, only thought, or stuck in a loop.

Also the request after one that cannot: never the same again, and without the refused reply in it.

Whether a reply has the language of its source: only clear differences are reported. Names and quotations in another
language are ordinary, so all descriptions of a reply are tested together. Texts that are too short, mixed, or in an
unknown language pass.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from hirag_dist.core.prompts.records import record_lines
from hirag_dist.core.text.normalize import one_line
from hirag_dist.core.text.thinking import without_thinking
from hirag_dist.errors import ContextLengthExceeded
from hirag_dist.types import ChatReply, ChatRequest, Rejected

NOT_SENT = "not sent, because "  # beginning of the reason of a unit that no model was asked about
KEPT = "only its complete records were kept: "  # beginning of the reason where every reply was cut off
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|(?<=times: ).*|\d[\d,.:]*")
_REMEDIES = tuple(
    (re.compile(signs), remedy)
    for signs, remedy in (
        (
            "cut off at the token limit|only thinking text",
            "raise {endpoint}.max_reply_tokens, turn thinking off by {endpoint}.extra_body, or lower chunk_tokens and "
            "pack_tokens",
        ),
        ("then none for", "raise {endpoint}.silence_timeout_s, or lower {endpoint}.max_concurrent"),
        (
            "in time|timed out|nothing came in",
            "raise {endpoint}.first_token_timeout_s, or lower {endpoint}.max_concurrent",
        ),
        ("language of the text", "set another {endpoint}.model, or reply_language: any"),
        ("withheld|model refused", "set another endpoint for the role in llm.roles"),
        ("context length|context window|context size|too long|too large", "lower chunk_tokens"),
        (
            r"answered 4\d\d|\(4\d\d\)",
            "read what the endpoint answered; {endpoint}.extra_body and {endpoint}.max_tokens_field change the request",
        ),
        ("reply is empty", "set another {endpoint}.model, or turn thinking off by {endpoint}.extra_body"),
        ("no recorded reply|no reply to it is stored", "set {endpoint}.fallback"),
        (
            "record|form|code|loop|repeat|summary|report|reply|answer",
            "set {endpoint}.output: json_schema where the endpoint supports it, pack_tokens: 0, or another "
            "{endpoint}.model",
        ),
    )
)


def without_details(reason: str) -> str:
    """Return a reason without its names and numbers: reasons with the same result are one.

    >>> without_details("endpoint 'llm' answered 1,024 bytes")
    'endpoint … answered … bytes'
    """
    return _VARIABLE.sub("…", reason)


def by_reason(reasons: Iterable[str]) -> dict[str, list[int]]:
    """Return the positions of the reasons that are one, the most frequent first, by the first of each.

    Reasons of units that were not sent come last: they follow from the others.

    >>> by_reason(["cut off after 10", "empty", "cut off after 20"])
    {'cut off after 10': [0, 2], 'empty': [1]}
    """
    groups: dict[str, tuple[str, list[int]]] = {}
    for position, reason in enumerate(reasons):
        key = NOT_SENT if reason.startswith(NOT_SENT) else without_details(reason)
        groups.setdefault(key, (reason, []))[1].append(position)
    ordered = sorted(groups.values(), key=lambda group: (group[0].startswith(NOT_SENT), -len(group[1])))
    return dict(ordered)


def remedy_of(reason: str, endpoint: str = "NAME") -> str:
    """Return what to change in the configuration, as an imperative; empty if nothing there helps.

    Args:
        endpoint: configured name of the endpoint that was asked.

    >>> remedy_of("English; descriptions stay in the language of the text", "local")
    'set another llm.endpoints.local.model, or reply_language: any'
    """
    remedy = next((remedy for signs, remedy in _REMEDIES if signs.search(reason)), "")
    return remedy.format(endpoint=f"llm.endpoints.{endpoint}")


def beginning(reply: str, n_chars: int) -> str:
    r"""Return the first characters of a reply on one line, with an ellipsis where it goes on.

    >>> beginning("Sure!\nHere it is", 8)
    'Sure! He…'
    """
    line = one_line(reply[: 4 * n_chars])
    return line[:n_chars] + ("…" if len(line) > n_chars or len(reply) > 4 * n_chars else "")


_REFUSAL = re.compile(
    r"""\s*(?:
    (?:unfortunately,?\s+)?i(?:['’]m|\s+am)\s+(?:very\s+|so\s+)?(?:sorry|unable\s+to|not\s+able\s+to)
    |sorry,|i(?:\s+apologi[sz]e)\b|(?:unfortunately,?\s+)?i\s*(?:can(?:no|['’])t|won['’]t|must\s+decline)|as\s+an\s+ai\b
    |(?:很|非常)?(?:抱歉|对不起)[，,]|申し訳(?:ありません|ございません)|죄송합니다
    |es\s+tut\s+mir\s+leid,|je\s+(?:suis\s+désolée?|ne\s+peux\s+pas)\b|lo\s+siento,|mi\s+dispiace,|sinto\s+muito,
    |к\s+сожалению,\s+я\b|извините,
    )""",
    re.IGNORECASE | re.VERBOSE,
)
MAX_CHARS = 2_000_000  # of a reply; no model writes so much at once
_MIN_LOOP = 12  # lines that must repeat one text for it to be a loop
_TAIL_CHARS, _TAIL_RATIO = 1500, 0.08  # of prose or records zlib leaves 25 to 60 %
_CUT_TAIL_RATIO = 0.1
INVALID_JSON: Final = "invalid_json"  # finish_reason of a reply that its server withholds for that
REPETITION: Final = "repetition"  # finish_reason of an answer that was read no further, since it repeated itself
LOOP_CHARS: Final = 4500  # of a reply that is still being written, which show whether it is stuck
_STUCK_RATIO = 0.08


class MalformedReply(ValueError):
    """A reply is not in the requested form; the message is the reason."""


class CutOffReply(MalformedReply):
    """A reply broke off at the token limit."""


class InvalidJson(MalformedReply):
    """A reply is withheld by its server, since it is not valid JSON."""


class RepeatedReply(MalformedReply):
    """A reply repeats itself to its end."""


def finished_text(reply: ChatReply) -> str:
    """Return the reply's text without thinking, cut off or not.

    Raises:
        RepeatedReply: stuck in a loop.
        MalformedReply: empty, withheld by a content filter, a refusal, only thinking, or too long.
    """
    if len(reply.text) > MAX_CHARS:
        raise MalformedReply(f"the reply has {len(reply.text):,} characters")
    if reply.finish_reason == "content_filter":
        raise MalformedReply("the endpoint's content filter withheld the reply")
    if reply.finish_reason == "refusal":
        raise MalformedReply("the model refused")
    if reply.finish_reason == INVALID_JSON:
        raise InvalidJson("the server withheld the reply, which is not valid JSON")
    text = without_thinking(reply.text)
    if not text:
        raise MalformedReply("the reply is empty" if not reply.text.strip() else "the reply holds only thinking text")
    if _REFUSAL.match(text) and "|" not in text and "{" not in text:
        raise MalformedReply("the model refused")
    loop = _loop(text)
    if loop:
        raise RepeatedReply(loop)
    return text


def usable_text(reply: ChatReply) -> str:
    """Return the reply's text without thinking.

    Raises:
        CutOffReply: cut off at the token limit.
        RepeatedReply: stuck in a loop, whether it was cut off or not.
        MalformedReply: for the other reasons of `finished_text`.
    """
    if reply.finish_reason != "length":
        return finished_text(reply)
    text = without_thinking(reply.text)
    loop = (_loop(text) or _cut_loop(text)) if text else ""
    if loop:
        raise RepeatedReply(loop)
    raise CutOffReply("the reply was cut off at the token limit" + ("" if text else ", before it began"))


def is_stuck(tail: str) -> bool:
    """Return whether a reply that is still being written repeats itself, numbers apart.

    Of 104 recorded replies of this length, the four that compress as far at any point, by at least 94 %, are loops.

    Args:
        tail: The last `LOOP_CHARS` characters of the reply.

    >>> is_stuck('{"name": "Ada", "type": "person"}, ' * 200)
    True
    """
    if len(tail) < LOOP_CHARS:
        return False
    plain = re.sub(r"\d+", "0", tail).encode("utf-8", "surrogatepass")
    return len(zlib.compress(plain, 6)) < _STUCK_RATIO * len(plain)


def _loop(text: str) -> str:
    """Return the repeated text of a reply that ended in a loop, or an empty text."""
    lines = [" ".join(line.split()) for line in re.split(r"##|\n", text)]
    counts = Counter(line for line in lines if len(line) > 2)
    if counts:
        line, times = counts.most_common(1)[0]
        if times >= _MIN_LOOP and 2 * times > sum(counts.values()):
            return f"the reply repeats one line {times} times: {line[:60]}"
    tail = text[-_TAIL_CHARS:].encode("utf-8", "surrogatepass")
    if len(text) >= _TAIL_CHARS and len(zlib.compress(tail, 6)) < _TAIL_RATIO * len(tail):
        return "the reply ends in a loop that repeats the same words"
    return ""


def _cut_loop(text: str) -> str:
    """Return the repeated text of a reply that was cut off, or an empty text.

    Numbers do not tell records apart here, as a list that counts on repeats itself too. The shares are looser than for
    a reply that ended: of 567 recorded replies without a loop none compresses below 10 %, nor do six of its last 24
    records differ in numbers alone.
    """
    plain = re.sub(r"\d+", "0", text)
    records = [" ".join(part.split()) for part in re.split(r"##|\n|\},", plain)]
    last = [record for record in records if len(record) > 2][-24:]
    if last:
        record, times = Counter(last).most_common(1)[0]
        if times >= _MIN_LOOP // 2 and 2 * times > len(last):
            return f"the reply repeats one record {times} times: {record[:60]}"
    tail = plain[-_TAIL_CHARS:].encode("utf-8", "surrogatepass")
    is_loop = len(tail) >= _TAIL_CHARS // 2 and len(zlib.compress(tail, 6)) < _CUT_TAIL_RATIO * len(tail)
    if is_loop or is_stuck(text[-LOOP_CHARS:]):
        return "the reply ends in a loop that repeats the same words"
    return ""


_DECODER = json.JSONDecoder(strict=False)
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_SENTENCE_END = re.compile(r"""[.!?。！？…]["'”’»)\]]*(?=\s|\Z)|[。！？]""")
_CLOSING = {"{": "}", "[": "]"}
_MAX_ENDS = 400  # places that are tried, so that no reply takes long


def complete_part(text: str) -> str:
    """Return the part of a text that broke off which is complete: items of JSON lists, lines, or else sentences.

    What repeats, other than by its `id`, is there once. The part is empty where nothing is complete.

    >>> complete_part('{"entities": [{"id": 1, "name": "Ada"}, {"id": 2, "na')
    '{"entities": [{"id": 1, "name": "Ada"}]}'
    """
    start = text.find("{")
    if start >= 0 and not text[:start].count("|"):
        closed = _closed(text[start:])
        return "" if closed is None else json.dumps(_distinct(closed), ensure_ascii=False)
    *lines, _ = record_lines(text)
    if any("|" in line for line in lines):
        return "\n".join(dict.fromkeys(line for line in lines if line.strip()))
    ends = list(_SENTENCE_END.finditer(text))
    return text[: ends[-1].end()] if ends else ""


def _closed(text: str) -> Any:
    """Return the JSON value of a text cut off behind its last complete item, or None where it has none.

    A value that may go on, such as a number at the end, is not complete. Each place where an item ends is tried from
    the last one on; the first that can be read with its brackets closed is taken, so that broken text in between
    costs what follows it and no more.
    """
    open_brackets: list[str] = []
    ends: list[tuple[int, str]] = []
    for match in _STRUCTURE.finditer(text):
        mark = match[0]
        if mark in _CLOSING:
            open_brackets.append(_CLOSING[mark])
            continue
        if open_brackets and mark == open_brackets[-1]:
            open_brackets.pop()
        elif mark != ",":
            continue
        if len(open_brackets) < 2 or open_brackets[1:] == ["]"]:  # an item of a list of the outermost object, or more
            ends.append((match.start() if mark == "," else match.end(), "".join(reversed(open_brackets))))
    for end, closing in ends[: -_MAX_ENDS - 1 : -1]:
        try:
            return _DECODER.decode(text[:end] + closing)
        except (ValueError, RecursionError):
            continue
    return None


def _distinct(value: Any) -> Any:
    """Return a value without the items of lists that repeat an earlier one in all but its number."""
    if isinstance(value, dict):
        return {key: _distinct(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    found = {
        json.dumps({**each, "id": 0} if isinstance(each, dict) else each, sort_keys=True): each
        for each in reversed(value)
    }
    return [_distinct(each) for each in reversed(found.values())]


TEMPERATURE: Final = 0.7  # at 0, a model that is asked the same writes the same
FREQUENCY_PENALTY: Final = 0.5
_REASON_CHARS = 200
_MARGIN_TOKENS = 16  # between a prompt as an endpoint counts it and its window


def next_attempt(
    first: ChatRequest, before: ChatRequest, reply: ChatReply, refusal: Exception, n_refused: int = 1
) -> ChatRequest:
    """Return the request that follows a refused reply.

    A loop is left by a penalty on words that were used; a reply that was cut off gets twice the limit, and after
    thinking, which no task's limit counts, the endpoint's own; one that was no JSON is asked for once more, at another
    temperature. Any other refusal is told in a few words, with the number of the attempt from the third on: an endpoint
    that remembers its replies would give the same one. The refused reply is not shown again: a small model would go on
    with it.

    Args:
        before: the request that was replied to.
        n_refused: Refused replies to the unit, this one included.
    """
    again = replace(before, messages=first.messages, temperature=TEMPERATURE)
    if isinstance(refusal, RepeatedReply):
        return replace(again, frequency_penalty=FREQUENCY_PENALTY)
    if isinstance(refusal, CutOffReply):
        limit = 2 * before.max_tokens if before.max_tokens and not reply.reasoning_tokens else None
        return replace(again, max_tokens=limit)
    if isinstance(refusal, InvalidJson):
        return again
    *others, last = first.messages
    reason = str(refusal)[:_REASON_CHARS]
    note = f"\n\nAn earlier reply could not be used: {reason}. Reply in the requested form, and completely."
    if n_refused > 1:
        note += f" This is attempt {n_refused + 1}."
    return replace(again, messages=(*others, replace(last, content=last.content + note)))


def is_incomplete(refusal: Exception) -> bool:
    """Return whether a refused reply may hold complete records before its end."""
    return isinstance(refusal, CutOffReply | RepeatedReply)


def is_short_of_limit(request: ChatRequest, reply: ChatReply) -> bool:
    """Return whether a reply was cut off well before the request's limit: by the window, or an endpoint's own limit."""
    return 0 < 10 * reply.output_tokens < 9 * (request.max_tokens or 0)


def kept_part(reply: ChatReply, letter: Rejected) -> ChatReply:
    """Return a reply with what is complete of it, to be read as if it had ended there.

    Args:
        letter: the dead letter of what is not complete.

    Raises:
        MalformedReply: nothing of it is complete.
    """
    text = complete_part(without_thinking(reply.text))
    if not text:
        raise MalformedReply("the reply was cut off before anything was complete")
    return replace(reply, text=text, finish_reason="stop", kept_from=letter)


def fitted(request: ChatRequest, error: ContextLengthExceeded) -> ChatRequest | None:
    """Return a request with a lower limit, where its limit alone does not fit into the window; else None.

    A limit below a quarter of what the task takes is none: a smaller part of the material is asked for then.
    """
    if not request.max_tokens:
        return None
    if error.window_tokens is None or error.prompt_tokens is None:
        return replace(request, max_tokens=None)
    room = error.window_tokens - error.prompt_tokens - _MARGIN_TOKENS
    return replace(request, max_tokens=room) if request.max_tokens > room >= request.max_tokens // 4 else None


_SAMPLE_CHARS = 4000  # characters of each text that are examined
_MIN_READ, _MIN_WRITTEN = 200, 80  # letters needed in the source and in the reply
_MIN_MAIN_SHARE, _MAX_FOREIGN_SHARE = 0.85, 0.2  # share of one script in the source, and its largest share in the reply
_MIN_WORDS, _MIN_COMMON = 40, 6  # words needed, and distinct common words of a language among them
_MIN_OWN_SHARE, _MAX_OTHER_SHARE = 0.2, 0.04  # share of common words: of the language of the text, of another language

_SCRIPTS: Mapping[str, str] = {
    "Latin": "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ",
    "Cyrillic": "Ѐ-ԯ",
    "Greek": "Ͱ-Ͽἀ-῾",
    "Arabic": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc",
    "Hebrew": "\u0590-\u05ff",
    "Devanagari": "\u0900-\u097f",
    "Thai": "\u0e00-\u0e7f",
    "Chinese or Japanese": "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
    "Korean": "\u1100-\u11ff\uac00-\ud7af",
}
_LETTERS = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}
_KANA = re.compile("[\u3041-\u30fa]")
_ASCII = re.compile(r"[\x00-\x7f]+")
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())
_WORD = re.compile(r"[^\W\d_]+")

# Words that make up much of any text in one language and stand in few texts of the others.
_COMMON: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "English": "the and of to is was that with for from by which are were this his her their has have as at",
        "German": "der und ist das den dem von mit zu ein eine einer eines des sich auf für nicht wird als auch bei im",
        "French": "le les et est des du une dans par qui que pour sur avec au aux ce cette sont été ses sa il elle",
        "Spanish": "el los las y es del una que en por con para como su sus se lo al fue está son más entre",
        "Italian": "il gli è di che della delle dei del nel nella con per una sono come dal dalla alla si suo ed",
        "Portuguese": "os um uma do da dos das em no na que com para por é são como foi seu sua ao pelo pela mais não",
        "Dutch": "het een van en is dat op te met voor zijn niet aan door wordt als bij ook naar deze werd",
        "Swedish": "och att det som en ett av är på för med den till inte har om var från hans",
        "Polish": "na się jest do nie że przez to jak oraz od który która jego dla był po są",
    }.items()
}


def other_language(written: Iterable[str], read: str) -> str:
    """Return a message if the descriptions and the text are clearly in different languages, else an empty text.

    >>> other_language(["孙悟空是花果山水帘洞的美猴王，神通广大。" * 5], "The monk went west. " * 20)
    'the descriptions are in Chinese or Japanese script, the text is in Latin script'
    """
    written_text = " ".join(written)[:_SAMPLE_CHARS]
    text = read[:_SAMPLE_CHARS]
    here, there = _scripts(written_text), _scripts(text)
    if here.total() < _MIN_WRITTEN or there.total() < _MIN_READ:
        return ""
    own, n_own = there.most_common(1)[0]
    used, n_used = here.most_common(1)[0]
    if n_own < _MIN_MAIN_SHARE * there.total():
        return ""
    if here[own] <= _MAX_FOREIGN_SHARE * here.total() and n_used > here.total() / 2:
        return f"the descriptions are in {used} script, the text is in {own} script"
    if own == used == "Latin":
        written_words, words = _words(written_text), _words(text)
        text_language = _language(words)
        if text_language and _share(written_words, text_language, least=0) <= _MAX_OTHER_SHARE:
            reply_language = _language(written_words)
            return f"the descriptions are in {reply_language}, the text is in {text_language}" if reply_language else ""
    if own == used == "Chinese or Japanese" and _kana(text) > 0.2 and _kana(written_text) == 0:
        return "the descriptions are in Chinese, the text is in Japanese"
    return ""


def refuse_other_language(written: Iterable[str], read: str) -> None:
    """Check that the descriptions of a reply are not surely in another language than what the model was given to read.

    Args:
        read: empty: languages are not compared.

    Raises:
        MalformedReply: they are.
    """
    difference = other_language(written, read) if read else ""
    if difference:
        raise MalformedReply(f"{difference}; descriptions stay in the language of the text")


def _scripts(text: str) -> Counter[str]:
    """Return letters by script. Most texts are mostly ASCII, so that is counted apart, and fast."""
    found = Counter({"Latin": len(text.encode("ascii", "ignore").translate(None, _NO_LETTERS))})
    if not text.isascii():
        rest = _ASCII.sub("", text)
        found.update({name: len(letters.findall(rest)) for name, letters in _LETTERS.items()})
    return found


def _kana(text: str) -> float:
    return len(_KANA.findall(text)) / max(len(_LETTERS["Chinese or Japanese"].findall(text)), 1)


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def _language(words: Counter[str]) -> str:
    """Return the language that a text in Latin script is surely in, or an empty text."""
    shares = sorted(((_share(words, name, _MIN_COMMON), name) for name in _COMMON), reverse=True)
    (best, name), (second, _) = shares[0], shares[1]
    return name if best >= _MIN_OWN_SHARE and best > 1.8 * second else ""


def _share(words: Counter[str], language: str, least: int) -> float:
    """Return the share of words among the commonest of a language; 0 for few words, or fewer kinds than `least`."""
    n_words = words.total()
    counts = [words[word] for word in _COMMON[language] if word in words]
    return sum(counts) / n_words if n_words >= _MIN_WORDS and len(counts) >= least else 0.0
