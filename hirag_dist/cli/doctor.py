"""`hirag-dist doctor`: checks of what is installed and reachable, one line each, with a fix for each fault."""

from __future__ import annotations

import asyncio
import importlib.metadata
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec

import typer
from rich.markup import escape

from hirag_dist.cli._options import ConfigOptions, OptionalIndexOption
from hirag_dist.cli._output import emit, out, short
from hirag_dist.composition.build_records import recorded_embedder
from hirag_dist.composition.models import (
    CHAT_ROLES,
    endpoint_with_window,
    lexical_embedding_notice,
    role_endpoints,
    role_windows,
    settle_embedder,
)
from hirag_dist.compute.kernels import has_gpu_workers, resolve_kernels
from hirag_dist.config.model import Config, EndpointConfig
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import HiragError
from hirag_dist.indexing.window_sizes import fit_to_windows
from hirag_dist.llm.endpoints.factory import make_chat_model, make_embedder, make_local_reranker, make_reranker
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.protocols import Closable
from hirag_dist.readers.office_files import INSTALL as INSTALL_DOCUMENTS
from hirag_dist.readers.office_files import PACKAGES as OFFICE_FORMATS
from hirag_dist.readers.office_files import missing_package
from hirag_dist.retrieval.answer_stream import AnswerWindow
from hirag_dist.retrieval.vector_index.milvus.connection import INSTALL
from hirag_dist.storage.serving.mapped_files import MappedFiles
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest, Message

