"""An API server on loopback that holds RayJobs and Jobs, and an operator that does with them what KubeRay does.

The behaviour of KubeRay is described in `kuberay`. Time is a virtual clock: waiting advances it and runs the operator.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.deploy.charts import NAMESPACE, Object
from tests.deploy.kuberay import LONGEST_NAME

Reply = tuple[int, bytes]
_PATH = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs"
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def reply(code: int, said: Any) -> Reply:
    """Return a reply of JSON."""
    return code, json.dumps(said).encode()


def status(code: int, reason: str) -> Reply:
    """Return a refusal as an API server words it."""
    return reply(
        code, {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": f"no: {reason}"}
    )


class Cluster:
    """The server, its objects, and the operator.

    Attributes:
        asked: (method, path, authorization) of what came.
        instead: replies to give in place of the true ones, in their order; what is asked is done all the same where
            `lost` is set: the reply alone is lost.
        rayjobs, jobs: objects by name.
        runs: names of the RayJobs whose command was run, a name for each run.
        run_s: so long a run takes.
        ends_as: how runs end: SUCCEEDED, FAILED, STOPPED.
        stopped: the operator does nothing.
        full: there is no place for a head.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.instead: list[Reply | None] = []
        self.lost = False
        self.rayjobs: dict[str, Object] = {}
        self.jobs: dict[str, Object] = {}
        self.runs: list[str] = []
        self.run_s = 60.0
        self.ends_as = "SUCCEEDED"
        self.stopped = False
        self.full = False
        self.now = 0.0
        self._events: list[tuple[float, Callable[[], object]]] = []
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.asked.append((self.command, self.path, self.headers["Authorization"]))
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                code, said = cluster.reply_to(self.command, self.path, body)
                self.send_response(code)
                cut = said.endswith(CUT)
                self.send_header("Content-Length", str(len(said) + cut))
                self.end_headers()
                self.wfile.write(said)

            def do_DELETE(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def sleep(self, seconds: float) -> None:
        """Let time pass; the operator looks at its RayJobs as often as KubeRay does."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 3.0)
            for event in [each for each in self._events if each[0] <= self.now]:
                self._events.remove(event)
                event[1]()
            for found in [] if self.stopped else list(self.rayjobs.values()):
                self._reconcile(found)

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        """Do something when it is so late."""
        self._events.append((seconds, event))

    def delete(self, name: str) -> None:
        """Delete a RayJob, as `kubectl delete rayjob` does; its submitter goes with it."""
        del self.rayjobs[name]
        self.jobs = {key: job for key, job in self.jobs.items() if job.get("owner") != name}

    def reply_to(self, method: str, path: str, body: bytes) -> Reply:
        """Execute a request and return the reply of the server."""
        instead = self.instead.pop(0) if self.instead else None
        if instead is not None and not self.lost:
            return instead
        name = path.removeprefix(f"{_PATH}/")
        if method == "POST":
            true = self._create(json.loads(body))
        else:
            true = reply(200, self.rayjobs[name]) if name in self.rayjobs else status(404, "NotFound")
        if method == "DELETE" and name in self.rayjobs:
            self.delete(name)
        return true if instead is None else instead

    def _create(self, made: Object) -> Reply:
        name = made["metadata"]["name"]
        if name in self.rayjobs:
            return status(409, "AlreadyExists")
        self.rayjobs[name] = made
        return reply(201, made)

    def _reconcile(self, found: Object) -> None:
        name, spec, said = found["metadata"]["name"], found["spec"], found.setdefault("status", {})
        match said.get("jobDeploymentStatus", ""):
            case "":
                valid = len(name) <= LONGEST_NAME and _DNS_1035.fullmatch(name) is not None
                said["jobDeploymentStatus"] = "Initializing" if valid else "ValidationFailed"
                said["message"] = "" if valid else "RayJob name should be …"
            case "Initializing" if self.full:
                begun = said.setdefault("startTime", self.now)
                if self.now > begun + spec.get("preRunningDeadlineSeconds", float("inf")):
                    said |= {"jobDeploymentStatus": "Failed", "endTime": self.now}
                    said["message"] = "The RayJob has passed the preRunningDeadlineSeconds"
            case "Initializing":
                if name not in self.jobs:  # else "the submitter already exists", whosever it is
                    self.jobs[name] = {"owner": name, "ends_at": self.now + self.run_s}
                    self.runs.append(name)
                said["jobDeploymentStatus"] = "Running"
            case "Running":
                ends_at = self.jobs[name].get("ends_at")
                if ends_at is None or self.now < ends_at:  # the head knows no job that was not submitted
                    return
                said["jobStatus"] = self.ends_as
                failed = self.ends_as == "FAILED"
                said["jobDeploymentStatus"] = "Failed" if failed else "Complete"
                said["message"] = "exit code 1" if failed else ""
                said["endTime"] = self.now
                tries = said.setdefault("failed", 0)
                if failed and tries < spec.get("backoffLimit", 0):
                    said["failed"] = tries + 1
                    said["jobDeploymentStatus"] = "Retrying"
            case "Retrying":
                del self.jobs[name]
                said |= {"jobDeploymentStatus": "", "jobStatus": ""}


CUT = b"\n..."
"""A reply that ends so is a byte shorter than it says to be."""
