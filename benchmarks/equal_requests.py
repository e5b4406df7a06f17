"""Equal requests on one process and on Ray: how many are paid twice, and whether the ledger gives the same snapshot.

A corpus in which most chunks occur several times is indexed through an endpoint, for chat and embeddings, whose replies
differ each time. The index is then built again from a copy of its reply store alone, on one process and on Ray. A JSON
line for each number of workers (0 is one process without Ray): requests, those that were sent before, the snapshot's
id, and for each rebuild its id and its new requests.

    python benchmarks/equal_requests.py [--workers 0 1 2 4] [--documents 40] [--latency-ms 300]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.tokens import counter
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import Message

DIM = 32
CONFIG = """\
chunk_tokens: 40
chunk_overlap_tokens: 0
pack_units: 1
clustering: {{target_size: 6, max_size: 12}}
llm:
  endpoints:
    chat: {{base_url: "{url}", model: varying, max_concurrent: 64, output: delimited}}
    vectors: {{base_url: "{url}", model: varying-vectors, dim: 32}}
  roles: {{extract: chat, summarise: chat, report: chat, answer: chat, judge: chat, embed: vectors}}
"""


class VaryingEndpoint:
    """An OpenAI-compatible endpoint whose replies to one request differ each time.

    Attributes:
        chat: times that each chat request came, by its messages.
        texts: times that each text was embedded.
    """

    def __init__(self, latency_s: float) -> None:
        self.chat: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()
        numbers = count(1)
        lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    number = next(numbers)
                    if "messages" in body:
                        endpoint.chat[json.dumps(body["messages"])] += 1
                    else:
                        endpoint.texts.update(body["input"])
                time.sleep(latency_s * random.uniform(0.5, 1.5))
                reply = chat_reply(body, number) if "messages" in body else embedding_reply(body, number)
                data = json.dumps(reply).encode()
                try:
                    self.send_response(200)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the caller has ended

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def sent(self) -> int:
        """Return the chat requests and embedded texts so far."""
        return self.chat.total() + self.texts.total()


def chat_reply(body: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the built-in model's reply, with the number of the request in its descriptions."""
    messages = [Message(each["role"], each["content"]) for each in body["messages"]]
    extracts = messages[0].content.startswith("Task: extract-graph")
    text = extraction(messages[1].content) if extracts else reply_to(messages, None)
    if text.startswith("{"):
        value = json.loads(text)
        text = json.dumps(value | {"summary": f"{value['summary']} ({number})"})
    elif "<|>" in text:
        text = "\n".join(_varied(line, number) for line in text.splitlines())
    else:
        text = f"{text} ({number})"
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage, "model": body["model"]}


def extraction(prompt: str) -> str:
    """Return the long words of a text as entities: the built-in model finds none in many single sentences."""
    text = prompt.partition("<text>")[2].partition("</text>")[0]
    words = list(dict.fromkeys(word.lower() for word in re.findall(r"[A-Za-z]{6,}", text)))[:6]
    lines = [f"entity<|>{word}<|>concept<|>{word} is a word of the text." for word in words]
    lines += [f"relation<|>{a}<|>{b}<|>{a} stands before {b}.<|>3" for a, b in pairwise(words)]
    return "\n".join([*lines, DONE])


def _varied(line: str, number: int) -> str:
    fields = line.split("<|>")
    if len(fields) > 3:
        fields[3] = f"{fields[3]} ({number})"
    return "<|>".join(fields)


def embedding_reply(body: dict[str, Any], number: int) -> dict[str, Any]:
    """Return vectors that depend on the texts, and in their last digits on the number of the request."""
    data = []
    for at, text in enumerate(body["input"]):
        vector = np.random.default_rng(abs(hash(text)) % 2**32).standard_normal(DIM)
        vector += 1e-5 * np.random.default_rng(number).standard_normal(DIM)
        data.append({"index": at, "embedding": (vector / np.linalg.norm(vector)).tolist()})
    return {"data": data, "model": body["model"], "usage": {"prompt_tokens": 10 * len(data)}}


def write_corpus(folder: Path, n_documents: int) -> None:
    """Write documents of sentences that are a chunk each; every sentence is in several documents."""
    n_tokens = counter("o200k_base")
    samples = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
    sentences = [
        f"{each.strip()}."
        for path in sorted(samples.glob("*.md"))
        for line in path.read_text(encoding="utf-8").splitlines()
        for each in line.split(". ")
        if 25 <= n_tokens(each) <= 36 and "." not in each
    ]
    draw = random.Random(0)
    folder.mkdir()
    for number in range(n_documents):
        chosen = draw.sample(sentences[:60], 12)
        (folder / f"{number:04d}.txt").write_text("\n\n".join(chosen), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2, 4])
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--latency-ms", type=float, default=300.0)
    arguments = parser.parse_args()
    for workers in arguments.workers:
        print(json.dumps(measure(workers, arguments.documents, arguments.latency_ms / 1000)), flush=True)


def measure(workers: int, n_documents: int, latency_s: float) -> dict[str, Any]:
    """Build, and build again from the reply store; return the figures."""
    endpoint = VaryingEndpoint(latency_s)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_corpus(folder / "corpus", n_documents)
            (folder / "hirag.yaml").write_text(CONFIG.format(url=endpoint.url), encoding="utf-8")
            started = time.perf_counter()
            snapshot = build(folder, "first", workers)
            wall_s = time.perf_counter() - started
            chat, texts = endpoint.chat.copy(), endpoint.texts.copy()
            rebuilt = []
            for again in sorted({0, workers}):
                shutil.copytree(folder / "first" / "ledger", folder / f"again{again}" / "ledger")
                before = endpoint.sent()
                found = build(folder, f"again{again}", again)
                rebuilt.append({"workers": again, "is_equal": found == snapshot, "requests": endpoint.sent() - before})
    finally:
        endpoint.close()
    return {
        "benchmark": "equal_requests",
        "workers": workers,
        "wall_s": round(wall_s, 1),
        "chat_requests": chat.total(),
        "chat_requests_sent_before": chat.total() - len(chat),
        "texts_embedded": texts.total(),
        "texts_embedded_before": texts.total() - len(texts),
        "snapshot": snapshot,
        "rebuilt": rebuilt,
    }


def build(folder: Path, index: str, workers: int) -> str:
    """Build an index with the command; return the id of its snapshot."""
    command = [sys.executable, "-m", "hirag_dist", "index", str(folder / "corpus"), "--index", str(folder / index)]
    command += ["--config", str(folder / "hirag.yaml"), "--json"]
    command += ["--executor", "ray", "--workers", str(workers)] if workers else ["--executor", "inline"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return str(json.loads(done.stdout)["snapshot"])


if __name__ == "__main__":
    main()
