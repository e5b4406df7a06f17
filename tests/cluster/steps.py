"""Steps of the drills on a release, and readings of it."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.kube import NAME, RELEASE, Kube
from tests.deploy.charts import Values

QUERY = "app.kubernetes.io/component=query"


def build_job(kube: Kube) -> str:
    """Return the name of the newest Job of a build of the release."""
    jobs = [job for job in kube.list("jobs") if job["metadata"]["name"].startswith(f"{NAME}-build-")]
    return str(max(jobs, key=lambda job: job["metadata"]["creationTimestamp"])["metadata"]["name"])


def asked(kube: Kube) -> dict[str, Any]:
    """Return the last line that the clients wrote; before there is one, that of no call."""
    written = kube.run("logs", "clients", "--tail", "1", check=False).splitlines()
    lines = [line for line in written if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"answered": 0, "failed": 0, "snapshot": ""}


def more_answers(kube: Kube, count: int) -> dict[str, Any]:
    """Wait for so many answers more and return what the clients wrote then."""
    seen = asked(kube)["answered"]
    kube.until(lambda: asked(kube)["answered"] > seen + count, f"{count} more answers")
    return asked(kube)


def rolled(kube: Kube) -> None:
    kube.run("rollout", "status", f"deployment/{NAME}-query", "--timeout", "600s")


def another_text(kube: Kube, name: str) -> None:
    """Add a document, so that the next build publishes another snapshot."""
    texts = kube.get("configmap", "documents")["data"]
    texts[name] = f"Document {name} says that Charles Babbage met Isambard Brunel in Bristol."
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "documents"}, "data": texts})


def reinstalled(kube: Kube, values: Values) -> None:
    """Install a release after the one before is gone, and with it its Jobs."""
    kube.helm("uninstall", RELEASE, "--wait", check=False)
    kube.install(values)


def served_anew(kube: Kube, values: Values) -> None:
    """Install a release after the one before is gone, until its build has ended and its pods serve."""
    reinstalled(kube, values)
    assert kube.succeeded(build_job(kube))
    rolled(kube)
