"""The images, built once, and what a release of them holds."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.charts import Values
from tests.deploy.conftest import chart
from tests.image import engine
from tests.image.pods import Cluster

__all__ = ["chart"]

TOKEN = "hirag_of-the-test"
TAG = "test"
CPU = f"localhost/hirag-dist:{TAG}"
QUERY = f"localhost/hirag-dist-query:{TAG}"
FIGURES = engine.ROOT / "build/test-image.jsonl"
TEXTS = (
    "Ada Lovelace met Charles Babbage in London. Mary Somerville introduced Ada Lovelace to Charles Babbage.",
    "Charles Babbage built the Difference Engine in London. The Difference Engine stands in the Science Museum.",
    "The Royal Society is in London. Charles Babbage wrote to the Royal Society about the Analytical Engine.",
)

Record = Callable[..., None]


@pytest.fixture(scope="session")
def record() -> Record:
    """Append a line of figures to `build/test-image.jsonl`."""
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text("", encoding="utf-8")

    def written(**figures: Any) -> None:
        with FIGURES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")

    return written


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the images are built from."""
    return engine.context(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def images(source: Path, record: Record) -> dict[str, str]:
    """The images of the targets `cpu` and `query`: target → tag. HIRAG_IMAGES=kept takes those of the run before."""
    tags = {"cpu": CPU, "query": QUERY}
    if os.environ.get("HIRAG_IMAGES") == "kept":
        return tags
    for target, tag in tags.items():
        began_at = time.monotonic()
        engine.build(source, target, tag)
        record(what="build", target=target, seconds=round(time.monotonic() - began_at))
    return tags


@pytest.fixture(scope="session")
def values(images: dict[str, str]) -> Values:
    """Values of a release with these images, an index and its inputs on a volume, and callers with a token."""
    cpu, query = (images[target].rsplit(":", 1)[0] for target in ("cpu", "query"))
    return {
        "image": {"repository": cpu, "tag": TAG, "pullPolicy": "Never"},
        "query.image": {"repository": query, "tag": TAG},
        "index.uri": "/data/index",
        "storage.existingClaim": "indexes",
        "config.service": {"drain_delay_s": 2, "drain_s": 10},
        "build.once": True,
        "build.inputs": ["/data/documents"],
    }


def new_cluster(root: Path) -> Cluster:
    """Return a cluster whose volume holds documents, and whose secrets the token of a caller."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    callers = {"callers": {"web": {"tokens": [{"sha256": digest}], "labels": "all"}}}
    secrets = {"callers": {"callers.yaml": yaml.safe_dump(callers).encode()}, "token": {"token": TOKEN.encode()}}
    made = Cluster(root, secrets)
    documents = made.claim("indexes") / "documents"
    documents.mkdir()
    for number, text in enumerate(TEXTS):
        (documents / f"{number}.txt").write_text(text, encoding="utf-8")
    return made
