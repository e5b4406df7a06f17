"""Processes of `soak.py`: object store, endpoint, instances of the service, Prometheus; and a small disk."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from pyarrow import fs

from benchmarks.crash_images import MountImpossible

ROOT = Path(__file__).parents[1]
STARTING_S, STOPPING_S = 600.0, 120.0
SCRAPE_S = 15
NAMESPACE, RELEASE = "soak", "month"
FULL_NAME = f"{RELEASE}-hirag-dist"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
COMMAND = (sys.executable, "-m", "hirag_dist")
_LOOK_S = 0.1


def free_port() -> int:
    """Return a port of loopback that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetched(url: str, timeout_s: float = 10.0) -> bytes | None:
    """Return the reply of a URL, None if there is none or an error."""
    with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=timeout_s) as reply:
        return bytes(reply.read())
    return None


class Program:
    """A process that is stopped and started again at the same address.

    Args:
        command: of the process.
        ready_url: answers once the process is ready.
        log: file to which its output is added.
        environment: variables in addition to those of this process.
    """

    def __init__(
        self, command: Sequence[str], ready_url: str, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self._ready_url = ready_url
        self._log = log
        self._environment = os.environ | {"COLUMNS": "300"} | dict(environment or {})
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, *more: str) -> None:
        """Start it and wait until it is ready.

        Raises:
            SystemExit: it ended, or is not ready in time.
        """
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *more], stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        until = asyncio.get_running_loop().time() + STARTING_S
        while await asyncio.to_thread(fetched, self._ready_url) is None:
            if self.process.poll() is not None or asyncio.get_running_loop().time() > until:
                self.kill()
                raise SystemExit(f"{self.command} did not start: {self._log.read_text(errors='replace')[-2000:]}")
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> int:
        """Stop it by SIGTERM; return its exit code.

        Raises:
            SystemExit: it does not end.
        """
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self.process.wait, STOPPING_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SystemExit(f"{self.command} did not end within {STOPPING_S:g} s of SIGTERM") from None

    def kill(self) -> None:
        """End it and what it started."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def pids(self) -> list[int]:
        """Return the ids of its processes, itself first."""
        if self.process is None or self.process.poll() is not None:
            return []
        with suppress(psutil.Error):
            return [self.process.pid, *(each.pid for each in psutil.Process(self.process.pid).children(recursive=True))]
        return []


class Pod(Program):
    """An instance of the service, as a pod of the chart runs it.

    Attributes:
        address: HOST:PORT of gRPC.
        metrics: HOST:PORT of /metrics.
        cache: folder of its copies of the snapshot.
    """

    def __init__(self, number: int, index: str, config: Path, processes: int, cache: Path, logs: Path) -> None:
        self.name = f"pod-{number}"
        self.address, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.cache = cache / self.name
        self._processes = processes
        settings = {
            "service.metrics_listen": self.metrics,
            "service.cache_dir": str(self.cache),
            "service.drain_delay_s": "2",
            "service.access_log": "off",
        }
        command = [*COMMAND, "serve", "--index", index, "--listen", self.address, "--config", str(config)]
        command += ["--processes", str(processes)]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        super().__init__(command, f"http://{self.metrics}/ready", logs / f"{self.name}.log", KEYS)

    def workers(self) -> list[int]:
        """Return the ids of the processes that answer; none while it starts."""
        own = self.pids()
        return own if self._processes == 1 else [pid for pid in own[1:] if _names_the_service(pid)]


def _names_the_service(pid: int) -> bool:
    with suppress(psutil.Error):
        return "hirag_dist" in " ".join(psutil.Process(pid).cmdline())
    return False


class Endpoint(Program):
    """`simulate-llm` at a fixed address."""

    def __init__(self, logs: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [*COMMAND, "simulate-llm", "--listen", f"127.0.0.1:{port}"]
        super().__init__(command, f"{self.url}/healthz", logs / "endpoint.log")


class ObjectStore:
    """The S3 server of `soak_store.py`.

    Attributes:
        uri: of the index.
        system: its file system.
    """

    def __init__(self) -> None:
        port = free_port()
        address = f"127.0.0.1:{port}"
        self.uri = f"s3://bucket/index?endpoint_override={address}&scheme=http&region=us-east-1"
        self.system = fs.S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region=KEYS["AWS_REGION"],
            endpoint_override=address,
            scheme="http",
            allow_bucket_creation=True,
        )
        command = [sys.executable, "-m", "benchmarks.soak_store", str(port)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )
        self._answer()
        self.system.create_dir("bucket")

    def say(self, word: str) -> None:
        """Make it unreachable (`down`) or reachable again (`up`)."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self._answer()

    def size(self) -> tuple[int, int]:
        """Return the number of objects of the index and their bytes."""
        found = self.system.get_file_info(fs.FileSelector("bucket/index", recursive=True))
        return len(found), sum(each.size or 0 for each in found)

    def read(self, name: str) -> str:
        """Return the text of an object of the index."""
        with self.system.open_input_stream(f"bucket/index/{name}") as stream:
            return str(stream.read().decode())

    def write(self, name: str, text: str) -> None:
        """Write an object of the index."""
        with self.system.open_output_stream(f"bucket/index/{name}") as stream:
            stream.write(text.encode())

    def snapshots(self) -> list[str]:
        """Return the ids of the snapshots, the latest last."""
        found = self.system.get_file_info(fs.FileSelector("bucket/index/snapshots", recursive=True))
        manifests = sorted((each for each in found if each.base_name == "manifest.json"), key=lambda each: each.mtime)
        return [each.path.split("/")[-2] for each in manifests]

    def _answer(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()


class SmallDisk:
    """A file system in memory that can be filled.

    Attributes:
        at: where it is mounted.
    """

    def __init__(self, at: Path, mib: int) -> None:
        self.at = at
        self._filler = at / "filler"
        at.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(at)], capture_output=True, check=False
        )
        if done.returncode:
            raise MountImpossible(done.stderr.decode())

    def fill(self) -> int:
        """Leave no room; return the bytes that were written for it."""
        written = 0
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                written += file.write(bytes(1 << 16))
        return written

    def clear(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.at)], check=False)


