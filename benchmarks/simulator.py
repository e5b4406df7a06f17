"""Throughput of `simulate-llm`, and its CPU cost of a call.

Asks over loopback at zero latency, with extraction prompts and with texts to embed, made from INPUT (the sample
corpus), and prints a JSON line for each kind, cold (the model works) and warm (the replies are remembered): calls a
second, and the CPU of the endpoint's process for a call.

    python benchmarks/simulator.py [TEXT-FILE …] [--clients 16] [--warm-rounds 40]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.build import start_simulator
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts, extraction_request
from hirag_dist.core.text.chunking import chunk_spans
from hirag_dist.core.text.tokens import encoding

TEXTS_A_CALL = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    samples = sorted((Path(str(resources.files("hirag_dist.samples"))) / "corpus").glob("*.md"))
    parser.add_argument("inputs", nargs="*", type=Path, default=samples)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--warm-rounds", type=int, default=40)
    arguments = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in arguments.inputs]
    kinds = {"/v1/chat/completions": list(chat_bodies(texts)), "/v1/embeddings": list(embedding_bodies(texts))}
    for path, bodies in kinds.items():
        process, url = start_simulator()
        try:
            endpoint = psutil.Process(process.pid)
            for case, asked in (("cold", bodies), ("warm", bodies * arguments.warm_rounds)):
                figures = asyncio.run(measure(url, path, asked, arguments.clients, endpoint))
                print(json.dumps({"benchmark": "simulator", "way": path, "case": case, **figures}), flush=True)
        finally:
            process.terminate()
            process.wait()


def chat_bodies(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield a request for each chunk, cut and asked as an index does by default."""
    config = Config()
    tokens = encoding(config.tokenizer)
    for text in texts:
        for span in chunk_spans(text, tokens, config.chunk_tokens, config.chunk_overlap_tokens, True):
            part = text[span.start : span.end]
            asked = extraction_request("extract-graph", part, Prompts(), config.entity_types, None)
            messages = [{"role": message.role, "content": message.content} for message in asked.messages]
            yield json.dumps({"model": "simulated", "messages": messages}, ensure_ascii=False).encode()


def embedding_bodies(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield requests for paragraphs, as base64, which is what the openai client asks for."""
    parts = [part for text in texts for part in text.split("\n\n") if part.strip()]
    for start in range(0, len(parts), TEXTS_A_CALL):
        body = {"model": "simulated", "input": parts[start : start + TEXTS_A_CALL], "encoding_format": "base64"}
        yield json.dumps(body, ensure_ascii=False).encode()


async def measure(
    url: str, path: str, bodies: Sequence[bytes], n_clients: int, endpoint: psutil.Process
) -> dict[str, float]:
    """Ask everything once, from so many connections; return the figures."""
    address = urlsplit(url)
    waiting = iter(bodies)

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for body in waiting:
            head = f"POST {path} HTTP/1.1\r\nHost: simulator\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            status, _, fields = answer.decode("latin-1").partition("\r\n")
            if " 200 " not in status:
                raise SystemExit(f"{path} answered {status}")
            named = dict(line.lower().split(": ", 1) for line in fields.splitlines() if line)
            await reader.readexactly(int(named["content-length"]))
        writer.close()

    before = endpoint.cpu_times()
    started = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(n_clients)))
    wall_s = time.perf_counter() - started
    after = endpoint.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return {
        "calls": len(bodies),
        "calls_per_s": round(len(bodies) / wall_s, 1),
        "cpu_ms_per_call": round(cpu_s / len(bodies) * 1000, 3),
    }


if __name__ == "__main__":
    main()
