"""Values and objects of the drills."""

from __future__ import annotations

import os
from pathlib import Path

from tests.deploy.charts import Object, Values, merged

NAMESPACE = "hirag-drills"
TAG = os.environ.get("HIRAG_TAG", "drill")
BEFORE = os.environ.get("HIRAG_TAG_BEFORE", "drill-before")
REGISTRY = os.environ.get("HIRAG_REGISTRY", "localhost")
STORAGE_CLASS = os.environ.get("HIRAG_STORAGE_CLASS", "")
TOKEN = "hirag_of-the-drills"
TOKEN_SHA256 = "e7765a5df80539362e73ea7a76bef246b2f63f7d994e03785f371d46e54932b2"
QUESTION = "Who met Charles Babbage?"
TEXTS = {
    "1.txt": "Ada Lovelace met Charles Babbage in London. Mary Somerville introduced Ada Lovelace to him.",
    "2.txt": "Charles Babbage built the Difference Engine. The Difference Engine stands in the Science Museum.",
    "3.txt": "The Royal Society is in London. Charles Babbage wrote to the Royal Society.",
}
_MOUNTED: Values = {
    "volumes": [{"name": "documents", "configMap": {"name": "documents"}}],
    "volumeMounts": [{"name": "documents", "mountPath": "/documents"}],
}
_SMALL: Values = {"requests": {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "100Mi"}}
_SMALL["limits"] = {"memory": "2Gi", "cpu": "1"}

BASE: Values = {
    "image": {"repository": f"{REGISTRY}/hirag-dist", "tag": TAG},
    "index.uri": "/data/index",
    "storage.existingClaim": "indexes",
    "callers.existingSecret": "callers",
    "config.service": {"processes": 1, "drain_delay_s": 5, "drain_s": 15},
    "helperResources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
    "query.image": {"repository": f"{REGISTRY}/hirag-dist-query", "tag": TAG},
    "query.resources": _SMALL,
    "query.cache.size": "500Mi",
    "build.inputs": ["/documents"],
    "build.inline": {"resources": _SMALL, "pod": _MOUNTED},
    "build.ray": {
        "operatorNamespace": "kuberay",
        "autoscaling": {"idleSeconds": 20, "resources": _SMALL},
        "head": {"resources": _SMALL, "pod": _MOUNTED},
        "cpu": {"maxReplicas": 2, "cpus": 1, "sharedMemory": "512Mi", "resources": _SMALL, "pod": _MOUNTED},
    },
    "build.scratch.size": "1Gi",
    "networkPolicy.apiServerPorts": [443, 6443],
    "test": {"question": QUESTION, "tokenSecret": {"name": "token"}},
}
INLINE = merged(BASE, {"config.execution.executor": "inline", "build.once": True})
RAY = merged(BASE, {"config.execution.executor": "ray", "build.once": True})
SLOW_MODELS: Values = {
    "config.llm.endpoints.slow": {"base_url": "http://models:8000/v1", "model": "m", "max_concurrent": 2},
    "config.llm.roles": {"extract": "slow", "summarise": "slow", "report": "slow"},
}
"""Models that take a second a call, so that a build lasts for as long as something is done to it."""
SLOW = merged(RAY, SLOW_MODELS)
SCHEDULED = merged(INLINE, {"build.once": False, "build.schedule": {"enabled": True, "cron": "0 0 1 1 *"}})
FAILING = merged(INLINE, {"build.inputs": ["/missing"]})
SCALED = merged(
    INLINE,
    {"query.autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 3, "targetCpuPercent": 20}},
)
OLDER = merged(INLINE, {"image.tag": BEFORE, "query.image.tag": BEFORE})
SMALL = merged(INLINE, {"storage.existingClaim": "small"})
RELEASES = {
    "inline": INLINE,
    "ray": RAY,
    "slow": SLOW,
    "scheduled": SCHEDULED,
    "failing": FAILING,
    "scaled": SCALED,
    "older": OLDER,
    "small": SMALL,
}


def _named(kind: str, name: str, **more: object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


def _volume(name: str, path: str, size: str) -> list[Object]:
    """Return a volume on a folder of the nodes and its claim."""
    own = {"accessModes": ["ReadWriteMany"], "storageClassName": "hirag-drills"}
    volume = own | {
        "capacity": {"storage": size},
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": path},
    }
    claim = own | {"resources": {"requests": {"storage": size}}, "volumeName": f"hirag-drills-{name}"}
    return [
        _named("PersistentVolume", f"hirag-drills-{name}", spec=volume),
        _named("PersistentVolumeClaim", name, spec=claim),
    ]


def storage() -> list[Object]:
    """Return the volume of indexes: of HIRAG_STORAGE_CLASS, or a folder that all nodes share, as kind.yaml has it."""
    if not STORAGE_CLASS:
        return _volume("indexes", "/indexes", "1Gi")
    request = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return [_named("PersistentVolumeClaim", "indexes", spec=request | {"storageClassName": STORAGE_CLASS})]


def small_storage() -> list[Object]:
    """Return the volume that is filled: a folder of the nodes with a file system of its own, as kind.yaml has it."""
    return _volume("small", "/indexes-small", "64Mi")


def prerequisites() -> list[Object]:
    """Return the objects that a user makes before the release: documents, callers, a token, the volume."""
    callers = f"callers:\n  web:\n    tokens: [{{sha256: {TOKEN_SHA256}}}]\n    labels: all\n"
    return [
        _named("ConfigMap", "documents", data=TEXTS),
        _named("Secret", "callers", stringData={"callers.yaml": callers}),
        _named("Secret", "token", stringData={"token": TOKEN}),
        *storage(),
    ]


def pod(name: str, args: list[str], labels: dict[str, str], *, python: bool = True) -> Object:
    """Return a pod of the image, within the standard `restricted`; `python` runs the arguments by Python."""
    container: Object = {
        "name": "main",
        "image": f"{REGISTRY}/hirag-dist:{TAG}",
        "args": args,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": _SMALL,
        "env": [{"name": "HOME", "value": "/tmp"}],
    }
    if python:
        container["command"] = ["python"]
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    spec["terminationGracePeriodSeconds"] = 1  # Python as process 1 of a pod ignores SIGTERM
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def on_volume(name: str, claim: str, command: str) -> Object:
    """Return a pod that runs a command of the shell with a volume at /data."""
    found = pod(name, ["-c", f"import subprocess; subprocess.run({command!r}, shell=True, check=True)"], {"app": name})
    found["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    found["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return found


def clients(service: str) -> Object:
    """Return a pod whose clients ask until it is deleted, and which writes what they got each second."""
    code = (Path(__file__).parent / "asking.py").read_text(encoding="utf-8")
    return pod("clients", ["-c", code, service, TOKEN, QUESTION], {"app": "clients"})


def slow_models() -> list[Object]:
    """Return a simulated endpoint that takes a second a call, and its Service."""
    args = ["simulate-llm", "--listen", "0.0.0.0:8000", "--latency-ms", "1000"]
    service = {"selector": {"app": "models"}, "ports": [{"port": 8000}]}
    return [pod("models", args, {"app": "models"}, python=False), _named("Service", "models", spec=service)]
