"""Drills on a cluster that need something of its nodes: a small file system, and a way to cut a node off.

A folder `/indexes-small` of the nodes must be a file system of some 64 MB that all of them share. HIRAG_NODE_LINK is
a command that is called with `cut` or `join` and the name of a node: `tests/cluster/node_link.sh` for kind.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster import releases
from tests.cluster.kube import NAME, Kube
from tests.cluster.steps import QUERY, another_text, asked, build_job, more_answers, served_anew
from tests.deploy.charts import merged

pytestmark = pytest.mark.timeout(3600)
FREE_KIB = 64
"""Room that is left on the full volume: the build starts, and fails where it writes."""


def ended(kube: Kube, name: str) -> str:
    """Wait for the end of a pod and return what it wrote."""

    def phase() -> str:
        return str(kube.get("pod", name)["status"].get("phase"))

    kube.until(lambda: phase() in ("Succeeded", "Failed"), f"the end of pod {name}")
    assert phase() == "Succeeded", kube.run("logs", name, check=False)
    return kube.run("logs", name)


@pytest.fixture
def small(kube: Kube) -> Iterator[None]:
    """A release whose index is on the small volume."""
    with kube.applied(*releases.small_storage()):
        size = "rm --force /data/filler; df --output=size --block-size=1M /data | tail -1"
        with kube.applied(releases.on_volume("size", "small", size)):
            if int(ended(kube, "size")) > 256:
                pytest.skip("/indexes-small of the nodes is no file system of its own")
        served_anew(kube, releases.SMALL)
        yield
        kube.helm("uninstall", "rag", "--wait")


@pytest.mark.usefixtures("small", "clients")
def test_a_full_volume(kube: Kube) -> None:
    """The build fails and says why, the service continues; with room again the next build is swapped in."""
    fill = f"dd if=/dev/zero of=/data/filler bs=64k; truncate --size=-{FREE_KIB}K /data/filler"
    with kube.applied(releases.on_volume("fill", "small", fill)):
        ended(kube, "fill")
    before = asked(kube)["snapshot"]
    another_text(kube, "full.txt")
    kube.install(merged(releases.SMALL, {"commonLabels": {"attempt": "full"}}))
    job = build_job(kube)
    assert not kube.succeeded(job)
    pods = kube.list("pods", f"batch.kubernetes.io/job-name={job}")
    said = "".join(kube.run("logs", pod["metadata"]["name"], "--all-containers", check=False) for pod in pods)
    assert "the disk is full" in said
    assert asked(kube)["snapshot"] == before
    with kube.applied(releases.on_volume("free", "small", "rm /data/filler")):
        ended(kube, "free")
    kube.install(merged(releases.SMALL, {"commonLabels": {"attempt": "free"}}))
    assert kube.succeeded(build_job(kube))
    kube.until(lambda: asked(kube)["snapshot"] != before, "the new snapshot")


def linked(what: str, node: str) -> None:
    """Cut a node off, or join it again."""
    subprocess.run([os.environ["HIRAG_NODE_LINK"], what, node], check=True, timeout=60)


def test_a_node_that_is_cut_off(kube: Kube) -> None:
    """Its pod is not asked any more, and clients that could not reach it are answered by the other."""
    if len(kube.list("nodes")) < 2 or "HIRAG_NODE_LINK" not in os.environ:
        pytest.skip("one node, or no HIRAG_NODE_LINK")
    served_anew(kube, releases.INLINE)
    nodes = {pod["spec"]["nodeName"] for pod in kube.ready_pods(QUERY)}
    assert len(nodes) == 2, "the pods are spread over the nodes"
    with kube.applied(releases.clients(f"{NAME}-query:50051")):
        more_answers(kube, 20)
        (beside,) = nodes - {kube.get("pod", "clients")["spec"]["nodeName"]}
        linked("cut", beside)
        try:
            kube.until(lambda: len(kube.ready_pods(QUERY)) == 1, "one pod left")
            failed = more_answers(kube, 400)["failed"]
            assert more_answers(kube, 400)["failed"] == failed, "calls still fail without the node"
        finally:
            linked("join", beside)
        kube.until(lambda: len(kube.ready_pods(QUERY)) == 2, "two pods again")
