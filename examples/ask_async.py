"""Ask a running service many questions at a time, over one connection.

python examples/ask_async.py 127.0.0.1:50051 "Who built the lighthouse?" "Who lit the lamp?"
"""

from __future__ import annotations

import asyncio
import os
import sys

from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import HiragError

AT_A_TIME = 8


async def main(target: str, questions: list[str]) -> None:
    """Ask, and print one line a question, in their order."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async with AsyncHiragClient(target, token_file=os.environ.get("HIRAG_TOKEN_FILE")) as client:

        async def ask(question: str) -> str:
            async with gate:
                try:
                    answer = await client.answer(question, omit_context=True, omit_source_text=True)
                except HiragError as error:  # one question that fails does not end the others
                    return f"{type(error).__name__}: {error}"
            return answer.text

        for question, said in zip(questions, await asyncio.gather(*map(ask, questions)), strict=True):
            print(f"{question}\t{said}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
