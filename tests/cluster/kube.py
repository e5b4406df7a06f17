"""A namespace of a cluster, by kubectl and Helm."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.deploy.charts import SOURCE, Object, Values, tool

T = TypeVar("T")
RELEASE = "rag"
NAME = f"{RELEASE}-hirag-dist"


class Kube:
    """A namespace.

    Args:
        namespace: its name.
        config: the file that KUBECONFIG names.
    """

    def __init__(self, namespace: str, config: Path) -> None:
        self.namespace = namespace
        self.config = config
        self._environ = os.environ | {"KUBECONFIG": str(config)}

    def run(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """Return the output of kubectl in the namespace. Raises AssertionError where it fails and `check` is set."""
        return self._done(["kubectl", "--namespace", self.namespace, *arguments], given, check)

    def helm(self, *arguments: str, values: Values | None = None, check: bool = True) -> str:
        """Return the output of Helm in the namespace."""
        given = None if values is None else json.dumps(values)
        own = [] if values is None else ["--values", "-"]
        return self._done([tool("helm"), "--namespace", self.namespace, *arguments, *own], given, check)

    def install(self, values: Values) -> None:
        """Install the chart, or upgrade the release."""
        self.helm("upgrade", "--install", RELEASE, str(SOURCE), values=values)

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", "--filename", "-", given=json.dumps(whole))

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """Return the objects of a kind, those of a selector if there is one."""
        found = json.loads(self.run("get", kind, "--selector", selector, "--output", "json"))["items"]
        return list(found)

    def get(self, kind: str, name: str) -> Object:
        """Return an object."""
        return json.loads(self.run("get", kind, name, "--output", "json"))

    def ready_pods(self, selector: str) -> list[Object]:
        """Return the pods of a selector that are ready and not being deleted."""
        return [pod for pod in self.list("pods", selector) if is_ready(pod)]

    def succeeded(self, job: str, timeout_s: float = 900) -> bool:
        """Wait for the end of a Job and return whether it is complete."""
        end = self.until(lambda: ended_as(self.get("job", job)), f"the end of job {job}", timeout_s)
        return end == "Complete"

    def until(self, read: Callable[[], T], what: str, timeout_s: float = 300) -> T:
        """Read something until it is true and return it."""
        give_up_at = time.monotonic() + timeout_s
        while not (found := read()):
            assert time.monotonic() < give_up_at, f"{what}: not after {timeout_s} s\n{self._events()}"
            time.sleep(1)
        return found

    def reaches(self, pod: str, host: str, port: int) -> bool:
        """Return whether a pod opens a connection to a port."""
        code = f"import socket; socket.create_connection(({host!r}, {port}), timeout=5)"
        done = self.run("exec", pod, "--", "python", "-c", f"{code}; print('open')", check=False)
        return "open" in done

    @contextmanager
    def applied(self, *objects: Object) -> Iterator[None]:
        """Create objects for the time of a block; those that others need come first."""
        self.apply(*objects)
        try:
            yield
        finally:
            for found in reversed(objects):  # a volume is not gone before its claim
                self.run("delete", found["kind"], found["metadata"]["name"], "--wait=true", check=False)

    def _events(self) -> str:
        return self.run("get", "events", "--sort-by", ".lastTimestamp", check=False)[-3000:]

    def _done(self, command: list[str], given: str | None, check: bool) -> str:
        done = subprocess.run(
            command, input=given, env=self._environ, capture_output=True, text=True, check=False, timeout=1800
        )
        assert not check or done.returncode == 0, f"{' '.join(command)[:200]}: {done.stderr[-2000:]}"
        return done.stdout if check else done.stdout + done.stderr


def is_ready(pod: Object) -> bool:
    """Return whether a pod is ready and not being deleted."""
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def ended_as(job: Object) -> str:
    """Return Complete or Failed, or nothing while a Job runs."""
    conditions = job.get("status", {}).get("conditions", ())
    ends = [each["type"] for each in conditions if each["status"] == "True" and each["type"] in ("Complete", "Failed")]
    return ends[0] if ends else ""


def exit_code(pod: Object) -> int | None:
    """Return the exit code of a pod's first container, None while it runs."""
    states: list[Any] = [each["state"] for each in pod.get("status", {}).get("containerStatuses", ())]
    return states[0]["terminated"]["exitCode"] if states and "terminated" in states[0] else None
