"""The images' Dockerfile: what it says, and (slow) what comes of it in a bare environment, without Docker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from tests.deploy.charts import ROOT, Chart, merged, only
from tests.deploy.dockerfiles import DOCKERFILE, Bare, read, variables

BEFORE, STAGES = read(DOCKERFILE.read_text(encoding="utf-8"))


def environment(*names: str) -> dict[str, str]:
    return {key: value for name in names for each in STAGES[name].of("ENV") for key, value in variables(each).items()}


def test_the_stages() -> None:
    assert list(STAGES) == ["wheel", "dependencies", "application", "base", "cpu", "gpu"]
    assert {STAGES[name].base for name in ("wheel", "dependencies", "base")} == {"${PYTHON_IMAGE}"}
    assert STAGES["application"].base == "dependencies"
    assert BEFORE["PYTHON_IMAGE"].startswith("python:3.11-slim")


def test_what_runs_is_not_root_and_holds_no_build_tools() -> None:
    (user,) = STAGES["base"].of("USER")
    assert user == "10001:10001"
    assert not STAGES["cpu"].of("USER") + STAGES["gpu"].of("USER")
    assert "--without-pip" in " ".join(STAGES["dependencies"].of("RUN"))


def test_a_release_that_changes_no_package_adds_small_layers() -> None:
    """The packages' layer comes first and depends on nothing of a release: not its time, not its wheel."""
    first, *others = STAGES["base"].of("COPY")
    assert first == "--from=dependencies /opt/hirag /opt/hirag"
    assert all(each.startswith("--from=application") for each in others)
    steps = " ".join(arguments for _, arguments in STAGES["dependencies"].steps)
    assert "SOURCE_DATE_EPOCH" not in steps
    assert "wheel" not in steps
    assert not [each for each in STAGES["base"].of("RUN") if "/opt/hirag/" in each and "ln -s" not in each]


def test_a_step_that_fails_fails_the_image() -> None:
    steps = [step for stage in STAGES.values() for step in stage.of("RUN")]
    assert not [step for step in steps if "||" in step or "set +e" in step]


