"""The chart's pods as containers: an inline build and the service. `tests/cluster` has rolls, failures and Ray."""

from __future__ import annotations

import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hirag_dist.client import HiragClient
from tests.deploy.charts import Chart, Object, Values, merged, only
from tests.image import engine, probes
from tests.image.conftest import TOKEN, Record, new_cluster
from tests.image.pods import Cluster, Pod
from tests.service.fakes import certificates

pytestmark = pytest.mark.timeout(engine.TEST_S)
QUESTION = "Who met Charles Babbage?"
INLINE: Values = {"config.execution.executor": "inline"}
ASKING: Values = {"test": {"question": QUESTION, "tokenSecret": {"name": "token"}}}
BUILD_S = 600.0


@dataclass
class Served:
    """A release whose build has ended and whose first query pod is ready."""

    cluster: Cluster
    objects: list[Object]
    build: Pod
    query: Pod


@pytest.fixture(scope="module")
def served(chart: Chart, values: Values, record: Record, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An inline build, while a query pod waits for its snapshot, to the first answer."""
    objects = chart.render(merged(values, INLINE, ASKING))
    with closing(new_cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        cluster.apply(objects)
        build = Pod(cluster, only(objects, "Job")["spec"]["template"], "build")
        query = Pod(cluster, only(objects, "Deployment", "-query")["spec"]["template"], "query")
        began_at = time.monotonic()
        waiting = threading.Thread(target=query.start)
        waiting.start()
        build.start()
        assert build.end(BUILD_S) == 0, build.logs()
        built_at = time.monotonic()
        waiting.join(BUILD_S)
        probes.await_ready(query)
        ready_at = time.monotonic()
        with HiragClient(f"{query.address}:50051", token=TOKEN) as client:
            assert client.retrieve(QUESTION).snapshot_id
        record(
            what="first answer",
            build_s=round(built_at - began_at, 1),
            ready_after_s=round(ready_at - began_at, 1),
            answer_after_s=round(time.monotonic() - began_at, 1),
        )
        yield Served(cluster, objects, build, query)


def helm_test(cluster: Cluster, objects: list[Object], query: Pod) -> dict[str, str]:
    """Run the containers of `helm test` and return their output by name."""
    test = only(objects, "Pod", "-test")
    service = only(objects, "Service", "-query")["metadata"]["name"]
    cluster.hosts = {service: query.address, service.replace("-query", "-metrics"): query.address}
    said = {}
    for container in test["spec"]["containers"]:
        one = {"spec": test["spec"] | {"containers": [container]}}
        pod = Pod(cluster, one, f"{test['metadata']['name']}-{container['name']}")
        pod.start()
        assert pod.end(120) == 0, pod.logs()
        said[container["name"]] = pod.logs()
    return said


def test_the_liveness_probe_and_helm_test(served: Served) -> None:
    assert probes.succeeds(served.query, served.query.container["livenessProbe"])
    assert "Babbage" in helm_test(served.cluster, served.objects, served.query)["question"]


def page_status(address: str, host: str) -> int:
    """Return the status of the page where it is asked for under a name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://{address}:8443/", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_pod_with_tls_and_a_page(chart: Chart, values: Values, served: Served, tmp_path: Path) -> None:
    """Probes over HTTP, the question of helm test by a certificate's name, and the page under its own names alone."""
    made = certificates(tmp_path)
    parts = {"tls.crt": "server.pem", "tls.key": "server.key", "ca.crt": "ca.pem"}
    served.cluster.secrets["tls"] = {key: Path(made[name]).read_bytes() for key, name in parts.items()}
    own: Values = {
        "fullnameOverride": "secure",
        "tls.existingSecret": "tls",
        "test.serverName": "localhost",
        "query.page": {"enabled": True, "names": ["rag.internal"]},
    }
    objects = chart.render(merged(values, INLINE, ASKING, own))
    served.cluster.apply(objects)
    pod = Pod(served.cluster, only(objects, "Deployment", "-query")["spec"]["template"], "secure")
    pod.start()
    probes.await_ready(pod)
    asked = helm_test(served.cluster, objects, pod)
    assert "Babbage" in asked["question"]
    page = only(objects, "Service", "-page")["metadata"]["name"]
    assert [page_status(pod.address, host) for host in ("rag.internal", page, "evil.example.com")] == [200, 200, 421]
    assert any((served.cluster.root / "pods/secure/state").iterdir()), "quotas are not kept where the volume is"
    assert pod.stop() == 0


def test_what_a_container_may_do(served: Served) -> None:
    """Not root, no capability, nothing gained by a setuid program, a filter of system calls, no place to write."""
    query = served.query
    assert query.run("id", "-u").strip() == "10001"
    status = dict(line.split(":\t", 1) for line in query.run("cat", "/proc/1/status").splitlines() if ":\t" in line)
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16)) == (0, 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for place in ("/", "/opt/hirag", "/home/hirag", "/usr/local/bin", "/etc/hirag/config", "/etc/hirag/callers"):
        assert not query.succeeds("touch", f"{place}/new"), place
    for mount in ("/tmp", "/var/cache/hirag", "/var/cache/numba", "/var/lib/hirag"):
        assert query.succeeds("touch", f"{mount}/new"), mount


def test_nothing_is_compiled_at_a_start(served: Served, images: dict[str, str]) -> None:
    """The volume of compiled code holds what the image had, after a build and after an answer."""
    for pod, target in ((served.build, "cpu"), (served.query, "query")):
        folder = served.cluster.root / "pods" / pod.name / "compiled"
        held = {str(path.relative_to(folder)) for path in folder.rglob("*.nb?")}
        assert held == engine.files(images[target], "/opt/hirag/numba", "*.nb?"), pod.name
