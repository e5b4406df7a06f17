"""Put what a running service retrieves into the prompt of a LangChain chain, and print the prompt.

    pip install 'hirag-dist-client[langchain]'
    python examples/langchain_chain.py 127.0.0.1:50051 "Who built the lighthouse?"

Append a chat model (`prompt | ChatOpenAI(...)`) for an answer by a model of your own. HIRAG_TOKEN_FILE names the file
of a token.
"""

from __future__ import annotations

import os
import sys

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from hirag_dist.errors import HiragError
from hirag_dist.integrations.langchain import HiragRetriever

PROMPT = ChatPromptTemplate.from_template("Answer from these passages.\n\n{context}\n\nQuestion: {question}")


def numbered(documents: list[Document]) -> str:
    """Return the passages with their sources."""
    shown = (f"[{number}] {one.metadata['title']}: {one.page_content}" for number, one in enumerate(documents, start=1))
    return "\n".join(shown)


def main(target: str, question: str) -> None:
    """Ask, and print."""
    token_file = os.environ.get("HIRAG_TOKEN_FILE")
    retriever = HiragRetriever(
        source=target,
        client_options={"token_file": token_file} if token_file else {},
        levels=("global", "sources"),  # reports of communities before the chunks
        k=4,
        timeout_s=60,
    )
    chain = {"context": retriever | RunnableLambda(numbered), "question": RunnablePassthrough()} | PROMPT
    print(chain.invoke(question).to_string())
    retriever.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except HiragError as error:
        sys.exit(f"{type(error).__name__}: {error}")
