"""Requests of the OpenAI-compatible API: what is read, ignored and refused, and conversations as one question.

The index is searched with one question, and a message such as "And when was it built?" names nothing to search for. So
the questions before it, and the reply that it follows, go in front of it, shortened:

Earlier questions: - Who lit the lamp? Last reply: The keeper lit it. Question: And when was it built?

The first message of a conversation is the question as it stands. Where a client wraps a message of the user in much
other text (instructions, a map of files, passages of its own), what is searched for is the question in it: see
`question_in`. Messages of the system are left out: the service has its own instructions for the model that answers, and
they are no part of what is searched for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf import json_format
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hirag_dist.core.prompts.requests import EARLIER, LAST_REPLY, QUESTION
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import MODES, json_fault

MAX_CHARACTERS = 2000  # of a message that is asked whole
MAX_PART_CHARACTERS = 600  # of the questions in a longer one; of its first and of its last paragraph if it has none
MAX_QUESTIONS = 3  # earlier questions that are kept, the last ones
MAX_QUESTION_CHARACTERS = 300  # of each of them
MAX_REPLY_CHARACTERS = 600  # of the last reply
_CITATION = re.compile(r"\s*\[[ERKCS]\d+\]")
_LABELLED = re.compile(
    r"^[^\w\n]{0,8}(?:user )?(?:question|query)[^\w\n]{0,4}:[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE
)
_SENTENCE = re.compile(r"(?:[^.!?。！？؟\n<>]|[.!?](?=\w))+[.!?。！？؟]*")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation."""

    role: str
    text: str


def standalone_question(turns: Sequence[Turn], *, history: bool = True) -> str:
    """Return the question that a conversation ends with, in a form that needs no other message.

    Args:
        turns: the messages, the oldest first; after the last one of the user there may be others.
        history: whether earlier messages go in front; otherwise the last message of the user is the question.

    Raises:
        ValueError: no message of the user has a text.

    >>> standalone_question([Turn("system", "Be brief."), Turn("user", "Who lit the lamp?")])
    'Who lit the lamp?'
    """
    asked = [at for at, turn in enumerate(turns) if turn.role == "user" and turn.text.strip()]
    if not asked:
        raise ValueError("a message of the role user with a text is needed")
    question = question_in(turns[asked[-1]].text)
    earlier = [turns[at].text for at in asked[:-1] if _asks(turns[at].text)]
    if not history or not earlier:
        return question
    lines = [EARLIER]
    lines += [f"- {_shortened(question_in(text), MAX_QUESTION_CHARACTERS)}" for text in earlier[-MAX_QUESTIONS:]]
    replies = [turn.text for turn in turns[asked[-2] : asked[-1]] if turn.role == "assistant" and turn.text.strip()]
    if replies:
        lines.append(f"{LAST_REPLY}{_shortened(_CITATION.sub('', replies[-1]), MAX_REPLY_CHARACTERS)}")
    return "\n".join([*lines, f"{QUESTION}{question.strip()}"])


def question_in(text: str) -> str:
    r"""Return the question in a message: the message itself, or what a long one asks.

    Of a message of more than `MAX_CHARACTERS` that is the last line that begins with "Question:" or "Query:", else the
    last sentences with a question mark, else the first and the last paragraph.

    >>> question_in("Rules: be brief. " * 200 + "\n\nWho lit the lamp?\n\n" + "Answer in JSON. " * 200)
    'Who lit the lamp?'
    """
    if len(text.strip()) <= MAX_CHARACTERS:
        return text
    if labelled := _LABELLED.findall(text):
        return _shortened(labelled[-1], MAX_PART_CHARACTERS)
    if questions := _questions(text):
        return "\n".join(questions)
    paragraphs = [paragraph for paragraph in _PARAGRAPHS.split(text) if paragraph.strip()]
    return "\n".join(_shortened(part, MAX_PART_CHARACTERS) for part in dict.fromkeys((paragraphs[0], paragraphs[-1])))


