"""Properties of the images' Dockerfile. `tests/image` builds and runs them."""

from __future__ import annotations

import re

from tests.deploy.charts import ROOT, Chart, only
from tests.deploy.dockerfiles import DOCKERFILE, read, variables

_, STAGES = read(DOCKERFILE.read_text(encoding="utf-8"))


def environment(*names: str) -> dict[str, str]:
    return {key: value for name in names for each in STAGES[name].of("ENV") for key, value in variables(each).items()}


SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in DOCKERFILE.parent.glob("*.sh")}


def test_the_user_is_the_charts(chart: Chart) -> None:
    context = only(chart.render({}), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert STAGES["base"].of("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]


def test_compiled_code_is_looked_up_as_it_was_compiled() -> None:
    environ = environment("base")
    for name in ("NUMBA_CACHE_DIR", "NUMBA_CPU_FEATURES"):
        assert f"{name}={environ[name] or chr(34) * 2} " in SCRIPTS["compile.sh"]
    assert "NUMBA_CPU_NAME" not in environ
    assert "os.environ.setdefault('NUMBA_CPU_NAME', '$processor')" in SCRIPTS["application.sh"]
    locks = [locked(name) for name in ("image.txt", "image-gpu.txt", "image-query.txt")]
    compilers = {(lock["numba"], lock["llvmlite"]) for lock in locks}
    assert len(compilers) == 1, "the service would compile everything at each start"


def test_the_chart_copies_compiled_code_from_where_it_is(chart: Chart) -> None:
    pod = only(chart.render({}), "Deployment")["spec"]["template"]["spec"]
    given = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    *_, source, target = pod["initContainers"][0]["command"]
    assert (source, target) == (environment("base")["NUMBA_CACHE_DIR"], given["NUMBA_CACHE_DIR"])
    for container in (pod["initContainers"][0], pod["containers"][0]):
        assert target in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_every_package_is_pinned_by_its_hash() -> None:
    installs = [
        line for name in ("packages.sh", "application.sh") for line in SCRIPTS[name].splitlines() if " install " in line
    ]
    installs += [step for step in STAGES["wheel"].of("RUN") if " install " in step]
    assert len(installs) == 3
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
