"""Properties of the images' Dockerfile. `tests/image` builds and runs them."""

from __future__ import annotations

import re

from tests.deploy.charts import ROOT, Chart, only

SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "deploy/docker").glob("*.sh")}


def test_every_package_is_pinned_by_its_hash() -> None:
    installs = [
        line for name in ("packages.sh", "application.sh") for line in SCRIPTS[name].splitlines() if " install " in line
    ]
    assert len(installs) == 2
    for line in installs:
        assert {"--require-hashes", "--no-deps"} <= set(line.split()) or "/wheels/" in line
    cpu, query, gpu = (locked(name) for name in ("image.txt", "image-query.txt", "image-gpu.txt"))
    assert {"ray", "opencensus"} <= cpu.keys() & gpu.keys()  # opencensus: of ray[default], which takes jobs
    assert not [name for name in cpu if name.startswith(("nvidia-", "cupy"))]
    assert {"cupy-cuda12x", "pylibcugraph-cu12"} <= gpu.keys()
    assert not {"ray", "milvus-lite", "faiss-cpu", "lxml"} & query.keys()
    assert {name: version for name, version in query.items() if cpu.get(name) != version} == {}


def test_the_pods_of_a_cluster_speak_one_language() -> None:
    """A head of one image and workers of the other: Ray and what it pickles must be the same."""
    cpu, gpu = locked("image.txt"), locked("image-gpu.txt")
    both = cpu.keys() & gpu.keys()
    assert both >= {"ray", "pydantic", "grpcio", "protobuf"}
    assert [name for name in both if cpu[name] != gpu[name]] == []


def locked(name: str) -> dict[str, str]:
    """Return the pinned packages of requirements/, each with a hash: name → version."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9._-]+)==(\S+)(?: ;[^\\\n]*)? \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE))
    return dict(found)


def test_the_ray_of_the_chart_is_that_of_the_image(chart: Chart) -> None:
    version = locked("image.txt")["ray"]
    job = only(chart.render({"build": {"once": True, "inputs": ["s3://b/d"]}}), "RayJob")
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == version