@contextmanager
def small_disk(at: Path, mib: int) -> Iterator[SmallDisk | None]:
    """Give a small disk at a new folder; None, and a common folder, where this machine cannot mount one."""
    try:
        disk = SmallDisk(at, mib)
    except MountImpossible:
        yield None
        return
    try:
        yield disk
    finally:
        disk.close()


@dataclass
class Builds:
    """The metrics that kube-state-metrics has of the release's Jobs and pods, from what the soak does in their place.

    Attributes:
        rows: metric → labels → value.
    """

    rows: dict[str, dict[str, float]] = field(default_factory=dict)

    def put(self, metric: str, value: float, **labels: str) -> None:
        """Set a value."""
        text = ",".join(f'{name}="{each}"' for name, each in {"namespace": NAMESPACE, **labels}.items())
        self.rows.setdefault(metric, {})[text] = value

    def text(self) -> str:
        """Return them as Prometheus reads them."""
        return "".join(
            f"{metric}{{{labels}}} {value}\n" for metric, rows in self.rows.items() for labels, value in rows.items()
        )


class Prometheus(Program):
    """A Prometheus that scrapes the pods, and evaluates the rules of the chart.

    Args:
        program: path of the binary.
        targets: pod name → HOST:PORT of /metrics.
        builds: HOST:PORT of the metrics of `Builds`.
    """

    def __init__(self, program: str, folder: Path, targets: Mapping[str, str], builds: str) -> None:
        folder.mkdir()
        (folder / "rules.yaml").write_text(yaml.safe_dump(chart_rules(folder)), encoding="utf-8")
        service = f"{FULL_NAME}-metrics"
        labels = {"namespace": NAMESPACE, "service": service}
        pods = [{"targets": [address], "labels": {**labels, "pod": name}} for name, address in targets.items()]
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": service, "static_configs": pods},
                {"job_name": "builds", "honor_labels": True, "static_configs": [{"targets": [builds]}]},
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        self._url = f"http://{address}"
        command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address={address}", "--log.level=warn"]
        super().__init__(command, f"{self._url}/-/ready", folder / "prometheus.log")

    def firing(self, since: float, until: float) -> dict[str, list[float]]:
        """Return the seconds since the epoch at which each alert fired."""
        query = {"query": 'ALERTS{alertstate="firing"}', "start": since, "end": until, "step": SCRAPE_S}
        reply = fetched(f"{self._url}/api/v1/query_range?{urllib.parse.urlencode(query)}", 60)
        found: dict[str, list[float]] = {}
        for series in json.loads(reply or '{"data": {"result": []}}')["data"]["result"]:
            found.setdefault(series["metric"]["alertname"], []).extend(at for at, _ in series["values"])
        return found


def chart_rules(folder: Path) -> dict[str, Any]:
    """Return the groups of alerts that the chart makes."""
    values = {
        "index": {"uri": "s3://bucket/index"},
        "image": {"repository": "hirag-dist"},
        "callers": {"existingSecret": "callers"},
        "build": {"inputs": ["s3://bucket/documents"], "once": False, "schedule": {"enabled": True}},
        "config": {"execution": {"executor": "inline"}},
        "monitoring": {"prometheusRule": {"enabled": True}},
    }
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    helm = ROOT / "tools/helm/bin/helm"
    command = [str(helm) if helm.exists() else "helm", "template", RELEASE, str(ROOT / "deploy/helm/hirag-dist")]
    command += ["--namespace", NAMESPACE, "--values", str(folder / "values.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the chart cannot be rendered: {done.stderr}")
    (rule,) = (each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "PrometheusRule")
    return {"groups": rule["spec"]["groups"]}


def prometheus_program(folder: Path) -> str | None:
    """Return the path of a Prometheus: an installed one, or that of the Debian package; None if there is none."""
    if installed := shutil.which("prometheus"):
        return installed
    folder.mkdir()
    commands = (["apt-get", "download", "prometheus"], ["sh", "-c", "dpkg-deb -x prometheus_*.deb tree"])
    for command in commands:
        with suppress(OSError):
            if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
                return None
    program = folder / "tree/usr/bin/prometheus"
    return str(program) if program.exists() else None
