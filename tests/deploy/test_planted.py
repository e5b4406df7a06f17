"""Faults that are planted in rendered objects are found: what finds nothing proves nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy.charts import Chart, Object, only
from tests.deploy.choices import everything, values_of
from tests.deploy.policies import release_faults
from tests.deploy.schemas import VERSIONS, faults

pytestmark = pytest.mark.slow  # tests of test helpers
Spoil = Callable[[Object], Any]


@pytest.fixture(scope="module")
def rendered(chart: Chart) -> list[Object]:
    return chart.render(values_of(everything()))


@pytest.fixture
def objects(rendered: list[Object]) -> list[Object]:
    return copy.deepcopy(rendered)


def head(job: Object) -> Object:
    found: Object = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    return found


def container(found: Object) -> Object:
    first: Object = found["spec"]["template"]["spec"]["containers"][0]
    return first


MISSHAPEN: dict[str, tuple[str, Spoil, str]] = {
    "a misspelt key": ("Deployment", lambda o: o["spec"].update(replcas=2), "replcas"),
    "a text for a number": ("Deployment", lambda o: o["spec"].update(replicas="two"), "two"),
    "a misspelt key of a pod": (
        "CronJob",
        lambda o: o["spec"]["jobTemplate"]["spec"]["template"]["spec"].update(x=1),
        "x",
    ),
    "a Deployment without selector": ("Deployment", lambda o: o["spec"].pop("selector"), "selector"),
    "a port above all": ("Service", lambda o: o["spec"]["ports"][0].update(port="grpc"), ""),
    "a rule without a list": ("NetworkPolicy", lambda o: o["spec"].update(ingress={}), "ingress"),
    "an API that was removed": ("PodDisruptionBudget", lambda o: o.update(apiVersion="policy/v1beta1"), ""),
    "a misspelt key of a RayJob": ("RayJob", lambda o: o["spec"].update(entrypiont="x"), "entrypiont"),
    "a RayJob without entrypoint": ("RayJob", lambda o: o["spec"].pop("entrypoint"), "entrypoint"),
    "a number for a start parameter": (
        "RayJob",
        lambda o: o["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
        "num-cpus",
    ),
    "a misspelt key of Ray's pod": ("RayJob", lambda o: head(o).update(volums=[]), "volums"),
    "a group of a wrong name": (
        "RayJob",
        lambda o: o["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].update(groupName="CPU group"),
        "groupName",
    ),
    "a misspelt key of a ServiceMonitor": (
        "ServiceMonitor",
        lambda o: o["spec"]["endpoints"][0].update(intervall="5s"),
        "intervall",
    ),
    "a ServiceMonitor without selector": ("ServiceMonitor", lambda o: o["spec"].pop("selector"), "selector"),
    "an alert without expression": ("PrometheusRule", lambda o: o["spec"]["groups"][0]["rules"][0].pop("expr"), "expr"),
    "a misspelt key of an alert": (
        "PrometheusRule",
        lambda o: o["spec"]["groups"][0]["rules"][0].update(anotations={}),
        "anotations",
    ),
    "a Certificate without issuer": ("Certificate", lambda o: o["spec"].pop("issuerRef"), "issuerRef"),
    "a misspelt key of a Certificate": ("Certificate", lambda o: o["spec"].update(dnsName="a"), "dnsName"),
}


@pytest.mark.parametrize("case", MISSHAPEN)
def test_schemas(objects: list[Object], case: str) -> None:
    kind, spoil, said = MISSHAPEN[case]
    found = next(each for each in objects if each["kind"] == kind)
    for version in (VERSIONS[0], VERSIONS[-1]):
        assert not faults(found, version)
    spoil(found)
    for version in (VERSIONS[0], VERSIONS[-1]):
        assert said in " ".join(faults(found, version))
        assert faults(found, version)


UNSAFE: dict[str, tuple[str, str, Spoil, str]] = {
    "root": ("Deployment", "", lambda o: o["spec"]["template"]["spec"]["securityContext"].pop("runAsNonRoot"), "root"),
    "no seccomp": ("RayJob", "", lambda o: head(o)["securityContext"].pop("seccompProfile"), "seccomp"),
    "the node's network": ("RayJob", "", lambda o: head(o).update(hostNetwork=True), "hostNetwork"),
    "capabilities": (
        "Deployment",
        "",
        lambda o: container(o)["securityContext"].update(capabilities={"add": ["NET_ADMIN"], "drop": ["ALL"]}),
        "capabilities",
    ),
    "more rights": (
        "Deployment",
        "",
        lambda o: container(o)["securityContext"].update(allowPrivilegeEscalation=True),
        "privileges",
    ),
    "a root that can be written": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"]["initContainers"][0]["securityContext"].pop("readOnlyRootFilesystem"),
        "write to its image",
    ),
    "the latest image": ("Deployment", "", lambda o: container(o).update(image="hirag-dist:latest"), "no version"),
    "an image without tag": ("Deployment", "", lambda o: container(o).update(image="r:5000/hirag"), "no version"),
    "no memory limit": ("Deployment", "", lambda o: container(o)["resources"].pop("limits"), "without limit"),
    "a key in the clear": (
        "Deployment",
        "",
        lambda o: container(o)["env"].append({"name": "LLM_API_KEY", "value": "k"}),
        "in the clear",
    ),
    "a variable twice": (
        "Deployment",
        "",
        lambda o: container(o)["env"].append({"name": "HOME", "value": "/"}),
        "HOME is set twice",
    ),
    "a folder of the node": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"]["volumes"][0].update(hostPath={"path": "/"}),
        "of the kind",
    ),
    "scratch without end": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"]["volumes"][1].update(emptyDir={}),
        "no limit",
    ),
    "a volume that is not mounted": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"]["volumes"].append({"name": "more", "emptyDir": {"sizeLimit": "1Gi"}}),
        "not mounted",
    ),
    "a token that nobody needs": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"].update(automountServiceAccountToken=True),
        "token of the API server",
    ),
    "the autoscaler's token in the driver's container": (
        "RayJob",
        "",
        lambda o: o["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0][
            "volumeMounts"
        ].append({"name": "api-token", "mountPath": "/token"}),
        "ray-head: holds a token of the API server",
    ),
    "an account that is not there": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"].update(serviceAccountName="demo-hirag-dist-qurey"),
        "no ServiceAccount",
    ),
    "a ConfigMap that is not there": (
        "Deployment",
        "",
        lambda o: o["spec"]["template"]["spec"]["volumes"][0].update(configMap={"name": "demo-hirag-dist-qurey"}),
        "no ConfigMap",
    ),
    "a Service for nobody": ("Service", "-query", lambda o: o["spec"]["selector"].update(x="y"), "selects no pod"),
    "a budget for nobody": (
        "PodDisruptionBudget",
        "",
        lambda o: o["spec"]["selector"]["matchLabels"].update(x="y"),
        "selects no pod",
    ),
    "a scaler of nothing": (
        "HorizontalPodAutoscaler",
        "",
        lambda o: o["spec"]["scaleTargetRef"].update(name="x"),
        "scales nothing",
    ),
    "a monitor of nothing": (
        "ServiceMonitor",
        "",
        lambda o: o["spec"]["selector"]["matchLabels"].update(x="y"),
        "selects no Service",
    ),
    "a role for everything": ("Role", "", lambda o: o["rules"][0].update(verbs=["*"]), "allows too much"),
    "a role that reads secrets": ("Role", "", lambda o: o["rules"][0].update(resources=["secrets"]), "too much"),
    "an account open to all": (
        "ServiceAccount",
        "-query",
        lambda o: o.pop("automountServiceAccountToken"),
        "to every pod",
    ),
    "an open pod": (
        "NetworkPolicy",
        "-build",
        lambda o: o["spec"]["podSelector"]["matchLabels"].update({"app.kubernetes.io/component": "other"}),
        "no NetworkPolicy closes it",
    ),
    "an open policy": ("NetworkPolicy", "-query", lambda o: o["spec"]["ingress"][0].pop("from"), "everybody in"),
    "a name too long": ("RayJob", "", lambda o: o["metadata"].update(name="x" * 39), "longer than 38"),
    "an object without labels": ("Role", "", lambda o: o["metadata"].pop("labels"), "labels are missing"),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_policies(objects: list[Object], case: str) -> None:
    kind, suffix, spoil, said = UNSAFE[case]
    assert not release_faults(objects)
    spoil(only(objects, kind, suffix))
    assert said in " ".join(release_faults(objects))


def test_a_secret_of_the_charts_own(objects: list[Object]) -> None:
    objects.append({"kind": "Secret", "metadata": {"name": "s", "labels": objects[0]["metadata"]["labels"]}})
    assert release_faults(objects) == ["Secret s: the chart makes none"]


def test_the_same_object_twice(objects: list[Object]) -> None:
    (fault,) = release_faults([*objects, objects[0]])
    assert fault.startswith("two objects")
