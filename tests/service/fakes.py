"""A scripted engine, a service around it, a callers file and certificates."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ipaddress
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import yaml
from grpc_reflection.v1alpha import reflection_pb2

from hirag_dist.client.common import service_stub
from hirag_dist.service.catalogue import IndexCatalogue
from hirag_dist.service.hot_swap import SingleIndex, SnapshotSwapper
from hirag_dist.service.options import PageOptions, ServerOptions
from hirag_dist.service.server import QueryServer
from hirag_dist.service.web.run import Page
from hirag_dist.types import (
    AccessScope,
    Answer,
    Citation,
    CommunityDetails,
    CommunityItem,
    DocumentPart,
    EntityDetails,
    EntityItem,
    IndexInfo,
    PathDetails,
    PathItem,
    Query,
    Retrieval,
    SourceItem,
    TripleItem,
)

INFO = IndexInfo(
    snapshot_id="s1",
    created_at="2026-11-21T06:00:00Z",
    complete=True,
    counts={"documents": 3, "entities": 2**40},
    layers=(
        {"layer": 0, "n_entities": 5, "sparsity": 0.25, "change_rate": None, "decision": "go on", "kept": True},
        {"layer": 1, "n_entities": 1, "sparsity": 1.0, "change_rate": 3.0, "decision": "one cluster", "kept": False},
    ),
    communities_by_level={0: 2, 1: 4},
    embedder="hashing",
    dim=4,
)

LIGHTHOUSE = EntityItem("e1", "Lighthouse", "location", "Stands on the rock.", 0, 0.75, "name")
KEEPER = EntityItem("e2", "Wärterin 灯台守", "person", "Lit the lamp.", 1)
WHOLE = Retrieval(
    question="Who lit the lamp?",
    mode="hirag",
    snapshot_id="s1",
    local=(LIGHTHOUSE,),
    communities=(CommunityItem("c1", 1, "The rock", "All about it.", 7.5, 2, 0.75),),
    key_entities=(LIGHTHOUSE, KEEPER),
    paths=(PathItem("e1", "e2", ("e1", "e2"), ("Lighthouse", "Wärterin 灯台守")), PathItem("e2", "e9", (), ())),
    triples=(TripleItem("r1", "e2", "e1", "Wärterin 灯台守", "Lighthouse", "extracted", "keeps", 9.0, 0.5),),
    sources=(SourceItem("k1", "d1", "Log", "file:///log.txt", 10, 42, "The keeper lit the lamp.", 0.3),),
    context="E1: Lighthouse",
    context_tokens=5,
    context_refs={"E1": "e1", "S1": "k1"},
    timings_ms={"search": 1.25, "total": 3.5},
)
ROCK = CommunityItem("c0", 0, "The coast", "", 5.0, 0, 0.0)
ENTITY = EntityDetails(
    KEEPER, WHOLE.triples, (LIGHTHOUSE,), (LIGHTHOUSE,), (KEEPER,), (ROCK,), WHOLE.sources, 2**33, 2, 1
)
PATH = PathDetails(WHOLE.paths[0], (LIGHTHOUSE, KEEPER), WHOLE.triples)
COMMUNITY = CommunityDetails(WHOLE.communities[0], (LIGHTHOUSE, KEEPER), ROCK, (ROCK, ROCK), 7)
DOCUMENT = DocumentPart(
    "d1", "Log", "file:///log.txt", "The keeper 灯台守 lit the lamp.", 3, 2**40, WHOLE.sources, {"tags": ("a", 1)}
)
PIECES = ("The keeper ", "lit it [E2].")
ANSWER = Answer(
    "The keeper lit it [E2].", (Citation("E2", "entity", "e2", "Wärterin"),), 1, WHOLE, "extractive", 100, 7
)


class FakeEngine:
    """Answers with `whole`. With a `gate` it waits for it first, at most for half of the time to the deadline.

    Then all but local is cut off, as by a passed deadline; a slow machine has the other half to send that.

    `started`, `cancelled` and `closed` are set when the first request begins, when one is cancelled, and at the end.
    """

    def __init__(self, snapshot_id: str = "s1", whole: Retrieval = WHOLE) -> None:
        self.info = replace(INFO, snapshot_id=snapshot_id)
        self.whole = replace(whole, snapshot_id=snapshot_id)
        self.answer, self.pieces = ANSWER, PIECES
        self.found = {"get_entity": ENTITY, "find_path": PATH, "get_community": COMMUNITY, "get_document": DOCUMENT}
        self.late = replace(self.whole, communities=(), key_entities=(), paths=(), triples=(), sources=())
        self.late = replace(self.late, partial=("global", "bridge", "sources"))
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.queries: list[Query] = []
        self.lookups: list[tuple[str, tuple[str, ...], AccessScope, dict[str, int]]] = []
        self.described_to: list[frozenset[str] | None] = []
        self.described_with: list[tuple[str, str]] = []
        self.deadlines: list[float | None] = []
        self.started, self.cancelled, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.at_work = 0
        self.question_cache = (0, 0)

    def describe(self, reach: frozenset[str] | None, expression: str = "", as_of: str = "") -> IndexInfo:
        self.described_to.append(reach)
        self.described_with.append((expression, as_of))
        return self.info

    async def retrieve(self, query: Query, *, deadline_s: float | None = None) -> Retrieval:
        try:
            await self._work(query, deadline_s)
        except TimeoutError:
            return self.late
        return self.whole

    async def retrieve_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[tuple[str, Retrieval], None]:
        yield "local", replace(self.late, partial=())
        await self._work(query, deadline_s)
        for level in ("global", "bridge", "sources", "done"):
            yield level, self.whole

    async def answer_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        yield self.whole
        await self._work(query, deadline_s)
        for piece in self.pieces:
            yield piece
        yield replace(self.answer, retrieval=self.whole)

    async def held(self, call: Awaitable[Any]) -> asyncio.Future[Any]:
        """Start a call; return it when the engine is at work and waits for its gate."""
        self.gate, self.started, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        begun = asyncio.ensure_future(call)
        await asyncio.wait_for(self.started.wait(), 60)
        return begun

    def answers(self, text: str, *citations: Citation) -> None:
        """Let the answers be this text, in one piece."""
        self.answer, self.pieces = replace(ANSWER, text=text, citations=citations), (text,)

    async def _look_up(self, name: str, *keys: str, scope: AccessScope, deadline_s: float | None, **most: int) -> Any:
        self.lookups.append((name, keys, scope, most))
        await self._work(Query(keys[0]), deadline_s)
        return self.found[name]

    async def get_entity(self, *keys: str, **options: Any) -> Any:
        return await self._look_up("get_entity", *keys, **options)

    async def find_path(self, *keys: str, **options: Any) -> Any:
        return await self._look_up("find_path", *keys, **options)

    async def get_community(self, *keys: str, **options: Any) -> Any:
        return await self._look_up("get_community", *keys, **options)

    async def get_document(self, *keys: str, **options: Any) -> Any:
        return await self._look_up("get_document", *keys, **options)

    async def close(self) -> None:
        assert not self.at_work, "closed under a request"
        assert not self.closed.is_set(), "closed twice"
        self.closed.set()

    async def _work(self, query: Query, deadline_s: float | None) -> None:
        assert not self.closed.is_set(), "used after it was closed"
        self.queries.append(query)
        self.deadlines.append(deadline_s)
        self.started.set()
        self.at_work += 1
        try:
            if self.error is not None:
                raise self.error
            if self.gate is not None:
                await asyncio.wait_for(self.gate.wait(), None if deadline_s is None else deadline_s / 2)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.at_work -= 1


def swapper_of(engine: Any, may_open: asyncio.Event | None = None) -> SnapshotSwapper:
    """A swapper whose snapshot never changes, and opens at once if not told when it may."""

    async def opened() -> Any:
        if may_open is not None:
            await may_open.wait()
        return engine

    return SnapshotSwapper(opened, lambda: engine.info.snapshot_id, poll_s=3600)


@dataclass
class Service:
    """A service that listens, with a channel on which gRPC itself retries nothing, and a client of its HTTP server."""

    address: str
    engine: Any
    indexes: Any
    server: QueryServer
    channel: grpc.aio.Channel
    http: aiohttp.ClientSession
    page: Any = None

    @property
    def stub(self) -> Any:
        return service_stub(self.channel)

    @property
    def url(self) -> str:
        return str(self.page.url)

    async def request(self, method: str, path: str, **options: Any) -> aiohttp.ClientResponse:
        """Return a reply of the HTTP server, read to its end."""
        async with self.http.request(method, self.url + path, **options) as response:
            await response.read()
        return response

    async def post(self, path: str, body: Any, **options: Any) -> aiohttp.ClientResponse:
        return await self.request("POST", path, json=body, **options)

    async def load(self) -> None:
        await self.indexes.start()
        await self.server.set_serving()


class Services:
    """Starts services and stops them all at the end."""

    def __init__(self) -> None:
        self._running = AsyncExitStack()

    async def start(
        self, engine: Any, *, load: bool = True, page: Mapping[str, Any] | None = None, **options: Any
    ) -> Service:
        """Start a service around an engine, a swapper or a catalogue.

        Args:
            load: whether it opens its index at once.
            page: `PageOptions` of its HTTP server; None for no HTTP server.
            options: `ServerOptions`.
        """
        swapper = engine if isinstance(engine, SnapshotSwapper | IndexCatalogue) else swapper_of(engine)
        indexes = swapper if isinstance(swapper, IndexCatalogue) else SingleIndex(swapper)
        server = QueryServer(indexes, ServerOptions(**{"listen": "127.0.0.1:0"} | options))
        address = await server.start()
        self._running.push_async_callback(indexes.close)
        self._running.push_async_callback(server.stop, 0)
        channel = grpc.aio.insecure_channel(address, options=[("grpc.enable_retries", 0)])
        await self._running.enter_async_context(channel)
        http = await self._running.enter_async_context(aiohttp.ClientSession())
        service = Service(address, engine, indexes, server, channel, http)
        if load:
            await service.load()
        if page is not None:
            chosen = PageOptions(**{"listen": "127.0.0.1:0", "callers": "callers_file" in options} | dict(page))
            service.page = await self._running.enter_async_context(Page(chosen, address))
        return service

    async def stop(self) -> None:
        await self._running.aclose()


Start = Callable[..., Awaitable[Service]]


def certificates(folder: Path) -> dict[str, str]:
    """Write an authority, and a certificate with key for server and client; return name → path."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.UTC)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
    paths: dict[str, str] = {}

    for name in ("ca", "server", "client"):
        is_authority = name == "ca"
        key = authority_key if is_authority else ec.generate_private_key(ec.SECP256R1())
        subject = authority if is_authority else x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            x509.CertificateBuilder(authority, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([] if is_authority else here), critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        for kind, content in (("pem", certificate.public_bytes(serialization.Encoding.PEM)), ("key", secret)):
            path = folder / f"{name}.{kind}"
            path.write_bytes(content)
            paths[path.name] = str(path)
    return paths


class CallersFile:
    """A callers file that grows; each caller's token is its name with -token behind it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.callers: dict[str, dict[str, Any]] = {}

    def add(self, name: str, **record: Any) -> CallersFile:
        """Put a caller in. `expires` is of its token; the rest is its record."""
        token: dict[str, Any] = {"sha256": hashlib.sha256(f"{name}-token".encode()).hexdigest()}
        if "expires" in record:
            token["expires"] = record.pop("expires")
        self.callers[name] = {"tokens": [token]} | record
        return self.write()

    def write(self) -> CallersFile:
        """Replace the file at once, as an operator should."""
        new = Path(f"{self.path}.new")
        new.write_text(yaml.safe_dump({"callers": self.callers}))
        new.replace(self.path)
        return self


def token(name: str) -> tuple[tuple[str, str], ...]:
    """Metadata with a caller's token."""
    return (("authorization", f"Bearer {name}-token"),)


def list_services(channel: grpc.aio.Channel, version: str = "v1alpha", **options: Any) -> Any:
    """Ask what is served, with all that is sent in one operation.

    A stream of requests that is refused before its first message has gone out ends with INTERNAL in `grpc.aio`.
    """
    request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    ask = channel.unary_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return ask(request, **options)


async def end_of(call: Any) -> str:
    """Read all that a call replies. Return the name of its status, and what that says: "OK", "NOT_FOUND: no x"."""
    with suppress(grpc.aio.AioRpcError):
        _ = [await call] if isinstance(call, grpc.aio.UnaryUnaryCall) else [part async for part in call]
    return ": ".join(filter(None, ((await call.code()).name, await call.details())))
