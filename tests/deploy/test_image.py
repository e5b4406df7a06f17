"""Properties of the images' Dockerfile. `tests/image` builds and runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.deploy.charts import ROOT, Chart, only
from tests.deploy.dockerfiles import DOCKERFILE, read, variables

BEFORE, STAGES = read(DOCKERFILE.read_text(encoding="utf-8"))


def environment(*names: str) -> dict[str, str]:
    return {key: value for name in names for each in STAGES[name].of("ENV") for key, value in variables(each).items()}


TARGETS = ("cpu", "query", "gpu")
LOCKS = {"cpu": "image.txt", "query": "image-query.txt", "gpu": "image-gpu.txt"}
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in DOCKERFILE.parent.glob("*.sh")}


def test_the_stages() -> None:
    parts = ("packages", "application")
    assert {"wheel", "packages", "base", *TARGETS} | {f"{part}-{name}" for part in parts for name in TARGETS} == set(
        STAGES
    )
    assert {STAGES[name].base for name in ("wheel", "packages", "base")} == {"${PYTHON_IMAGE}"}
    assert {STAGES[name].base for name in TARGETS} == {"base"}
    assert BEFORE["PYTHON_IMAGE"].startswith("python:3.11-slim")


def test_each_target_has_the_packages_of_its_lock() -> None:
    for name, lock in LOCKS.items():
        assert STAGES[f"packages-{name}"].of("COPY") == [f"requirements/{lock} /tmp/"]
        assert STAGES[f"packages-{name}"].of("RUN") == [f"sh /tmp/packages.sh /tmp/{lock}"]


def test_packages_that_lose_their_tests_are_in_every_lock() -> None:
    """`find` fails, and with it the build of the image, where one of them is not installed."""
    (names,) = re.findall(r"^for name in (.+); do$", SCRIPTS["packages.sh"], re.MULTILINE)
    for lock in LOCKS.values():
        installed = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / lock).read_text("utf-8"), re.MULTILINE))
        assert set(names.split()) <= installed, lock


def test_what_runs_is_not_root_and_holds_no_build_tools() -> None:
    (user,) = STAGES["base"].of("USER")
    assert user == "10001:10001"
    assert not [user for name in TARGETS for user in STAGES[name].of("USER")]
    assert "--without-pip" in SCRIPTS["packages.sh"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_release_that_changes_no_package_adds_small_layers(target: str) -> None:
    """The packages' layer comes first and depends on nothing of a release: not its time, not its wheel."""
    first, *others = STAGES[target].of("COPY")
    assert first == f"--from=packages-{target} /opt/hirag /opt/hirag"
    assert all(each.startswith("--from=application") for each in others)
    steps = " ".join(arguments for _, arguments in STAGES[f"packages-{target}"].steps) + SCRIPTS["packages.sh"]
    assert "SOURCE_DATE_EPOCH" not in steps
    assert "wheels" not in steps
    assert not STAGES[target].of("RUN")
    assert not [name for name in STAGES["base"].of("ARG") if "VERSION" in name]


def test_the_architecture_is_that_of_the_builder() -> None:
    """A default would take precedence over what the builder sets, and arm64 would get code for amd64."""
    for target in TARGETS:
        assert "TARGETARCH" in STAGES[f"application-{target}"].of("ARG")
        assert '"${TARGETARCH}"' in " ".join(STAGES[f"application-{target}"].of("RUN"))
    assert re.findall(r"^(\w+)\) processor=(\S+) ;;", SCRIPTS["application.sh"], re.MULTILINE) == [
        ("amd64", "x86-64-v3"),
        ("arm64", "generic"),
    ]


@pytest.mark.parametrize("lock", ["image.txt", "image-query.txt"])
def test_the_locks_hold_the_hashes_of_several_architectures(lock: str) -> None:
    found = entries(lock)
    assert found.keys() == locked(lock).keys()
    assert min(found[name].count("--hash=") for name in ("numba", "llvmlite", "numpy", "pyarrow", "grpcio")) >= 4


def test_a_step_that_fails_fails_the_image() -> None:
    steps = [step for stage in STAGES.values() for step in stage.of("RUN")]
    assert not [step for step in (*steps, *SCRIPTS.values()) if "||" in step or "set +e" in step]
    assert all("\nset -eu\n" in script for script in SCRIPTS.values())


def test_no_card_is_taken_that_was_not_given() -> None:
    """`all` would show every card of a node to a pod that asked for none; who gives cards says which."""
    assert "NVIDIA_VISIBLE_DEVICES" not in environment("base", "gpu")
    assert environment("base", "gpu")["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


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


def entries(name: str) -> dict[str, str]:
    """Return the packages of a lock in requirements/: name → version, markers and hashes."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(.*\n(?:    --hash.*\n)+)", text, re.MULTILINE))


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


def test_labels() -> None:
    (labels,) = map(variables, STAGES["base"].of("LABEL"))
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["hirag-dist.sbom"] == "/opt/hirag/sbom.cdx.json"
    assert ">/opt/hirag/sbom.cdx.json" in SCRIPTS["application.sh"]


def test_all_that_is_copied_is_sent_to_the_builder() -> None:
    ignore = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    for stage in STAGES.values():
        for arguments in stage.of("COPY"):
            *sources, _ = arguments.split()
            for source in () if arguments.startswith("--from=") else sources:
                assert any(source == each or source.startswith(f"{each}/") for each in sent), source


@pytest.mark.parametrize("name", ["release", "image", "cluster"])
def test_actions_are_pinned_by_commit(name: str) -> None:
    text = (ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", each)] == []


def test_the_bill_of_materials() -> None:
    command = [sys.executable, str(ROOT / "deploy/docker/sbom.py")]
    first = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert first == subprocess.run(command, capture_output=True, text=True, check=True).stdout
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    by_name = {component["name"]: component for component in bill["components"]}
    assert len(by_name) == len(bill["components"])
    assert by_name["numpy"]["purl"] == f"pkg:pypi/numpy@{by_name['numpy']['version']}"
    assert by_name["hirag-dist"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
