"""A Ray cluster of a rendered RayJob, with what KubeRay adds to its pods.

KubeRay starts Ray from a login shell, with the parameters of `rayStartParams` and some of its own; gives workers and
the submitter the address of the head, and all of them the token; probes head and workers by `wget`; and has the
submitter submit a job that the head does not know yet, and follow its log. The autoscaler and the operator are missing.
"""

from __future__ import annotations

import time

from tests.deploy.charts import Object
from tests.image.pods import Cluster, Pod

TOKEN = "token-of-the-test"
_AGENT = 52365
_PROBE = "wget --tries 1 -T 5 -q -O- http://localhost:{port}/api/{path} | grep success"
START_S = 300.0


class RayCluster:
    """Head, workers and submitter of a RayJob."""

    def __init__(self, cluster: Cluster, job: Object) -> None:
        self._cluster = cluster
        self._job = job
        self._name = job["metadata"]["name"]
        self._spec = job["spec"]["rayClusterSpec"]
        assert self._spec["authOptions"]["mode"] == "token"
        self._auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}

    def start_head(self) -> Pod:
        """Start the head and wait for its readiness."""
        group = self._spec["headGroupSpec"]
        own = {"RAY_ADDRESS": "127.0.0.1:6379", "RAY_CLUSTER_NAME": self._name, **self._auth}
        head = self._pod("head", group["template"], _start(["--head"], group["rayStartParams"]), own)
        head.start()
        self._await(head, _PROBE.format(port=_AGENT, path="local_raylet_healthz"))
        self._await(head, _PROBE.format(port=8265, path="gcs_healthz"))
        return head

    def start_workers(self, head: Pod) -> list[Pod]:
        """Start the workers of all groups and wait for their readiness."""
        address = f"{head.address}:6379"
        own = {"RAY_ADDRESS": address, "FQ_RAY_IP": head.address, "RAY_CLUSTER_NAME": self._name, **self._auth}
        workers = []
        for group in self._spec["workerGroupSpecs"]:
            for number in range(group["replicas"]):
                command = _start([f"--address={address}"], group["rayStartParams"])
                workers.append(self._pod(f"{group['groupName']}-{number}", group["template"], command, own))
        for worker in workers:
            worker.start()
        for worker in workers:
            self._await(worker, _PROBE.format(port=_AGENT, path="local_raylet_healthz"))
        return workers

    def start_submitter(self, head: Pod) -> Pod:
        """Start the pod that submits the job and follows its log."""
        server = f"--address=http://{head.address}:8265"
        known = f"ray job status {server} {self._name} >/dev/null 2>&1"
        submit = f"ray job submit {server} --no-wait --submission-id {self._name} -- {self._job['spec']['entrypoint']}"
        command = f"if ! {known} ; then {submit} ; fi ; ray job logs {server} --follow {self._name}"
        own = {"RAY_DASHBOARD_ADDRESS": f"{head.address}:8265", "RAY_JOB_SUBMISSION_ID": self._name, **self._auth}
        pod = self._pod("submitter", self._job["spec"]["submitterPodTemplate"], ["/bin/bash", "-ce", command], own)
        pod.start()
        return pod

    def status(self, head: Pod) -> str:
        """Return the status of the job, in the words of Ray."""
        return head.run("ray", "job", "status", "--address=http://127.0.0.1:8265", self._name)

    def _pod(self, name: str, template: Object, command: list[str], environ: dict[str, str]) -> Pod:
        return Pod(self._cluster, template, f"{self._name}-{name}", command=command, environ=environ)

    @staticmethod
    def _await(pod: Pod, probe: str) -> None:
        give_up_at = time.monotonic() + START_S
        while not pod.succeeds("/bin/bash", "-c", probe):
            assert pod.running(), f"{pod.name} ended: {pod.logs()}"
            assert time.monotonic() < give_up_at, f"{pod.name} is not ready: {pod.logs()}"
            time.sleep(1)


def _start(options: list[str], parameters: dict[str, str]) -> list[str]:
    own = {"dashboard-agent-listen-port": str(_AGENT), "metrics-export-port": "8080"}
    options = options + ["--block"] + [f"--{key}={value}" for key, value in (own | parameters).items()]
    return ["/bin/bash", "-lc", f"ulimit -n 65536; ray start {' '.join(options)}"]