def _questions(text: str) -> list[str]:
    """Return the last sentences with a question mark, as many as fit."""
    kept: list[str] = []
    for sentence in reversed(_SENTENCE.findall(text)):
        if sentence[-1] not in "?？؟" or not re.search(r"[^\W\d_]", sentence):
            continue
        line = _shortened(sentence, MAX_PART_CHARACTERS)
        if sum(map(len, kept)) + len(line) > MAX_PART_CHARACTERS:
            break
        kept.insert(0, line)
    return kept


def _asks(text: str) -> bool:
    """Return whether an earlier message may be a question: a long one without any is material for its client."""
    return len(text) <= MAX_CHARACTERS or bool(_LABELLED.search(text) or _questions(text))


def _shortened(text: str, limit: int) -> str:
    """Return a text on one line, cut after a word."""
    line = _SPACE.sub(" ", text).strip()
    if len(line) <= limit:
        return line
    return line[:limit].rsplit(" ", 1)[0].rstrip() + "…"


DEFAULT_MODEL = "hirag"
_OWN_FIELDS = ("question", "mode", "vector")  # of Query, which the request sets in another way
_TEXT_PARTS = ("text", "input_text", "output_text")
_MAX_MESSAGES = 2000


class BadRequest(Exception):
    """A request is wrong, or asks for something that this API does not have."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, in terms of the service.

    Attributes:
        include_usage: whether a streamed reply ends with the numbers of tokens.
        source_list: whether the cited sources are listed after the text.
        stops: sequences before which the text of the answer ends.
    """

    model: str
    request: pb.AnswerRequest
    stream: bool
    include_usage: bool
    source_list: bool
    stops: tuple[str, ...]


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Part(_Form):
    type: str
    text: str | None = None


class _Message(_Form):
    role: str = ""
    content: str | list[_Part] | None = None


class _StreamOptions(_Form):
    include_usage: bool | None = None


class _Body(_Form):
    """Parameters that both endpoints have. Others are ignored, tools too, unless `_refuse` names them."""

    model: str = Field(max_length=512)
    stream: bool | None = None
    hirag: dict[str, Any] | None = None
    stop: str | list[str] | None = None


class _ChatBody(_Body):
    messages: list[_Message] = Field(min_length=1, max_length=_MAX_MESSAGES)
    stream_options: _StreamOptions | None = None


class _ResponsesBody(_Body):
    input: str | list[_Message] = Field(max_length=1_000_000)


_B = TypeVar("_B", bound=_Body)
_Accepts: TypeAlias = Callable[[Any], bool]


def chat_request(body: Mapping[str, Any]) -> Asked:
    """Return the request of a body of /v1/chat/completions. Raises BadRequest for what is wrong or not supported."""
    _refuse(body, _CHAT_REFUSED)
    read = _read(_ChatBody, body)
    usage = read.stream_options is not None and bool(read.stream_options.include_usage)
    return _asked(read, read.messages, "messages", include_usage=usage)


def responses_request(body: Mapping[str, Any]) -> Asked:
    """Return the request of a body of /v1/responses. Raises BadRequest for what is wrong or not supported."""
    _refuse(body, _RESPONSES_REFUSED)
    read = _read(_ResponsesBody, body)
    messages = [_Message(role="user", content=read.input)] if isinstance(read.input, str) else read.input
    return _asked(read, messages, "input", include_usage=True)


def resolve_model(model: str) -> tuple[str, Any]:
    """Return the index and the mode that a model's name stands for; 0 for the service's default mode.

    Where there is no index `DEFAULT_MODEL`, the service takes that name for its default index (`OR_DEFAULT_KEY`).

    Raises:
        BadRequest: there can be no such model.

    >>> resolve_model("hirag/naive"), resolve_model("laws"), resolve_model("laws/local"), resolve_model("law/de")
    (('hirag', 6), ('laws', 0), ('laws', 2), ('law/de', 0))
    """
    index, slash, mode = model.rpartition("/")
    if not slash or mode not in MODES:
        index, mode = model, ""
    if not index:
        raise model_not_found(model)
    return index, MODES[mode] if mode else pb.MODE_UNSPECIFIED


