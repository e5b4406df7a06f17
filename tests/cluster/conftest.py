"""The namespace of the drills."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import releases
from tests.cluster.kube import NAME, Kube
from tests.cluster.steps import more_answers

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """An empty namespace with the standard `restricted` and what a user makes before the release."""
    config = os.environ.get("KUBECONFIG", "")
    if not config:
        pytest.skip("KUBECONFIG names no cluster")
    found = Kube(releases.NAMESPACE, Path(config))
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": releases.NAMESPACE, "labels": RESTRICTED}}
    found.run("create", "--filename", "-", given=json.dumps(own))  # fails if it is there: nothing of others is touched
    try:
        found.apply(*releases.prerequisites())
        yield found
    finally:
        if os.environ.get("HIRAG_KEEP") != "1":
            found.run("delete", "namespace", releases.NAMESPACE, "--wait=true", check=False)
            for volume in ("hirag-drills-indexes", "hirag-drills-small"):
                found.run("delete", "persistentvolume", volume, "--ignore-not-found", check=False)


@pytest.fixture
def clients(kube: Kube, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Clients that ask while a test runs; in the end none of their calls has failed."""
    with kube.applied(releases.clients(f"{NAME}-query:50051")):
        more_answers(kube, 20)
        yield
        ended = more_answers(kube, 20)
        record_property("calls", ended["answered"])
        assert ended["failed"] == 0, ended
