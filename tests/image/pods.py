"""Pods of the chart's rendered templates as containers, with the parts of a cluster that they touch.

A container gets what a kubelet gives it: command, arguments, environment, user, security context, memory limit, volumes
with their modes, and an address of its own. The mode of a volume follows fsGroup. Not done: probes (`probes` does
them), limits on the size of volumes, network policies.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.deploy.charts import Object
from tests.image.engine import limits, podman

NETWORK = "hirag-test"
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class Cluster:
    """The objects and volumes that pods refer to, in a folder.

    Args:
        root: folder of the volumes.
        secrets: content of secrets: name → key → bytes.
        hosts: names of Services → address.
    """

    def __init__(self, root: Path, secrets: dict[str, dict[str, bytes]]) -> None:
        self.root = root
        self.secrets = secrets
        self.hosts: dict[str, str] = {}
        self.maps: dict[str, dict[str, str]] = {}
        self.pods: list[Pod] = []
        if podman("network", "exists", NETWORK, check=False).returncode:
            podman("network", "create", NETWORK)

    def apply(self, objects: list[Object]) -> None:
        """Take over the ConfigMaps of a release."""
        for found in objects:
            if found["kind"] == "ConfigMap":
                self.maps[found["metadata"]["name"]] = found["data"]

    def claim(self, name: str) -> Path:
        """Return the folder of a PersistentVolumeClaim."""
        place = self.root / "claims" / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def close(self) -> None:
        """Remove all containers and the network."""
        for pod in self.pods:
            pod.remove()
        podman("network", "rm", "--force", NETWORK, check=False)


class Pod:
    """A pod of a template with one container and any init containers.

    Args:
        cluster: holds what the pod refers to.
        template: the pod template, unchanged.
        name: of the pod, unique.
    """

    def __init__(self, cluster: Cluster, template: Object, name: str) -> None:
        self._cluster = cluster
        self.spec: Object = template["spec"]
        self.name = name
        (self.container,) = self.spec["containers"]
        self._created: list[str] = []
        self._group = self.spec["securityContext"]["fsGroup"]
        self._places = {each["name"]: self._volume(each) for each in self.spec.get("volumes", ())}
        cluster.pods.append(self)

    def start(self) -> None:
        """Run the init containers one after the other, and start the container."""
        for init in self.spec.get("initContainers", ()):
            made = self._create(init, f"{self.name}-{init['name']}", init.get("command"))
            podman("start", made)
            code = int(podman("wait", made).stdout)
            assert code == 0, f"{made} ended with {code}: {self._logs(made)}"
        made = self._create(self.container, self.name, self.container.get("command"))
        podman("start", made)

    @property
    def address(self) -> str:
        """The address of the running container."""
        (network,) = self._state()["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def running(self) -> bool:
        """Return whether the container runs."""
        return self.name in self._created and bool(self._state()["State"]["Running"])

    def end(self, timeout_s: float) -> int:
        """Wait for the end of the container and return its exit code."""
        give_up_at = time.monotonic() + timeout_s
        while self.running():
            assert time.monotonic() < give_up_at, f"{self.name} still runs: {self.logs()}"
            time.sleep(0.5)
        return int(self._state()["State"]["ExitCode"])

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after the grace period; return the exit code."""
        podman("stop", "--time", str(self.spec.get("terminationGracePeriodSeconds", 30)), self.name)
        return int(self._state()["State"]["ExitCode"])

    def run(self, *command: str) -> str:
        """Return the output of a command in the running container. Raises AssertionError where it fails."""
        return podman("exec", self.name, *command).stdout

    def succeeds(self, *command: str) -> bool:
        """Return whether a command in the running container succeeds."""
        return podman("exec", self.name, *command, check=False).returncode == 0

    def logs(self) -> str:
        """Return the end of what the container wrote."""
        return self._logs(self.name)

    def remove(self) -> None:
        """Remove the containers."""
        for made in reversed(self._created):
            podman("rm", "--force", "--time", "0", made, check=False)
        self._created.clear()

    def _state(self) -> Any:
        return json.loads(podman("container", "inspect", self.name).stdout)[0]

    @staticmethod
    def _logs(name: str) -> str:
        done = podman("logs", name, check=False)
        return (done.stdout + done.stderr)[-3000:]

    def _create(self, container: Object, name: str, command: list[str] | None) -> str:
        security = self.spec["securityContext"] | container["securityContext"]
        assert security["runAsNonRoot"]
        options = ["--name", name, "--network", NETWORK, "--pull", "never", *limits()]
        options += ["--user", f"{security['runAsUser']}:{security['runAsGroup']}", "--group-add", str(self._group)]
        if security["readOnlyRootFilesystem"]:
            options += ["--read-only", "--read-only-tmpfs=false"]
        if not security["allowPrivilegeEscalation"]:
            options += ["--security-opt", "no-new-privileges"]
        options += [f"--cap-drop={each.lower()}" for each in security["capabilities"]["drop"]]
        resources = container.get("resources", {}).get("limits", {})
        options += ["--memory", str(_bytes(resources["memory"]))] if "memory" in resources else []
        options += ["--cpus", str(resources["cpu"])] if "cpu" in resources else []
        given = {each["name"]: self._value(each) for each in container.get("env", ())}
        options += [f"--env={key}={value}" for key, value in given.items()]
        options += [f"--add-host={host}:{address}" for host, address in self._cluster.hosts.items()]
        for mount in container.get("volumeMounts", ()):
            options += _mounted(self._places[mount["name"]], mount)
        if command:
            options += ["--entrypoint", json.dumps(command)]
        podman("create", *options, container["image"], *container.get("args", []))
        self._created.append(name)
        return name

    def _value(self, variable: Object) -> str:
        if "value" in variable:
            return str(variable["value"])
        reference = variable["valueFrom"]["secretKeyRef"]
        return self._cluster.secrets[reference["name"]][reference["key"]].decode()

    def _volume(self, volume: Object) -> Path | int:
        """Return the folder of a volume; of one in memory, its size in bytes."""
        place = self._cluster.root / "pods" / self.name / volume["name"]
        if "persistentVolumeClaim" in volume:
            return _owned(self._cluster.claim(volume["persistentVolumeClaim"]["claimName"]), self._group)
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            return _bytes(volume["emptyDir"]["sizeLimit"])
        place.mkdir(parents=True)
        if "configMap" in volume:
            files = {key: text.encode() for key, text in self._cluster.maps[volume["configMap"]["name"]].items()}
            return _written(place, files, 0o644, self._group)
        if "secret" in volume:
            files = self._cluster.secrets[volume["secret"]["secretName"]]
            chosen = {each["path"]: files[each["key"]] for each in volume["secret"].get("items", ())} or files
            return _written(place, chosen, volume["secret"]["defaultMode"], self._group)
        assert "emptyDir" in volume, f"volume {volume} is not made here"
        return _owned(place, self._group)


def _mounted(volume: Path | int, mount: Object) -> list[str]:
    """Return the options of a mount."""
    target = mount["mountPath"]
    if isinstance(volume, int):
        return ["--mount", f"type=tmpfs,destination={target},tmpfs-size={volume},tmpfs-mode=1777"]
    return ["--volume", f"{volume}:{target}{':ro' if mount.get('readOnly') else ''}"]


def _owned(place: Path, group: int) -> Path:
    """Give a folder to the group of a pod, as fsGroup does."""
    os.chown(place, 0, group)
    place.chmod(0o2775)
    return place


def _written(place: Path, files: dict[str, bytes], mode: int, group: int) -> Path:
    """Write the files of a ConfigMap or a secret."""
    for name, content in files.items():
        (place / name).write_bytes(content)
        os.chown(place / name, 0, group)
        (place / name).chmod(mode)
    place.chmod(0o755)
    return place


def _bytes(quantity: str) -> int:
    """Return a quantity of memory, such as 512Mi, in bytes."""
    return int(quantity[:-2]) * _UNITS[quantity[-2:]]
