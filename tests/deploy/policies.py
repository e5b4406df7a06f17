"""Rules that every rendered release keeps: the Pod Security Standards' "restricted", and the chart's own.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from tests.deploy.charts import Object, pod_templates

_VOLUMES = {"configMap", "emptyDir", "secret", "ephemeral", "persistentVolumeClaim", "projected", "downwardAPI", "csi"}
_SECRET_WORDS = ("key", "token", "password", "secret")
_TOKENS = {"build-submit"}  # pods that speak to the API server


def pod_faults(where: str, template: Object, injected: Set[str] = frozenset()) -> list[str]:
    """Return the faults of a pod; `injected` are the volumes that a container mounts which an operator adds."""
    found = (*_of_pod(template), *_of_containers(template), *_of_volumes(template, injected))
    return [f"{where}: {fault}" for fault in found]


def _of_pod(template: Object) -> Iterator[str]:
    spec = template["spec"]
    context = spec.get("securityContext", {})
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key} is on"
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "it may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    if "automountServiceAccountToken" not in spec:
        yield "automountServiceAccountToken is not said"
    if spec.get("enableServiceLinks") is not False:
        yield "it is told of every service of the namespace"


def _of_containers(template: Object) -> Iterator[str]:
    for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
        name = container["name"]
        context = container.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: may gain privileges"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{name}: keeps capabilities"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{name}: may write to its image"
        image = container["image"]
        if "@sha256:" not in image and (":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")):
            yield f"{name}: image {image} names no version"
        if "imagePullPolicy" not in container:
            yield f"{name}: no imagePullPolicy"
        resources = container.get("resources", {})
        if not {"cpu", "memory"} <= resources.get("requests", {}).keys() or "memory" not in resources.get("limits", {}):
            yield f"{name}: CPU and memory are not asked for, or memory is without limit"
        if any("hostPort" in port for port in container.get("ports", ())):
            yield f"{name}: takes a port of its node"
        names = [variable["name"] for variable in container.get("env", ())]
        for twice in sorted({each for each in names if names.count(each) > 1}):
            yield f"{name}: {twice} is set twice"  # which an API server refuses at a server-side apply
        for variable in container.get("env", ()):
            if "value" in variable and any(word in variable["name"].lower().split("_") for word in _SECRET_WORDS):
                yield f"{name}: {variable['name']} stands in the clear"


def _of_volumes(template: Object, injected: Set[str]) -> Iterator[str]:
    spec = template["spec"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    mounted = set(injected)
    tokens = {name for name, each in volumes.items() if "serviceAccountToken" in str(each.get("projected", {}))}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        if len(set(paths)) < len(paths):
            yield f"{container['name']}: two volumes at one path"
        if tokens & {mount["name"] for mount in container.get("volumeMounts", ())}:
            yield f"{container['name']}: holds a token of the API server"
        mounted |= {mount["name"] for mount in container.get("volumeMounts", ())}
    for name in sorted(mounted ^ set(volumes)):
        yield f"volume {name} is mounted and not there, or there and not mounted"
    for name, volume in volumes.items():
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES:
            yield f"volume {name} is of the kind {', '.join(sorted(kinds))}"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {name} has no limit"


def release_faults(objects: list[Object]) -> list[str]:
    """Return the faults of a release: those of its pods, and inconsistencies between its objects."""
    return [*_pods(objects), *_references(objects), *_access(objects), *_network(objects), *_names(objects)]


def _pods(objects: list[Object]) -> Iterator[str]:
    for found in objects:
        for part, template in pod_templates(found):
            where = f"{found['kind']} {found['metadata']['name']} {part}".strip()
            yield from pod_faults(where, template, _of_autoscaler(found) if part == "head" else frozenset())
            speaks = part in _TOKENS or template["metadata"]["labels"].get("app.kubernetes.io/component") in _TOKENS
            if template["spec"].get("automountServiceAccountToken") and not speaks:
                yield f"{where}: holds a token of the API server"


def _of_autoscaler(job: Object) -> frozenset[str]:
    """Return the volumes that the container mounts which KubeRay adds to the head."""
    options = job["spec"]["rayClusterSpec"].get("autoscalerOptions", {})
    return frozenset(mount["name"] for mount in options.get("volumeMounts", ()))


def _references(objects: list[Object]) -> Iterator[str]:
    by_kind: dict[str, set[str]] = {}
    for found in objects:
        by_kind.setdefault(found["kind"], set()).add(found["metadata"]["name"])
    maps = by_kind.get("ConfigMap", set())
    labels = [template["metadata"]["labels"] for found in objects for _, template in pod_templates(found)]
    for found in objects:
        name, spec = found["metadata"]["name"], found.get("spec", {})
        for part, template in pod_templates(found):
            for volume in template["spec"].get("volumes", ()):
                wanted = volume.get("configMap", {}).get("name")
                if wanted is not None and wanted.startswith(_prefix(found)) and wanted not in maps:
                    yield f"{found['kind']} {name} {part}: there is no ConfigMap {wanted}"
            account = template["spec"]["serviceAccountName"]
            if account.startswith(_prefix(found)) and account not in by_kind.get("ServiceAccount", set()):
                yield f"{found['kind']} {name} {part}: there is no ServiceAccount {account}"
        match found["kind"]:
            case "Service":
                if not any(spec["selector"].items() <= each.items() for each in labels):
                    yield f"Service {name} selects no pod"
            case "Ingress":
                paths = [path["backend"]["service"] for rule in spec["rules"] for path in rule["http"]["paths"]]
                if any(to["port"]["name"] not in _ports(objects, to["name"]) for to in paths):
                    yield f"Ingress {name} leads to no port"
            case "GRPCRoute" | "HTTPRoute":
                backends = [backend for rule in spec["rules"] for backend in rule["backendRefs"]]
                if any(to["port"] not in _ports(objects, to["name"]) for to in backends):
                    yield f"{found['kind']} {name} leads to no port"
            case "HorizontalPodAutoscaler":
                if spec["scaleTargetRef"]["name"] not in by_kind.get("Deployment", set()):
                    yield f"HorizontalPodAutoscaler {name} scales nothing"
            case "Deployment" | "PodDisruptionBudget" | "NetworkPolicy":
                selector = spec.get("podSelector") or spec.get("selector")
                kept = selector["matchLabels"].items()
                pods_elsewhere = found["kind"] == "NetworkPolicy"  # pods of a schedule's RayJob are made later
                if not pods_elsewhere and not any(kept <= each.items() for each in labels):
                    yield f"{found['kind']} {name} selects no pod"
            case "ServiceMonitor":
                wanted = spec["selector"]["matchLabels"].items()
                if not any(o["kind"] == "Service" and wanted <= o["metadata"]["labels"].items() for o in objects):
                    yield f"ServiceMonitor {name} selects no Service"


def _ports(objects: list[Object], service: str) -> set[str | int]:
    """Return the ports of a Service, by name and by number."""
    found = [each for each in objects if each["kind"] == "Service" and each["metadata"]["name"] == service]
    return {port[key] for each in found for port in each["spec"]["ports"] for key in ("name", "port")}


def _prefix(found: Object) -> str:
    """Return how the names of the release's own objects begin."""
    name: str = found["metadata"]["name"]
    for part in ("-query", "-build", "-test", "-run"):
        name = name.rsplit(part, 1)[0]
    return f"{name}-"


