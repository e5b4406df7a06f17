"""The rules of checkov, in addition to those of this package.

Where it is not on the PATH the test is skipped: it brings a hundred packages of its own (`pipx install checkov`).
"""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import NAMESPACE, Chart, Object, merged, pod_templates, tool
from tests.deploy.choices import everything, values_of

LEFT_OUT = {
    "CKV_K8S_11": "no CPU limit: throttling adds to every answer's time, and memory is what a neighbour cannot share",
    "CKV_K8S_38": "two pods speak to the API server; tests/deploy/policies.py says which, and what they may",
    "CKV_K8S_8": "probes of pods that end by themselves, and of Ray's, which KubeRay adds",
    "CKV_K8S_9": "as CKV_K8S_8; those of the Deployment are in tests/deploy/test_objects.py",
    "CKV_K8S_35": "secrets as variables: that is how ${NAME} in the configuration gets its value",
}

STRICT = {"image": {"digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"}}  # for who installs to choose

pytestmark = pytest.mark.slow


def failures(objects: list[Object], folder: Path) -> list[str]:
    """Return checkov's faults, "CHECK resource". Ray's pods, which it would pass over, are shown to it as pods.

    Helm puts objects into the release's namespace; here their metadata says so.
    """
    shown = [each for each in objects if each["kind"] != "RayJob"]
    for job in (each for each in objects if each["kind"] == "RayJob"):
        for part, template in pod_templates(job):
            metadata = template["metadata"] | {"name": part}
            shown.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    shown = [each | {"metadata": {"namespace": NAMESPACE} | each["metadata"]} for each in shown]
    (folder / "release.yaml").write_text(yaml.safe_dump_all(shown), encoding="utf-8")
    command = [tool("checkov"), "--file", "release.yaml", "--framework", "kubernetes", "--output", "json"]
    command += ["--skip-download", "--skip-check", ",".join(LEFT_OUT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout)
    assert said["summary"]["passed"] > 100
    return [f"{each['check_id']} {each['resource']}" for each in said["results"]["failed_checks"]]


def test_rules(chart: Chart, tmp_path: Path) -> None:
    objects = chart.render(merged(values_of(everything() | {"models": "endpoint", "s3": "secret"}), STRICT))
    assert failures(objects, tmp_path) == []
    planted = copy.deepcopy(objects)
    (job,) = (each for each in planted if each["kind"] == "RayJob")
    _, head = list(pod_templates(job))[1]
    head["spec"]["containers"][0]["securityContext"]["privileged"] = True
    assert failures(planted, tmp_path) == ["CKV_K8S_16 Pod.search.head"]