def test_no_card_is_taken_that_was_not_given() -> None:
    """`all` would show every card of a node to a pod that asked for none; who gives cards says which."""
    assert "NVIDIA_VISIBLE_DEVICES" not in environment("base", "gpu")
    assert environment("base", "gpu")["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_the_user_is_the_charts(chart: Chart) -> None:
    context = only(chart.render({}), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert STAGES["base"].of("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]


def test_compiled_code_is_for_the_processor_that_it_is_looked_up_by() -> None:
    built = " ".join(STAGES["application"].of("RUN"))
    (found,) = re.findall(r"amd64\) cpu=(\S+)", built)
    for target in ("cpu", "gpu"):
        environ = environment("base", target)
        assert environ["NUMBA_CPU_NAME"] == found
        assert environ["NUMBA_CPU_FEATURES"] == environment("application")["NUMBA_CPU_FEATURES"]
        assert environ["NUMBA_CACHE_DIR"] == environment("application")["NUMBA_CACHE_DIR"]


def test_the_chart_copies_compiled_code_from_where_it_is(chart: Chart) -> None:
    pod = only(chart.render({}), "Deployment")["spec"]["template"]["spec"]
    given = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    *_, source, target = pod["initContainers"][0]["command"]
    assert (source, target) == (environment("base")["NUMBA_CACHE_DIR"], given["NUMBA_CACHE_DIR"])
    for container in (pod["initContainers"][0], pod["containers"][0]):
        assert target in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_every_package_is_pinned_by_its_hash() -> None:
    for name in ("wheel", "dependencies", "application"):
        for command in STAGES[name].of("RUN"):
            for part in command.split("&&"):
                if "install" in part and "/wheels/" not in part:
                    assert {"--require-hashes", "--no-deps"} <= set(part.split())
    cpu, gpu = locked("image.txt"), locked("image-gpu.txt")
    assert {
        "ray",
        "opencensus",
    } <= cpu.keys() & gpu.keys()  # opencensus: of ray[default], without which no job is taken
    assert not [name for name in cpu if name.startswith(("nvidia-", "cupy"))]
    assert {"cupy-cuda12x", "cugraph-cu12"} <= gpu.keys()


def test_the_pods_of_a_cluster_speak_one_language() -> None:
    """A head of one image and workers of the other: Ray and what it pickles must be the same."""
    cpu, gpu = locked("image.txt"), locked("image-gpu.txt")
    for name in ("ray", "pydantic", "grpcio", "protobuf"):
        assert cpu[name] == gpu[name], name


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
    assert "> /opt/hirag/sbom.cdx.json" in " ".join(STAGES["application"].of("RUN"))


def test_all_that_is_copied_is_sent_to_the_builder() -> None:
    ignore = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    for name in ("wheel", "dependencies", "application"):
        for arguments in STAGES[name].of("COPY"):
            *sources, _ = arguments.split()
            for source in () if arguments.startswith("--from=") else sources:
                assert any(source == each or source.startswith(f"{each}/") for each in sent), source


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


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """Result of the first two stages, kept in HIRAG_IMAGE_ROOT, since it takes minutes."""
    kept = os.environ.get("HIRAG_IMAGE_ROOT")
    if kept is not None and (Path(kept) / "done").exists():
        found = Bare.__new__(Bare)
        found.root = Path(kept)
        return found
    root = Path(kept) if kept is not None else tmp_path_factory.mktemp("image")
    made = Bare(root, sys.executable)
    made.run(STAGES["wheel"], own_packages=True)
    made.run(STAGES["dependencies"])
    made.run(STAGES["application"])
    (root / "done").touch()
    return made


def container(bare: Bare, tmp_path: Path) -> dict[str, str]:
    """Return the environment that a container of the image has."""
    environ = {name: bare.placed(value) for name, value in environment("base", "cpu").items()}
    return environ | {"PATH": f"{bare.root}/opt/hirag/bin:/usr/bin:/bin", "HOME": str(tmp_path)}


def inside(bare: Bare, tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a container of the image would, with its environment alone."""
    environ = container(bare, tmp_path)
    return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return once a URL is answered. Fails where the process ends before."""
    give_up_at = time.monotonic() + 300
    while time.monotonic() < give_up_at:
        assert process.poll() is None, f"it ended with {process.returncode}"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.5)
    raise AssertionError(f"no answer from {url}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_entry_points(bare: Bare, tmp_path: Path) -> None:
    (entry,) = STAGES["base"].of("ENTRYPOINT")
    said = inside(bare, tmp_path, *json.loads(entry), "--help")
    assert said.returncode == 0, said.stderr
    assert "serve" in said.stdout
    assert inside(bare, tmp_path, "ray", "--version").stdout.startswith("ray, version")
    where = inside(bare, tmp_path, "python", "-c", "import hirag_dist; print(hirag_dist.__file__)").stdout
    assert where.startswith(f"{bare.root}/opt/hirag/lib")
    assert inside(bare, tmp_path, "python", "-m", "pip", "--version").returncode != 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_compiled_at_the_first_start(bare: Bare, tmp_path: Path) -> None:
    """A question to an index, with the compiled code where nothing has been written since."""
    cache = Path(bare.placed("/opt/hirag/numba"))
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert before
    corpus = tmp_path / "corpus.jsonl"
    texts = ("Ada Lovelace met Charles Babbage in London.", "Charles Babbage built the Difference Engine in London.")
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    index = ("--index", str(tmp_path / "index"), "--set", "vectors.backend=memory")
    built = inside(bare, tmp_path, "hirag-dist", "index", str(corpus), *index, "--executor", "inline", "--json")
    assert built.returncode == 0, built.stderr
    asked = inside(bare, tmp_path, "hirag-dist", "query", *index, "Who met Charles Babbage?", "--json")
    assert asked.returncode == 0, asked.stderr
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")} == before


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_job_on_ray_as_kuberay_submits_it(bare: Bare, chart: Chart, tmp_path: Path) -> None:
    """The head, a worker and the job of a RayJob, by the commands that KubeRay makes of them, on loopback."""
    values = merged(
        {"build": {"once": True, "inputs": [str(tmp_path / "corpus.jsonl")]}}, {"index": {"uri": "s3://b/i"}}
    )
    objects = chart.render(values)
    mounted = only(objects, "ConfigMap", "-build")["data"]
    folder = tmp_path / "config"
    folder.mkdir()
    for name, text in mounted.items():
        (folder / name).write_text(text, encoding="utf-8")
    order = json.loads(mounted["order.json"])
    swap = {"s3://b/i": str(tmp_path / "index")}
    order["build"] = [swap.get(each, each) for each in order["build"]] + ["--set", "execution.workers=1"]
    order["config"] = str(folder / "hirag.yaml")
    (folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
    (tmp_path / "corpus.jsonl").write_text(
        '{"text": "Ada Lovelace met Charles Babbage in London."}\n', encoding="utf-8"
    )
    spec = only(objects, "RayJob")["spec"]
    short = tempfile.mkdtemp(prefix="ray-")  # its sockets' paths may have 107 characters
    given = spec["rayClusterSpec"]["headGroupSpec"]["rayStartParams"] | {
        "dashboard-host": "127.0.0.1",
        "dashboard-port": str(free_port()),
        "port": str(free_port()),
        "node-ip-address": "127.0.0.1",
        "temp-dir": short,
    }
    environ = container(bare, tmp_path)
    start = ["ray", "start", "--head", "--block", *(f"--{key}={value}" for key, value in given.items())]
    nodes = [subprocess.Popen(start, env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL)]
    try:
        address = f"http://127.0.0.1:{given['dashboard-port']}"
        await_answer(f"{address}/api/version", nodes[0])
        (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
        joined = group["rayStartParams"] | {"address": f"127.0.0.1:{given['port']}", "node-ip-address": "127.0.0.1"}
        join = ["ray", "start", "--block", *(f"--{key}={value}" for key, value in joined.items())]
        nodes.append(subprocess.Popen(join, env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL))
        entrypoint = spec["entrypoint"].replace("/etc/hirag/config", str(folder))
        job = ["ray", "job", "submit", "--address", address, "--", *entrypoint.split()]
        done = subprocess.run(job, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert (tmp_path / "index/current").exists()
    finally:
        for node in reversed(nodes):  # --block: it ends what it started; `ray stop` would end every Ray of this machine
            node.terminate()
            node.wait(timeout=60)
        shutil.rmtree(short, ignore_errors=True)
