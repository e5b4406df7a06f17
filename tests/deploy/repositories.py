"""Stand-ins of the two subcharts and of their repositories, without the network.

These properties are restated: their names; of Milvus' chart (5.0) the Service `milvus.fullname` with port 19530, and
the labels of its pods; of KubeRay's (1.7) the operator's labels. The rest of a stand-in prints its values.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml

from tests.deploy.charts import SOURCE, tool

_SHOWN = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Chart.Name }}-values}
data:
  values.yaml: {{ omit .Values "global" | toYaml | quote }}
"""
_MILVUS = """
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
apiVersion: v1
kind: Service
metadata: {name: {{ default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}}
spec:
  ports: [{name: milvus, port: {{ .Values.service.port }}, targetPort: milvus}]
  selector:
    app.kubernetes.io/name: {{ $name }}
    app.kubernetes.io/instance: {{ .Release.Name }}
    component: standalone
"""
_KUBERAY = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Values.fullnameOverride }}}
spec: {template: {metadata: {labels: {app.kubernetes.io/name: {{ .Values.nameOverride }}}}}}
"""
_CHARTS = {
    "milvus": (_MILVUS, {"service": {"port": 19530}, "cluster": {"enabled": True}, "pulsarv3": {"enabled": True}}),
    "kuberay-operator": (_KUBERAY, {"nameOverride": "kuberay-operator", "fullnameOverride": "kuberay-operator"}),
}


def locked() -> dict[str, str]:
    """Return chart → version, as Chart.lock says."""
    lock = yaml.safe_load((SOURCE / "Chart.lock").read_text(encoding="utf-8"))
    return {each["name"]: each["version"] for each in lock["dependencies"]}


class Repositories:
    """Helm's own notes of the repositories, with packages on loopback."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        about = yaml.safe_load((SOURCE / "Chart.yaml").read_text(encoding="utf-8"))
        known = []
        for needed in about["dependencies"]:
            name, version = needed["name"], locked()[needed["name"]]
            template, values = _CHARTS[name]
            chart = folder / "charts" / name
            (chart / "templates").mkdir(parents=True)
            head = {"apiVersion": "v2", "name": name, "version": version}
            (chart / "Chart.yaml").write_text(yaml.safe_dump(head), encoding="utf-8")
            (chart / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
            (chart / "templates/all.yaml").write_text(template + _SHOWN, encoding="utf-8")
            self.helm("package", str(chart), "--destination", str(folder / "packages"))
            index = {"apiVersion": "v1", "entries": {name: [head | {"urls": [f"{address}/{name}-{version}.tgz"]}]}}
            (folder / f"{name}-index.yaml").write_text(yaml.safe_dump(index), encoding="utf-8")
            known.append({"name": name, "url": needed["repository"]})
        written = {"apiVersion": "", "repositories": known}
        (folder / "repositories.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Helm with these repositories known and nothing else."""
        environ = {
            "PATH": os.defpath,
            "HOME": str(self._folder),
            "HELM_REPOSITORY_CONFIG": str(self._folder / "repositories.yaml"),
            "HELM_REPOSITORY_CACHE": str(self._folder),
        }
        command = [tool("helm"), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def repositories(folder: Path) -> Iterator[Repositories]:
    """Serve packages of the stand-ins for as long as the block lasts."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=packages))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Repositories(folder, f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def copied(folder: Path) -> Path:
    """Return a copy of the chart as it stands in the repository, without what it may bring."""
    return Path(shutil.copytree(SOURCE, folder / "hirag-dist"))