def _access(objects: list[Object]) -> Iterator[str]:
    for found in objects:
        name = found["metadata"]["name"]
        if found["kind"] in ("Secret", "ClusterRole", "ClusterRoleBinding"):
            yield f"{found['kind']} {name}: the chart makes none"
        for rule in found.get("rules", ()) if found["kind"] == "Role" else ():
            named = (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            if "*" in named or "secrets" in named or "pods/exec" in named:
                yield f"Role {name} allows too much"
        if found["kind"] == "ServiceAccount" and found.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount {name} gives its token to every pod"


def _network(objects: list[Object]) -> Iterator[str]:
    policies = [found["spec"] for found in objects if found["kind"] == "NetworkPolicy"]
    if not policies:  # they were switched off
        return
    for found in objects:
        for part, template in pod_templates(found):
            labels = template["metadata"]["labels"].items()
            mine = [each for each in policies if each["podSelector"]["matchLabels"].items() <= labels]
            if not any(set(each["policyTypes"]) == {"Ingress", "Egress"} for each in mine):
                yield f"{found['kind']} {found['metadata']['name']} {part}: no NetworkPolicy closes it"
    named = {
        (template["metadata"]["labels"]["app.kubernetes.io/component"], port["name"])
        for found in objects
        for _, template in pod_templates(found)
        for container in template["spec"]["containers"]
        for port in container.get("ports", ())
    }
    for policy in policies:
        component = policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for rule in policy.get("ingress", ()):
            if not rule.get("from"):
                yield "a NetworkPolicy lets everybody in"
            for port in rule.get("ports", ()):
                if isinstance(port["port"], str) and (component, port["port"]) not in named:
                    yield f"a NetworkPolicy opens a port {port['port']} that no {component} pod has"


def _names(objects: list[Object]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for found in objects:
        kind, name = found["kind"], found["metadata"]["name"]
        if (kind, name) in seen:
            yield f"two objects {kind} {name}"
        seen.add((kind, name))
        most = {"CronJob": 52, "RayJob": 38}.get(kind, 63)  # a RayJob's of 47, which its Job makes nine longer
        if len(name) > most:
            yield f"{kind} {name}: the name is longer than {most}"
        labels: dict[str, Any] = found["metadata"].get("labels", {})
        if not {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"} <= labels.keys():
            yield f"{kind} {name}: the usual labels are missing"
