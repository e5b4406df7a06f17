"""The HiRAG reference, from a checkout: mode `hi`; storages in files.

It is on no package index. Written from descriptions of its interface (`HiRAG(working_dir=…)`, `insert`, `query` with
`QueryParam(mode="hi")`) and from nano-graphrag, which it grew out of; no checkout was at hand to run it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hirag import HiRAG, QueryParam  # found through PYTHONPATH, which the runner sets to the checkout
from openai import AsyncOpenAI

from benchmarks.peers.adapters.working_folder import WorkingFolder
from benchmarks.peers.job import API_KEY, CHAT_MODEL, EMBEDDING_MODEL, Job


class Adapter(WorkingFolder):
    """See `job.Adapter`."""

    def __init__(self, job: Job) -> None:
        client = AsyncOpenAI(base_url=job.base_url, api_key=API_KEY)

        async def complete(
            prompt: str, system_prompt: str | None = None, history_messages: Any = (), **options: Any
        ) -> str:
            cache = options.pop("hashing_kv", None)
            messages = [{"role": "system", "content": system_prompt}] if system_prompt else []
            messages += [*history_messages, {"role": "user", "content": prompt}]
            key = json.dumps(messages)
            known = await cache.get_by_id(key) if cache is not None else None
            if known is not None:
                return str(known["return"])
            reply = await client.chat.completions.create(model=CHAT_MODEL, messages=messages, **options)
            text = reply.choices[0].message.content
            if cache is not None:
                await cache.upsert({key: {"return": text, "model": CHAT_MODEL}})
            return str(text)

        async def embed(texts: list[str]) -> Any:
            reply = await client.embeddings.create(model=EMBEDDING_MODEL, input=texts, encoding_format="float")
            return np.array([each.embedding for each in reply.data])

        # a function, and not an object with a call: it copies its settings deeply, and clients cannot be copied
        vars(embed).update(embedding_dim=job.dim, max_token_size=8192)
        rag = HiRAG(
            working_dir=job.folder,
            best_model_func=complete,
            cheap_model_func=complete,
            embedding_func=embed,
            enable_hierachical_mode=True,
        )
        super().__init__(job.folder, rag, QueryParam, "hi")
