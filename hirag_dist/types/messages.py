"""Requests to language models, their replies, and names that are found in texts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call to a language model, before anything is known of who answers it.

    Attributes:
        role: which configured role answers: extract, summarise, report, answer, judge.
        messages: fixed text first, so that providers' prompt caches hit.
        unit: hash of the normalised text the call is about; recordings are found by it.
        form: name of the reply's JSON schema (`core.prompts.templates.reply_schema`), or None for delimited text.
        round: 0 for a first pass, 1, 2, … for gleaning.
        max_tokens: Maximum tokens of the reply, derived from the task; None for the endpoint's own limit.
        packed: `unit` of each unit that shares this call; empty where it is about one.
        replicate: 0; 1, 2, … ask the same again for another reply, which is stored in addition to the first.
        types: Values that the schema allows for a `type`; empty for any. The system message names them too.
        temperature: Replaces that of an endpoint which has one; None keeps it.
        frequency_penalty: Penalty of words by how often the reply has them already, from -2 to 2; None sends none.
        divisible: Whether the caller asks about parts of the material instead, where the whole is too long.
        max_items: Maximum entities, relations, claims or members in a list of the schema; 0 for the schema's own.
    """

    role: str
    messages: tuple[Message, ...]
    unit: str
    form: str | None = None
    round: int = 0
    max_tokens: int | None = None
    packed: tuple[str, ...] = ()
    replicate: int = 0
    types: tuple[str, ...] = ()
    max_items: int = 0
    temperature: float | None = None
    frequency_penalty: float | None = None
    divisible: bool = False

    @property
    def hashed_limit(self) -> int | None:
        """The limit on the reply that hashes of the request hold: that of a map reply alone, whose prompt names none.

        The other limits are derived from the texts, which hashes hold; a reply of another limit is used all the same.
        """
        return self.max_tokens if self.form == "map-answer" else None

    @property
    def text(self) -> str:
        """The messages as one text, as a dead letter shows them."""
        return "\n\n".join(f"{message.role}: {message.content}" for message in self.messages)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply with the token counts that the endpoint reports.

    Attributes:
        text: What the model wrote, without its thinking.
        finish_reason: `stop`, `length` (cut off at a token limit), `content_filter`, `refusal`, `repetition` (a stream
            that was read no further, since it repeated itself), or another word of the endpoint's own. Other names for
            a cut reply become `length`.
        output_tokens: Tokens that the model wrote, thinking included.
        reasoning_tokens: Tokens of `output_tokens` that were thinking, as reported or as counted locally.
        kept_from: The dead letter of a reply that was cut off in every attempt, of which this is the complete part.
    """

    text: str
    finish_reason: str = "stop"
    model: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    kept_from: Rejected | None = None


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The ledger's reply to a request.

    Attributes:
        reply: of a unit that shared a call, its part of the reply with its share of the tokens.
        key: its ledger key.
        pack: the ledger key of the whole reply that it is a part of; "" for a reply to this request alone.
        model: which of the models of its role replied, from 0.
        endpoint: the configured name of the endpoint that replied.
        price: factor of the endpoint's price.
    """

    reply: ChatReply
    key: str
    pack: str
    model: int
    endpoint: str
    price: float


@dataclass(frozen=True, slots=True)
class RateLimits:
    """An endpoint's limits for this minute, as its `x-ratelimit-*` headers name them; None where they do not."""

    requests: float | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A unit that could not be done: the last reply and why it was refused.

    Attributes:
        too_long: Whether a smaller part of the material may be answered: the prompt, or the reply to a `divisible`
            request, does not fit into the model's window or limit.
    """

    unit: str
    reason: str
    attempts: int
    request: str = ""
    reply: str = ""
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name or term that a text holds.

    Attributes:
        type: one of the types that were asked for.
        places: (sentence, word) of each occurrence, in order.
        score: how well it stands out; comparable within one text.
    """

    name: str
    type: str
    places: tuple[tuple[int, int], ...]
    score: float
