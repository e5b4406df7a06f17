"""The drills on a cluster: a release from an empty namespace, and what is done to it, in the order of the file.

Wanted: KubeRay's operator in the namespace `kuberay`, images that the nodes have, a network plugin that enforces
NetworkPolicies, metrics-server for the HPA, two nodes for the drain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.cluster import releases
from tests.cluster.kube import NAME, RELEASE, Kube, exit_code, is_ready
from tests.cluster.steps import QUERY, another_text, asked, build_job, reinstalled, rolled, served_anew
from tests.deploy.charts import Object, merged

pytestmark = pytest.mark.timeout(3600)


def test_an_inline_build_and_the_question_of_helm_test(
    kube: Kube, record_property: Callable[[str, object], None]
) -> None:
    with kube.applied(releases.clients(f"{NAME}-query:50051")):
        kube.until(lambda: is_ready(kube.get("pod", "clients")), "clients")
        began_at = time.monotonic()
        kube.install(releases.INLINE)
        kube.until(lambda: asked(kube)["answered"], "the first answer", 900)
        record_property("first_answer_s", round(time.monotonic() - began_at))
    assert kube.succeeded(build_job(kube))
    rolled(kube)
    assert "Succeeded" in kube.helm("test", RELEASE, "--timeout", "5m")


def test_nothing_needs_more_than_the_standard_allows(kube: Kube) -> None:
    """The namespace enforces `restricted`: a pod that breaks it is not made, and its owner has an event."""
    events = kube.list("events")
    assert not [event["message"] for event in events if "violates PodSecurity" in event.get("message", "")]


def test_who_gets_in(kube: Kube) -> None:
    """A pod of the namespace reaches the service; one of another namespace does not."""
    code = "import time; time.sleep(600)"
    inside = releases.pod("inside", ["-c", code], {"app": "inside"})
    service = f"{NAME}-query.{kube.namespace}.svc"
    with kube.applied(inside):
        kube.until(lambda: is_ready(kube.get("pod", "inside")), "pod inside")
        assert kube.reaches("inside", service, 50051)
    other = Kube("default", kube.config)
    with other.applied(inside):
        other.until(lambda: is_ready(other.get("pod", "inside")), "pod inside of another namespace")
        assert not other.reaches("inside", service, 50051), "no network plugin enforces NetworkPolicies here"


@pytest.mark.usefixtures("clients")
def test_a_roll_fails_no_call(kube: Kube) -> None:
    kube.run("rollout", "restart", f"deployment/{NAME}-query")
    rolled(kube)


@pytest.mark.usefixtures("clients")
def test_an_evicted_pod_fails_no_call(kube: Kube) -> None:
    pod = kube.ready_pods(QUERY)[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kube.namespace}}
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}/eviction"
    kube.run("create", "--raw", path, "--filename", "-", given=json.dumps(eviction))
    kube.until(lambda: len(kube.ready_pods(QUERY)) == 2, "two pods again")


@pytest.mark.usefixtures("clients")
def test_a_drained_node_fails_no_call(kube: Kube) -> None:
    """The disruption budget lets one pod go at a time."""
    if len(kube.list("nodes")) < 2:
        pytest.skip("there is one node")
    node = kube.ready_pods(QUERY)[0]["spec"]["nodeName"]
    own = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout", "600s")
    try:
        kube.run("drain", node, *own, "--pod-selector", QUERY)
        kube.until(lambda: len(kube.ready_pods(QUERY)) == 2, "two pods again")
        assert node not in {pod["spec"]["nodeName"] for pod in kube.ready_pods(QUERY)}
    finally:
        kube.run("uncordon", node)


@pytest.mark.usefixtures("clients")
def test_an_upgrade_and_a_rollback(kube: Kube) -> None:
    """From the version before to this one and back; the snapshot is one that both read."""
    for values in (releases.OLDER, releases.INLINE):
        kube.install(values)
        rolled(kube)
    kube.helm("rollback", RELEASE)
    rolled(kube)
    kube.install(releases.INLINE)
    rolled(kube)


@pytest.mark.usefixtures("clients")
def test_a_scheduled_build_is_swapped_in(kube: Kube) -> None:
    """Without a restart of a pod, and without a failed call."""
    kube.install(releases.SCHEDULED)
    rolled(kube)
    kube.until(lambda: asked(kube)["snapshot"], "an answer")
    before = asked(kube)["snapshot"]
    pods = {pod["metadata"]["uid"] for pod in kube.ready_pods(QUERY)}
    another_text(kube, "4.txt")
    kube.run("create", "job", f"--from=cronjob/{NAME}-build", f"{NAME}-build-now")
    assert kube.succeeded(f"{NAME}-build-now")
    kube.until(lambda: asked(kube)["snapshot"] != before, "the new snapshot")
    assert {pod["metadata"]["uid"] for pod in kube.ready_pods(QUERY)} == pods


def test_a_build_that_fails_is_not_repeated(kube: Kube) -> None:
    """Missing input has exit code 2, at which the Job gives up; the service continues."""
    another_text(kube, "5.txt")
    kube.install(releases.FAILING)
    job = build_job(kube)
    assert not kube.succeeded(job)
    pods = kube.list("pods", f"batch.kubernetes.io/job-name={job}")
    assert [exit_code(pod) for pod in pods] == [2]
    assert len(kube.ready_pods(QUERY)) == 2


def test_the_autoscaler_of_pods_follows_the_load(kube: Kube) -> None:
    kube.install(releases.SCALED)
    rolled(kube)

    def counted() -> bool:
        return bool(kube.get("hpa", f"{NAME}-query").get("status", {}).get("currentMetrics"))

    kube.until(counted, "a metric of the HPA (is there a metrics-server?)")
    with kube.applied(releases.clients(f"{NAME}-query:50051")):
        kube.until(lambda: len(kube.ready_pods(QUERY)) > 1, "more pods under load", 600)


def test_a_quota_on_cpu_and_memory(kube: Kube) -> None:
    """All containers have limits where the values give them, so that a quota admits them."""
    hard = {"limits.cpu": "40", "limits.memory": "80Gi", "requests.cpu": "20"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "drill"}, "spec": {"hard": hard}}
    with kube.applied(quota):
        served_anew(kube, releases.INLINE)


def workers(kube: Kube) -> list[Object]:
    return kube.ready_pods("ray.io/node-type=worker")


def test_a_build_on_ray_grows_from_no_worker(kube: Kube) -> None:
    another_text(kube, "6.txt")
    with kube.applied(*releases.slow_models()):
        reinstalled(kube, releases.SLOW)
        kube.until(lambda: workers(kube), "workers that the autoscaler adds", 600)
        (head,) = kube.list("pods", "ray.io/node-type=head")
        name = head["metadata"]["name"]
        mounted = kube.run("exec", name, "-c", "ray-head", "--", "ls", "/var/run/secrets", check=False)
        assert "kubernetes.io" not in mounted, "the driver holds a token of the API server"
        asked_without = "env -u RAY_AUTH_TOKEN ray job list --address=http://127.0.0.1:8265 && echo listed"
        assert "listed" not in kube.run("exec", name, "-c", "ray-head", "--", "sh", "-c", asked_without, check=False)
        assert kube.succeeded(build_job(kube), 1800)


@pytest.mark.parametrize("lost", ["worker", "head"])
def test_a_lost_pod_of_ray(kube: Kube, lost: str) -> None:
    """A worker is replaced. Without its head the build has failed, and the next one continues it."""
    another_text(kube, f"lost-{lost}.txt")
    with kube.applied(*releases.slow_models()):
        reinstalled(kube, releases.SLOW)
        kube.until(lambda: workers(kube), "workers", 600)
        (pod, *_) = kube.list("pods", f"ray.io/node-type={lost}")
        kube.run("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
        if not kube.succeeded(build_job(kube), 1800):
            assert lost == "head"
            again = merged(releases.SLOW, {"commonLabels": {"attempt": "second"}})
            kube.install(again)
            assert kube.succeeded(build_job(kube), 1800)


def test_an_uninstall_leaves_what_users_made(kube: Kube) -> None:
    kube.helm("uninstall", RELEASE, "--wait", check=False)
    kinds = "deployments,jobs,cronjobs,services,configmaps,secrets,networkpolicies,serviceaccounts,roles,rolebindings"
    optional = "hpa,pdb,ingress,pods"

    def left() -> set[str]:
        names = kube.run("get", f"{kinds},{optional}", "--output", "name").split()
        return {name for name in names if not name.endswith(("/kube-root-ca.crt", "/default", "/kubernetes"))}

    made = {"configmap/documents", "secret/callers", "secret/token"}
    kube.until(lambda: left() == made, f"nothing but {sorted(made)}")
    assert kube.get("pvc", "indexes")["status"]["phase"] == "Bound"
