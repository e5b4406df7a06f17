"""The query pod with TLS as the chart starts it, in a process on loopback; tests/image runs pods as containers."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import Chart, Object, Values, merged, only
from tests.service.fakes import certificates

TOKEN = "hirag_of-the-test"
pytestmark = pytest.mark.timeout(600)  # processes start while other tests run
PATHS = ("/etc/hirag", "/var/cache/hirag", "/var/lib/hirag", "/data")
START_S = 120.0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two sentences."""
    folder = tmp_path_factory.mktemp("index")
    texts = ("Ada Lovelace met Charles Babbage in London.", "Charles Babbage built the Difference Engine in London.")
    (folder / "corpus.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts), encoding="utf-8")
    index = ("--index", str(folder / "i"), "--set", "vectors.backend=memory")
    for command in (("index", str(folder / "corpus.jsonl"), "--executor", "inline"), ("query", "Who met Babbage?")):
        # The question compiles what answers it: no pod is waited for meanwhile.
        subprocess.run([sys.executable, "-m", "hirag_dist", *command, *index], check=True)
    return folder / "i"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


class Pod:
    """The container `query` of the rendered Deployment, with its volumes in a folder and its ports on loopback."""

    def __init__(self, objects: list[Object], root: Path, index: Path) -> None:
        self._objects = objects
        self._root = root
        self._container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        self.grace_s = only(objects, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        self.address, self.metrics, self.page = (f"127.0.0.1:{free_port()}" for _ in range(3))
        for mount in self._container["volumeMounts"]:
            Path(self.placed(mount["mountPath"])).mkdir(parents=True, exist_ok=True)
        (root / "data").mkdir(exist_ok=True)
        (root / "data/index").symlink_to(index)
        text = self.placed(only(objects, "ConfigMap", "-query")["data"]["hirag.yaml"])
        here = {"grpc": self.address, "metrics": self.metrics, "page": self.page}
        for port in self._container["ports"]:
            listens = f"0.0.0.0:{port['containerPort']}"
            assert listens in text
            text = text.replace(listens, here[port["name"]])
        (root / "etc/hirag/config/hirag.yaml").write_text(text, encoding="utf-8")
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        callers = {"callers": {"web": {"tokens": [{"sha256": digest}], "labels": "all"}}}
        (root / "etc/hirag/callers/callers.yaml").write_text(yaml.safe_dump(callers), encoding="utf-8")
        (root / "token").write_text(TOKEN, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def placed(self, text: str) -> str:
        """Return a text with the folder before the paths of volumes."""
        return re.sub(rf"(?<![\w/.])({'|'.join(PATHS)})(?=[/\s]|$)", rf"{self._root}\1", text)

    def start(self) -> None:
        """Run the container's arguments; the image's entry point is `hirag-dist`."""
        arguments = [self.placed(each) for each in self._container["args"]]
        environ = os.environ | {each["name"]: each["value"] for each in self._container["env"] if "value" in each}
        environ |= {"HOME": str(self._root)}
        environ.pop("NUMBA_CACHE_DIR")  # the image's compiled code is not there
        self._process = subprocess.Popen([sys.executable, "-m", "hirag_dist", *arguments], env=environ)

    def ready(self) -> bool:
        """Result of the probe of a pod with TLS."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics}/ready", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def await_ready(self) -> None:
        """Return once it is ready."""
        assert self._process is not None
        give_up_at = time.monotonic() + START_S
        while not self.ready():
            assert self._process.poll() is None, f"it ended with {self._process.returncode}"
            assert time.monotonic() < give_up_at, "it is not ready"
            time.sleep(0.1)

    def terminate(self) -> None:
        """Send SIGTERM, as the kubelet does."""
        assert self._process is not None
        self._process.terminate()

    def end(self) -> int:
        """Wait for the end, as long as the kubelet does; return the exit code."""
        assert self._process is not None
        return self._process.wait(timeout=self.grace_s)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


VALUES: Values = {
    "index": {"uri": "/data/index"},
    "storage": {"existingClaim": "indexes"},
    "config": {"service": {"processes": 1, "drain_delay_s": 1, "drain_s": 10, "poll_s": 0.2}},
}


@pytest.fixture
def pods() -> Iterator[list[Pod]]:
    """Those that a test starts; they end with it."""
    started: list[Pod] = []
    yield started
    for pod in started:
        pod.kill()


def page_says(pod: Pod, host: str) -> int:
    """Return the status of the page where it is asked for under a name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://{pod.page}/", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_pod_with_tls_and_the_question_of_helm_test(
    chart: Chart, index: Path, tmp_path: Path, pods: list[Pod]
) -> None:
    """And the page, under the names that lead to it."""
    tls = {
        "tls": {"existingSecret": "tls"},
        "test": {"question": "Who met Babbage?", "tokenSecret": {"name": "token"}},
        "query": {"page": {"enabled": True, "names": ["rag.internal"]}},
    }
    objects = chart.render(merged(merged(VALUES, tls), {"config": {"service": {"processes": 2}}}))
    pod = Pod(objects, tmp_path, index)
    pods.append(pod)
    (tmp_path / "made").mkdir()
    made = certificates(tmp_path / "made")
    mounted = tmp_path / "etc/hirag/tls"
    for name, path in (("tls.crt", "server.pem"), ("tls.key", "server.key"), ("ca.crt", "ca.pem")):
        (mounted / name).write_bytes(Path(made[path]).read_bytes())
    pod.start()
    pod.await_ready()
    question = only(objects, "Pod")["spec"]["containers"][1]["args"]
    here = {f"{only(objects, 'Service', '-query')['metadata']['name']}:50051": pod.address}
    here["/etc/hirag/token/token"] = str(tmp_path / "token")
    asked = [here.get(each, pod.placed(each)) for each in question]
    done = subprocess.run([sys.executable, "-m", "hirag_dist", *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Babbage" in done.stdout
    service = only(objects, "Service", "-page")["metadata"]["name"]
    assert [page_says(pod, host) for host in ("rag.internal", service, "evil.example.com")] == [200, 200, 421]
    assert (tmp_path / "var/lib/hirag").is_dir()
    assert any((tmp_path / "var/lib/hirag").iterdir()), "quotas are not kept where the volume is"
    pod.terminate()
    assert pod.end() == 0
