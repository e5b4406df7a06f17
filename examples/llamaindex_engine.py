"""Ask a running service through a query engine of LlamaIndex, and print the answer with its source nodes.

    pip install 'hirag-dist-client[llamaindex]'
    python examples/llamaindex_engine.py 127.0.0.1:50051 "Who built the lighthouse?"

The service's own model writes the answer: no key of another model is needed. HIRAG_TOKEN_FILE names the file of a
token.
"""

from __future__ import annotations

import os
import sys

from hirag_dist.errors import HiragError
from hirag_dist.integrations.llamaindex import HiragQueryEngine


def main(target: str, question: str) -> None:
    """Ask, and print."""
    token_file = os.environ.get("HIRAG_TOKEN_FILE")
    options = {"token_file": token_file} if token_file else {}
    engine = HiragQueryEngine(target, client_options=options, similarity_top_k=3, timeout_s=60)
    response = engine.query(question)
    print(response)
    for citation in (response.metadata or {})["citations"]:
        print(f"  [{citation['ref']}] {citation['title']}")
    for found in response.source_nodes:
        print(f"  {found.score:.2f} {found.metadata['uri']} {found.metadata['start']}–{found.metadata['end']}")
    engine.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except HiragError as error:
        sys.exit(f"{type(error).__name__}: {error}")
