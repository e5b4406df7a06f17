"""Ask a running service a question and print the retrieval and the answer.

    python examples/ask.py 127.0.0.1:50051 "Who built the lighthouse?"

If the service requires a token, HIRAG_TOKEN_FILE names the file that holds it; HIRAG_CA names the PEM file of the
certificate authority of the service.
"""

from __future__ import annotations

import os
import sys

from hirag_dist.client import HiragClient
from hirag_dist.errors import HiragError
from hirag_dist.types import Query


def main(target: str, question: str) -> None:
    """Ask, and print."""
    token_file, ca = os.environ.get("HIRAG_TOKEN_FILE"), os.environ.get("HIRAG_CA")
    with HiragClient(target, token_file=token_file, root_certificates=ca, timeout_s=60) as client:
        info = client.describe()
        print(f"Snapshot {info.snapshot_id}: {info.counts.get('entities', 0):,} entities")

        found = client.retrieve(Query(question, top_n=10), omit_context=True)
        for entity in found.local:
            print(f"  local   {entity.name} ({entity.type}, layer {entity.layer}, {entity.score:.2f})")
        for community in found.communities:
            print(f"  global  {community.title} (level {community.level}, rating {community.rating:.1f})")
        for path in found.paths:
            print("  bridge  " + (" → ".join(path.entity_names) if path.connected else "(no path)"))

        answer = client.answer(question, omit_context=True)
        print(answer.text)
        for citation in answer.citations:
            print(f"  [{citation.ref}] {citation.title}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except HiragError as error:
        sys.exit(f"{type(error).__name__}: {error}")
