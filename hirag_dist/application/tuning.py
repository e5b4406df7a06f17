"""Proposals for a domain from a sample of its documents, and their files: types, examples of extraction, language."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from pathlib import Path
from typing import TypeVar

import numpy as np
import yaml

from hirag_dist.composition.models import (
    check_prices,
    has_structured_output,
    make_coordinator,
    make_pool,
    retry_policy,
    shares,
)
from hirag_dist.config.model import ENTITY_TYPES, META_TYPES, Config
from hirag_dist.core.prompts.reply_parsing import parse_extraction, parse_meta_types
from hirag_dist.core.prompts.templates import Prompts, extraction_request, meta_types_request
from hirag_dist.core.prompts.tuning_requests import entity_types_request, example_text
from hirag_dist.core.text.chunking import chunk_spans
from hirag_dist.core.text.ids import content_id
from hirag_dist.core.text.language_check import language_name
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.errors import ConfigError, InputError, StoreError
from hirag_dist.indexing.estimate import MIN_OUT, OUT_PER_TOKEN, StageEstimate, Work, stages_of
from hirag_dist.indexing.inputs import read_options
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import ChatPool
from hirag_dist.readers import Document, find_inputs, read_source
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Rejected

T = TypeVar("T")
ROLES = ("extract", "summarise")
_POOL = 512  # passages of which the diverse ones are chosen
_PER_DOCUMENT = 8  # of these, from one document at most
_PASSAGE_TOKENS = 120  # of an example
_MIN_PASSAGE = 0.4  # of that, or the text is too short for an example
_DIM = 256
_LANGUAGES = 3  # named at most


@dataclass(frozen=True, slots=True)
class TuningSample:
    """Texts of a corpus that a proposal rests on.

    Attributes:
        documents: that were read.
        excerpts: of them, as different from each other as the corpus allows.
        passages: a few sentences each, for examples.
        languages: (name, share of the excerpts), the largest first.
        unreadable: files and records that could not be read.
    """

    documents: int
    excerpts: tuple[str, ...]
    passages: tuple[str, ...]
    languages: tuple[tuple[str, float], ...]
    unreadable: int = 0


@dataclass(frozen=True)
class TuningProposal:
    """Proposal for a domain.

    Attributes:
        by_llm: whether a language model made it; otherwise the built-in model, which knows seven types and gives no
            examples.
        models: that were asked.
        task: of the examples.
        examples: as `prompts: DIR` takes them.
        rejected: (what, why) of what no reply could be used for; the defaults stand there.
        sent: calls of this run.
    """

    by_llm: bool
    models: tuple[str, ...]
    entity_types: tuple[str, ...]
    meta_types: tuple[str, ...]
    task: str
    examples: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...] = ()
    sent: UsageMeter = field(default_factory=UsageMeter)


def take_sample(inputs: Sequence[str], config: Config, n_excerpts: int, n_examples: int) -> TuningSample:
    """Read INPUT and choose its sample: the same for the same documents, in any order.

    Raises:
        InputError: there is nothing to read.
    """
    tokens, options = encoding(config.tokenizer), read_options(config.reading, config.metadata)
    pool: list[tuple[int, str]] = []  # a heap, the largest hash of the text first
    documents = unreadable = 0
    known: set[str] = set()
    for source in find_inputs(inputs, follow_links=config.reading.follow_links):
        for read in read_source(source, options):
            if not isinstance(read, Document):
                unreadable += 1
                continue
            documents += 1
            spans = chunk_spans(read.text, tokens, config.chunk_tokens, 0, at_sentences=True)
            cut = {shorten(one_line(read.text[span.start : span.end]), EXCERPT_CHARS) for span in spans}
            lowest = sorted((_rank(text), text) for text in cut if text not in known)[:_PER_DOCUMENT]
            for rank, text in lowest:
                known.add(text)
                if len(pool) < _POOL:
                    heappush(pool, (-rank, text))
                elif -rank > pool[0][0]:
                    known.discard(heapreplace(pool, (-rank, text))[1])
    if not pool:
        raise InputError("INPUT has no text to take a sample of")
    excerpts = _diverse([text for _, text in sorted(pool, reverse=True)], n_excerpts)
    passages = [passage for text in excerpts if (passage := _passage(text, config))]
    names = Counter(language_name(text) or "unknown" for text in excerpts)
    languages = tuple((name, count / len(excerpts)) for name, count in names.most_common(_LANGUAGES))
    return TuningSample(documents, tuple(excerpts), tuple(passages[:n_examples]), languages, unreadable)


def _rank(text: str) -> int:
    return int(content_id(text), 16)


def _diverse(texts: Sequence[str], count: int) -> list[str]:
    """Return texts that are far from each other: each next one is the farthest from those before it."""
    vectors = HashingEmbedder(_DIM, 0).embed_now(texts)
    chosen = [int(np.argmax(vectors @ vectors.mean(axis=0)))]  # the most typical one
    nearest = vectors @ vectors[chosen[0]]
    while len(chosen) < min(count, len(texts)):
        nearest[chosen] = np.inf
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return [texts[at] for at in chosen]


def _passage(text: str, config: Config) -> str:
    """Return the first whole sentences of an excerpt, up to a length; empty if there are too few."""
    span = chunk_spans(text.removesuffix("…"), encoding(config.tokenizer), _PASSAGE_TOKENS, 0, at_sentences=True)[0]
    return text[span.start : span.end] if span.n_tokens >= _MIN_PASSAGE * _PASSAGE_TOKENS else ""


def is_llm(config: Config, role: str) -> bool:
    """Return whether a role is played by endpoints, and by no built-in model."""
    target = getattr(config.llm.roles, role)
    return all(config.llm.endpoints[name].is_remote for name, _ in shares(target))


def plan_tuning(sample: TuningSample, config: Config, prompts: Prompts) -> tuple[StageEstimate, ...]:
    """Return the calls of a proposal, their tokens and cost; a refused reply is asked again up to `llm.attempts`."""
    count, roles = counter(config.tokenizer), config.llm.roles

    def read(requests: Sequence[ChatRequest]) -> int:
        return sum(count(message.content) for request in requests for message in request.messages)

    examples = [_example_request(text, config, prompts, ENTITY_TYPES, None) for text in _passages(sample, config)]
    written = max(sum(count(text) for text in _passages(sample, config)) * OUT_PER_TOKEN, MIN_OUT)
    works = [
        Work("entity types", roles.extract, 1, read([entity_types_request(sample.excerpts, prompts)]), MIN_OUT),
        Work("meta types", roles.summarise, 1, read([meta_types_request(sample.excerpts, prompts)]), MIN_OUT),
    ]
    if examples:
        works.append(Work("examples", roles.extract, len(examples), read(examples), written))
    return stages_of(works, config, None)[0]


def _passages(sample: TuningSample, config: Config) -> tuple[str, ...]:
    if config.extraction.method == "nlp" or not is_llm(config, "extract"):
        return ()  # neither reads a prompt
    return sample.passages


def _task(config: Config) -> str:
    return "extract-entities" if config.extraction.calls == "two_step" else "extract-graph"


def _example_request(
    text: str, config: Config, prompts: Prompts, types: Sequence[str], form: str | None
) -> ChatRequest:
    return extraction_request(_task(config), text, prompts, types, form)


def run_tuning(
    sample: TuningSample,
    config: Config,
    prompts: Prompts,
    out: str,
    max_usd: float | None = None,
    max_tokens: int | None = None,
) -> TuningProposal:
    """Ask the models for a proposal; their replies are kept in `out`, and a repeated run pays for none twice.

    Args:
        max_usd, max_tokens: what this run may spend.

    Raises:
        ConfigError: a limit in dollars without prices.
        BudgetReached: a limit was reached; a repeated run goes on.
        IndexBusy: another run uses `out`.
        ModelError: an endpoint cannot be used.
    """
    check_prices(config, ROLES, max_usd)
    store = Store(out)
    with BuildLock(store):
        return asyncio.run(_propose(sample, config, prompts, store, max_usd, max_tokens))


async def _propose(
    sample: TuningSample,
    config: Config,
    prompts: Prompts,
    store: Store,
    max_usd: float | None,
    max_tokens: int | None,
) -> TuningProposal:
    ledger, meter = Ledger(store), UsageMeter()
    coordinator = make_coordinator(config, max_usd, max_tokens)
    limiter = RateLimiter(coordinator, "", max_usd is not None or max_tokens is not None)
    retried = RetriedCalls(limiter, retry_policy(config))
    pool = make_pool(config, ledger, retried, context=CallContext(meter))
    asked = _Asked(pool)
    try:
        types, meta = await asyncio.gather(
            asked.ask("entity types", entity_types_request(sample.excerpts, prompts), parse_meta_types),
            asked.ask("meta types", meta_types_request(sample.excerpts, prompts), parse_meta_types),
        )
        types, task, form = types or ENTITY_TYPES, _task(config), None
        passages = _passages(sample, config)
        names = [name for name, _ in shares(config.llm.roles.extract)]
        if passages and all([await has_structured_output(name, config, ledger, retried, meter) for name in names]):
            form = task
        examples = await asyncio.gather(*(_example(asked, text, config, prompts, types, form) for text in passages))
    finally:
        await pool.close()
        await ledger.close()
    models = tuple(dict.fromkeys(model for role in ROLES for model in _models(config, role)))
    return TuningProposal(
        is_llm(config, "extract") and is_llm(config, "summarise"),
        models,
        types,
        meta or META_TYPES,
        task,
        tuple(text for text in examples if text),
        tuple(asked.rejected),
        meter,
    )


def _models(config: Config, role: str) -> list[str]:
    names = [name for name, _ in shares(getattr(config.llm.roles, role))]
    return [config.llm.endpoints[name].model or name for name in names]


class _Asked:
    """Calls of which the refused ones are noted."""

    def __init__(self, pool: ChatPool) -> None:
        self._pool = pool
        self.rejected: list[tuple[str, str]] = []

    async def ask(self, what: str, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | None:
        """Return the accepted reply, None where no attempt gave one."""
        found = await self._pool.ask(request, accept)
        if isinstance(found, Rejected):
            self.rejected.append((what, found.reason))
            return None
        return found


async def _example(
    asked: _Asked, text: str, config: Config, prompts: Prompts, types: Sequence[str], form: str | None
) -> str:
    request = _example_request(text, config, prompts, types, form)
    found = await asked.ask("example", request, lambda reply: parse_extraction(reply, text))
    if found is None or not found.entities:
        return ""
    return example_text(text, found, form, relations=_task(config) == "extract-graph")


CONFIG = "hirag.yaml"
PROMPTS = "prompts"


def check_target(out: str, *, force: bool) -> None:
    """Refuse a folder whose files would be overwritten.

    Raises:
        ConfigError: there are files that may have been edited.
    """
    found = [path for path in (Path(out) / CONFIG, Path(out) / PROMPTS) if path.exists()]
    if found and not force:
        raise ConfigError(f"{found[0]} exists, and may have been edited; --force overwrites it")


def write_files(sample: TuningSample, proposal: TuningProposal, out: str) -> list[Path]:
    """Write the files of a proposal and return their paths.

    Raises:
        StoreError: they cannot be written.
    """
    folder = Path(out)
    texts: dict[Path, str] = {}
    if proposal.examples:
        texts[folder / PROMPTS / f"{proposal.task}.examples.md"] = "\n\n".join(proposal.examples) + "\n"
    texts[folder / CONFIG] = configuration_text(sample, proposal, out)
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write into {out}: {error.strerror}") from error
    return list(texts)


def configuration_text(sample: TuningSample, proposal: TuningProposal, out: str) -> str:
    """Return the fragment of hirag.yaml, with comments."""
    read = f"{count_noun(len(sample.excerpts), 'excerpt')} of {count_noun(sample.documents, 'document')}"
    by = ", ".join(proposal.models)
    if proposal.by_llm:
        made = [f"Proposed by {by} from {read}. Read it, edit it, and copy it into your hirag.yaml."]
    else:
        made = [
            f"Proposed by the BUILT-IN model ({by}) from {read}, not by a language model: it knows",
            "seven types, which it finds by rules, and gives no examples. Name an endpoint for extract and summarise,",
            "and run `hirag-dist init --from INPUT` again, for types of your domain.",
        ]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in sample.languages)
    made.append(f"Language of the excerpts, by script and common words: {shown}. Names and descriptions stay in it.")
    made += [f"No reply could be used for {what} ({why}): this is the default." for what, why in proposal.rejected]
    parts = ["\n".join(f"# {line}" for line in made), _list("entity_types", proposal.entity_types)]
    parts.append(_list("meta_types", proposal.meta_types))
    if proposal.examples:
        examples = count_noun(len(proposal.examples), "example")
        prompts = yaml.safe_dump({"prompts": str(Path(out) / PROMPTS)}, allow_unicode=True).strip()
        parts.append(f"# {proposal.task}.examples.md in this folder has {examples} of your own sentences.\n{prompts}")
    return "\n\n".join(parts) + "\n"


def _list(key: str, values: Sequence[str]) -> str:
    return yaml.safe_dump({key: list(values)}, allow_unicode=True, sort_keys=False).strip()
