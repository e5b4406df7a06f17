"""Keys of the stored replies that layer 0 of some chunks rests on: its stages are run again, and no call is made.

Layer 0 (extraction, claims, descriptions, resolution, vectors) is computed from the text of its chunks and from replies
to requests that are computed from them, so these keys are those of replies that derive from these chunks alone. What
is asked about the layers above depends on how they were clustered and is not found in this way.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hirag_dist.composition.build import resolve
from hirag_dist.composition.build_records import last_build
from hirag_dist.composition.models import CHAT_ROLES, answerers, index_windows, priced_models, retry_policy
from hirag_dist.config.model import Config
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.errors import ConfigError, StageFailed
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.base import differences, in_short
from hirag_dist.indexing.context import BuildContext, ResolvedModels
from hirag_dist.indexing.mentions import extract_base_layer
from hirag_dist.indexing.pipeline import Build
from hirag_dist.indexing.stages.embed import EmbedChunks, entity_texts
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool, PackingPool
from hirag_dist.llm.embedding import PaidEmbedder, embedder_identity, vector_key
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.replay import ReadOnlyLedger, RecordingLedger, StoredVectors
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import key_bytes
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.protocols import Embedder, Kernels
from hirag_dist.schemas import CHUNKS
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)


def replay_keys(config: Config, store: Store, models: ResolvedModels, chunks: pa.Table) -> set[bytes]:
    """Return the keys of the stored replies, vectors among them, that layer 0 of these chunks rests on.

    Tables of that layer lie in a temporary folder meanwhile.

    Args:
        config: of the build that asked for the replies.
        models: as that build resolved them.
    """
    ledger = RecordingLedger(store)
    embedder = make_embedder(config)
    is_paid = isinstance(embedder, PaidEmbedder)
    if not is_paid and not any(each.paid for role in CHAT_ROLES for each in priced_models(config, role)):
        return set()  # built-in models compute their replies again
    identity = embedder_identity(embedder) if is_paid else embedder.name
    embedder = StoredVectors(identity, embedder.dim, ledger if is_paid else None)
    with offline_context(config, models, ledger, embedder) as context:
        given = context.datasets.put("given_chunks", chunks.cast(CHUNKS))
        if is_paid:
            context.runner.run(EmbedChunks(models.embedder, models.dim), "chunk vectors", chunks=given)
        try:
            extract_base_layer(context, given)
        except StageFailed as error:  # no reply about these chunks is stored
            logger.info("layer 0 was not replayed to its end: %s", error)
    return ledger.found


@contextmanager
def offline_context(
    config: Config, models: ResolvedModels, ledger: ReadOnlyLedger, embedder: Embedder
) -> Iterator[BuildContext]:
    """Lend a build in a temporary folder, in this process, that takes paid replies from a ledger and makes no call."""
    with tempfile.TemporaryDirectory(prefix="hirag-offline-") as folder:
        executor = InlineExecutor(lambda: _services(config, ledger, embedder))
        try:
            runner = StageRunner(Store(folder), executor, (), max_reject_ratio=1.0)
            yield BuildContext(runner, config, load_prompts(config.prompts), models)
        finally:
            executor.close()


def text_vector_keys(texts: Iterable[str], embedder: str, dim: int) -> set[bytes]:
    """Return the keys of the vectors of texts, stored or not."""
    return {key_bytes(vector_key(embedder, dim, text)) for text in texts}


def snapshot_vector_keys(snapshot: Snapshot, embedder: str, dim: int) -> set[bytes]:
    """Return the keys of the vectors of a snapshot's chunks and entities, of all layers, stored or not."""
    entities = entity_texts(snapshot.table("entities", ["name", "description"]))
    chunks = snapshot.table("chunks", ["text"])["text"].to_pylist()
    return text_vector_keys(entities, embedder, dim) | text_vector_keys(chunks, embedder, dim)


def models_of_last_build(config: Config, store: Store) -> ResolvedModels:
    """Return the models of the last build as it resolved them. Where it left no record, an endpoint may be asked.

    Args:
        config: As `composition.models.cut_as_index` returns it.

    Raises:
        ConfigError: that build had another configuration, so that its replies would not be found.
    """
    decisive: Mapping[str, Any] = (last_build(store) or {}).get("decisive") or {}
    windows = index_windows(config, config, store)
    if not decisive:
        return replace(resolve(config, Ledger(store), "cpu"), windows=windows)
    embedder = make_embedder(config)
    models = ResolvedModels(
        structured=decisive["structured"],
        models={role: answerers(config, getattr(config.llm.roles, role)) for role in CHAT_ROLES},
        embedder=embedder_identity(embedder),
        embedder_name=embedder.name,
        dim=embedder.dim,
        kernels=decisive.get("kernels", ""),
        windows=windows,
    )

    def services() -> Services:
        raise AssertionError("no stage is run")

    runner = StageRunner(store, InlineExecutor(services), (), 1.0)
    context = BuildContext(runner, config, load_prompts(config.prompts), models)
    if changes := in_short(differences(decisive, Build(context).decisive())):
        raise ConfigError(
            f"this is not the configuration of the last build of {store.uri}: {changes}. The replies to keep "
            "are found by it: give the --config and --set of that build"
        )
    return models


def _services(config: Config, ledger: ReadOnlyLedger, embedder: Embedder) -> Services:
    roles = {role: priced_models(config, role, without_calls=True) for role in CHAT_ROLES}
    limits = {name: EndpointLimits(None, None, None) for name in config.llm.endpoints}
    retried = RetriedCalls(RateLimiter(QuotaCoordinator(limits)), retry_policy(config))
    count = counter(config.tokenizer)
    pool = EndpointPool(roles, ledger, retried, count)

    async def close() -> None:
        await pool.close()
        await ledger.close()

    def bind(context: CallContext) -> tuple[PackingPool, Embedder]:
        return pool.with_context(context), embedder

    def make_kernels(name: str) -> Kernels:
        raise AssertionError(f"layer 0 needs no kernels, not {name}")

    return Services(pool, embedder, make_kernels, encoding(config.tokenizer), count, close=close, bind=bind)