def model_not_found(model: str) -> BadRequest:
    """Return the error of a name that is no model's."""
    return BadRequest(
        f"there is no model {model[:200]!r} that you may ask; GET /v1/models lists them",
        "model",
        "model_not_found",
        404,
    )


def _asked(read: _Body, messages: Sequence[_Message], param: str, *, include_usage: bool) -> Asked:
    index, mode = resolve_model(read.model)
    own = dict(read.hirag or {})
    history, source_list = _flag(own, "history", default=True), _flag(own, "source_list", default=False)
    try:
        question = standalone_question([Turn(each.role, _text(each, param)) for each in messages], history=history)
    except ValueError as error:
        raise BadRequest(str(error), param) from None
    query = _query(own)
    query.mode = mode
    try:
        query.question = question
        request = pb.AnswerRequest(query=query, omit_context=True, omit_source_text=True, index=index)
    except ValueError:  # lone surrogates
        raise BadRequest("texts must be valid Unicode", param) from None
    stops = [read.stop] if isinstance(read.stop, str) else read.stop or []
    return Asked(read.model, request, bool(read.stream), include_usage, source_list, tuple(filter(None, stops)))


def _query(settings: dict[str, Any]) -> pb.Query:
    for name in _OWN_FIELDS:
        if name in settings:
            raise BadRequest(f"hirag.{name}: it follows from the model and the messages", f"hirag.{name}")
    try:
        query: pb.Query = json_format.ParseDict(settings, pb.Query())
    except (ValueError, json_format.ParseError) as error:
        raise BadRequest(f"hirag: {json_fault(error)}", "hirag") from None
    return query


def _flag(settings: dict[str, Any], name: str, *, default: bool) -> bool:
    value = settings.pop(name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"hirag.{name} must be true or false", f"hirag.{name}")
    return value


def _text(message: _Message, param: str) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    parts = []
    for part in message.content:
        if part.type not in _TEXT_PARTS:
            if message.role == "user":
                raise BadRequest(f"parts of messages are texts; {part.type[:40]!r} is not supported", param)
            continue
        parts.append(part.text or "")
    return "\n".join(parts)


def _read(form: type[_B], body: Mapping[str, Any]) -> _B:
    try:
        return form.model_validate(body, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(each) for each in fault["loc"] if each != "str")  # a kind of value, and no field
        raise BadRequest(f"{where}: {fault['msg']}", where) from None


def _refuse(body: Mapping[str, Any], refused: Mapping[str, _Accepts]) -> None:
    """Refuse a parameter that would change the meaning of the reply and has another value than the harmless ones."""
    for name, accepts in refused.items():
        value = body.get(name)
        if value is not None and not accepts(value):
            shown = json.dumps(value, ensure_ascii=False)[:100]
            raise BadRequest(f"{name}: {shown} is not supported", name, "unsupported_parameter")


def _is_text_format(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type", "text") == "text"


def _lets_choose(value: Any) -> bool:
    """Return whether a choice of tools allows an answer without a tool: no tool is ever called."""
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        allowed = value.get("allowed_tools", value)
        return isinstance(allowed, dict) and allowed.get("mode") == "auto"
    return value in ("none", "auto")


_REFUSED: dict[str, _Accepts] = {
    "tool_choice": _lets_choose,
    "function_call": _lets_choose,
    "top_logprobs": lambda value: value == 0,
}
_CHAT_REFUSED: dict[str, _Accepts] = _REFUSED | {
    "n": lambda value: value == 1,
    "logprobs": lambda value: value is False,
    "response_format": _is_text_format,
    "modalities": lambda value: value == ["text"],
}
_RESPONSES_REFUSED: dict[str, _Accepts] = _REFUSED | {
    "text": lambda value: isinstance(value, dict) and _is_text_format(value.get("format") or {}),
    **dict.fromkeys(("previous_response_id", "conversation", "prompt"), lambda value: False),
    "background": lambda value: value is False,
    "include": lambda value: not (isinstance(value, list) and "message.output_text.logprobs" in value),
}