_PROBE_TOKENS = 32


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the report: subject, state, observation, and a fix."""

    subject: str
    state: str  # ok, note or fault
    seen: str
    fix: str = ""


def doctor(options: ConfigOptions, index: OptionalIndexOption = None) -> None:
    """Check the installation, the configuration and, with one probe each, the endpoints it names."""
    findings = examine(options.load(), index)
    if options.json:
        emit({"findings": [asdict(finding) for finding in findings]})
    else:
        marks = {"ok": "[green]ok   [/green]", "note": "[dim]note [/dim]", "fault": "[red]fault[/red]"}
        for finding in findings:
            fix = f" — {finding.fix}" if finding.fix else ""
            said = escape(f"{finding.subject}: {finding.seen}{fix}".replace("\n", " "))
            out.print(f"{marks[finding.state]} {said}")
    if any(finding.state == "fault" for finding in findings):
        raise typer.Exit(1)


def examine(config: Config, index: str | None) -> list[DoctorFinding]:
    """Return the findings, in the order of the flow."""
    config = settle_embedder(config, None if index is None else recorded_embedder(Store(index)))
    findings = [_version(name) for name in ("ray", "grpcio", "numba")]
    findings += [_milvus_packages(config), _gpu()]
    if has_gpu_workers(config):
        seen = f"up to {config.execution.gpu_workers} workers with a GPU say which, when a build first needs them"
        findings.append(DoctorFinding("kernels", "note", seen))
    elif config.kernels in ("gpu", "cupy"):
        findings.append(_check("kernels", lambda: resolve_kernels(config.kernels), "or set kernels: auto"))
    findings.append(_documents())
    findings.append(_check("tokenizer", lambda: f"{config.tokenizer}, {counter(config.tokenizer)('one two')} tokens"))
    findings.append(_check("prompts", lambda: _prompts(config)))
    if config.execution.chosen != "inline" and find_spec("ray") is not None:
        findings.append(_check("Ray", lambda: _ray(config), "use --executor inline to do without it"))
    told: dict[str, EndpointConfig] = {}
    for name in sorted({name for role in CHAT_ROLES for name in role_endpoints(config, role)}):
        findings.append(_check(f"endpoint {name}", partial(_chat_once, name, config, told)))
    asked = config.llm.model_copy(update={"endpoints": config.llm.endpoints | told})
    if windows := role_windows(config.model_copy(update={"llm": asked})):
        findings.append(_check("context windows", lambda: _windows(config, windows)))
    findings.append(_check(f"embedder {config.llm.roles.embed}", lambda: asyncio.run(_embed(config))))
    if reranker := config.llm.roles.rerank:
        findings.append(_check(f"reranker {reranker}", lambda: asyncio.run(_rerank(reranker, config))))
    if notice := lexical_embedding_notice(config):
        findings.append(DoctorFinding("embedder", "note", notice))
    by = "auto, " if config.vectors.backend == "auto" else ""
    findings.append(DoctorFinding("vectors", "ok", f"{by}{config.vectors.chosen}"))
    if config.vectors.chosen == "milvus":
        findings.append(_check("Milvus", lambda: _milvus(config), "check vectors.uri and vectors.token"))
    findings.append(_disk(index or tempfile.gettempdir()))
    if index is not None:
        findings.append(_check(f"index {index}", lambda: _index(index)))
    return findings


def _check(subject: str, look: Callable[[], str], fix: str = "") -> DoctorFinding:
    try:
        return DoctorFinding(subject, "ok", look())
    except HiragError as error:
        return DoctorFinding(subject, "fault", str(error), fix)


def _version(name: str) -> DoctorFinding:
    try:
        return DoctorFinding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return DoctorFinding(name, "fault", "not installed", "pip install hirag-dist")


def _milvus_packages(config: Config) -> DoctorFinding:
    """Return the versions of the client of Milvus and of Milvus Lite; a fault where Lite is configured and missing."""
    client, lite = _version("pymilvus"), _version("milvus-lite")
    if client.state == "fault":
        return DoctorFinding("Milvus packages", "fault", "pymilvus is not installed", client.fix)
    if lite.state != "fault":
        return DoctorFinding("Milvus packages", "ok", f"pymilvus {client.seen}, milvus-lite {lite.seen}")
    if config.vectors.chosen == "milvus-lite":
        return DoctorFinding("Milvus packages", "fault", "vectors.backend is milvus-lite, which is missing", INSTALL)
    return DoctorFinding("Milvus packages", "ok", f"pymilvus {client.seen}")


def _documents() -> DoctorFinding:
    """Return a note on the packages that read office files."""
    missing = [f".{name}" for name in OFFICE_FORMATS if missing_package(name)]
    if not missing:
        return DoctorFinding("office files", "ok", f"{', '.join(f'.{name}' for name in OFFICE_FORMATS)} are read")
    seen = f"{', '.join(missing)} cannot be read"
    return DoctorFinding("office files", "note", seen, f"{INSTALL_DOCUMENTS} to read them")


def _gpu() -> DoctorFinding:
    """Return a note on the GPU: it is needed only with `kernels: gpu`."""
    seen = "a driver is installed" if shutil.which("nvidia-smi") else "none found"
    if find_spec("cupy") is None:
        fix = "" if seen == "none found" else "pip install 'hirag-dist[gpu-cu12]' (or gpu-cu13) to compute on it"
        return DoctorFinding(
            "GPU", "note", f"{seen}, and CuPy is not installed: clustering and communities run on the CPU", fix
        )
    from hirag_dist.compute.gpu import describe_device, device_count

    packages = [f"{name} {_rapids_version(name)}" for name in ("pylibcugraph", "cuml")]
    if not device_count():
        return DoctorFinding(
            "GPU", "note", "CuPy is installed and no GPU is visible: see `nvidia-smi`, CUDA_VISIBLE_DEVICES"
        )
    graphs = "communities on the CPU" + (", by cuGraph with kernels: gpu" if find_spec("pylibcugraph") else "")
    umap = ", UMAP by cuML with clustering.reduction: umap" if find_spec("cuml") else ""
    seen = f"{describe_device()}, {', '.join(packages)}: clusters, PCA and path statistics by CuPy, {graphs}{umap}"
    return DoctorFinding("GPU", "note", seen)


def _rapids_version(package: str) -> str:
    """Return the version of a RAPIDS package, without the seconds that its import takes."""
    for name in (f"{package}-cu13", f"{package}-cu12", package):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed" if find_spec(package) is None else "of an unknown version"


def _prompts(config: Config) -> str:
    prompts = load_prompts(config.prompts)
    replaced = sorted({*prompts.instructions, *prompts.examples})
    return f"replaced: {', '.join(replaced)}" if replaced else "built in"


def _ray(config: Config) -> str:
    from hirag_dist.execution.ray import describe_cluster

    gpu_workers = config.execution.gpu_workers if has_gpu_workers(config) else 0
    return describe_cluster(config.execution.ray_address, gpu_workers)


def _chat_once(name: str, config: Config, told: dict[str, EndpointConfig]) -> str:
    """Probe an endpoint, and add to `told` what its server tells of its window."""
    return asyncio.run(_chat(name, config, told))


async def _chat(name: str, config: Config, told: dict[str, EndpointConfig]) -> str:
    from hirag_dist.llm.endpoints.openai_chat import OpenAiChat  # not at the top: it imports an HTTP client

    model = make_chat_model(name, config)
    try:
        if config.llm.endpoints[name].kind == "recorded":
            return f"{model.name}, replies from a recording"
        task = "Task: describe\n\nWrite one short description."
        body = "<entity>\nping (concept)\n</entity>\n<descriptions>\n- A probe.\n- Asked once.\n</descriptions>"
        request = ChatRequest(
            "summarise", (Message("system", task), Message("user", body)), unit="doctor", max_tokens=_PROBE_TOKENS
        )
        started = time.perf_counter()
        reply = await model.complete(request)
        seconds = time.perf_counter() - started
        structured = ""
        if isinstance(model, OpenAiChat):
            structured = f", structured outputs {'on' if await model.supports_forms() else 'off'}"
        told[name] = await endpoint_with_window(name, config)
        window = _window_and_speed(told[name], reply.output_tokens / max(seconds, 1e-9))
        tokens = f"{count_noun(reply.input_tokens, 'token')} in, {reply.output_tokens} out"
        return f"{model.name} answered ({tokens}){structured}{window}"
    finally:
        await model.close()


def _windows(config: Config, windows: Mapping[str, int]) -> str:
    """Return the chunks of a build, cut to the windows of its models.

    Raises:
        ConfigError: a window has no room beside the instructions of a task.
    """
    prompts, count = load_prompts(config.prompts), counter(config.tokenizer)
    fitted = fit_to_windows(config, windows, prompts)
    AnswerWindow(windows.get("answer"), prompts, count).cut(config.retrieval, "")
    return f"chunks of up to {count_noun(fitted.chunk_tokens, 'token')} fit"


def _window_and_speed(endpoint: EndpointConfig, tokens_per_s: float) -> str:
    """Return what an endpoint tells of its window and its requests at a time, and the speed of one reply."""
    if not endpoint.is_remote:
        return ""
    known = endpoint.context_window
    window = "not told: set context_window" if known is None else f"{known:,} tokens"
    at_a_time = "" if endpoint.max_concurrent is None else f", {endpoint.max_concurrent} at a time"
    return f", window {window}, about {short(tokens_per_s)} tokens a second in one call{at_a_time}"


async def _embed(config: Config) -> str:
    embedder = make_embedder(config)
    try:
        vectors = await embedder.embed(["a probe"])
        return f"{embedder.name}, {vectors.shape[1]} dimensions"
    finally:
        if isinstance(embedder, Closable):
            await embedder.close()


async def _rerank(name: str, config: Config) -> str:
    question, texts = "which is a fruit?", ["an apple", "a spanner"]
    if (local := make_local_reranker(name, config)) is not None:
        scores = await local.scores(question, texts)
    else:
        reranker = make_reranker(name, config)
        name = reranker.name
        try:
            scores = (await reranker.request((question, texts))).value
        finally:
            await reranker.close()
    return f"{name}, relevance {scores[0]:.3g} and {scores[1]:.3g} of two texts, the first the relevant one"


def _milvus(config: Config) -> str:
    from hirag_dist.retrieval.vector_index.milvus import server_version

    token = config.vectors.token.get_secret_value() if config.vectors.token else ""
    return server_version(str(config.vectors.uri), token)


def _disk(folder: str) -> DoctorFinding:
    try:
        free = shutil.disk_usage(folder).free / 1e9
    except OSError:
        return DoctorFinding("disk", "note", f"{folder} does not exist yet")
    if free < 1:
        return DoctorFinding("disk", "fault", f"{free:.1f} GB free at {folder}", "free space before you build")
    return DoctorFinding("disk", "ok", f"{free:,.0f} GB free at {folder}")


def _index(index: str) -> str:
    """Check that an index can be written to, and every byte of its current snapshot."""
    store = Store(index)
    if not store.exists(""):
        return "does not exist yet; `hirag-dist index` creates it"
    store.check_writable()
    if current_id(store) is None:
        return "can be written to; nothing is published"
    snapshot = open_snapshot(store, full_check=True)
    MappedFiles(snapshot, "")  # each file is checked when it is mapped
    return f"can be written to; every file of snapshot {snapshot.manifest.snapshot_id} is whole"
