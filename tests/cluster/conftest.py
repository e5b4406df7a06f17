"""The namespace of the drills."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import releases
from tests.cluster.kube import Kube

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """An empty namespace with the standard `restricted` and what a user makes before the release."""
    config = os.environ.get("KUBECONFIG", "")
    if not config:
        pytest.skip("KUBECONFIG names no cluster")
    found = Kube(releases.NAMESPACE, Path(config))
    own = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": releases.NAMESPACE, "labels": RESTRICTED},
    }
    found.run("create", "--filename", "-", given=json.dumps(own))  # fails if it is there: nothing of others is touched
    try:
        found.apply(*releases.prerequisites())
        yield found
    finally:
        if os.environ.get("HIRAG_KEEP") != "1":
            found.run("delete", "namespace", releases.NAMESPACE, "--wait=true", check=False)
            found.run("delete", "persistentvolume", "hirag-drills", "--ignore-not-found", check=False)
