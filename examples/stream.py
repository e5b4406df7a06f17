"""Print an answer while it is written, and its citations at the end. Ctrl-C also cancels the call on the service.

python examples/stream.py 127.0.0.1:50051 "Who built the lighthouse?"
"""

from __future__ import annotations

import os
import sys
from contextlib import closing

from hirag_dist.client import HiragClient
from hirag_dist.errors import HiragError
from hirag_dist.types import Answer, Retrieval


def main(target: str, question: str) -> None:
    """Ask, and print what comes."""
    with (
        HiragClient(target, token_file=os.environ.get("HIRAG_TOKEN_FILE")) as client,
        closing(client.answer_stream(question, omit_context=True)) as parts,
    ):
        for part in parts:
            match part:
                case Retrieval():
                    print(f"({len(part.local)} entities, {len(part.communities)} communities, {len(part.paths)} paths)")
                case str():
                    print(part, end="", flush=True)
                case Answer():
                    print()
                    for citation in part.citations:
                        print(f"  [{citation.ref}] {citation.title}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except HiragError as error:
        sys.exit(f"{type(error).__name__}: {error}")
