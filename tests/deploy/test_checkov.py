"""The rules of checkov, which knows others than ours.

Where it is not on the PATH the test is skipped: it brings a hundred packages of its own (`pipx install checkov`).
"""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import Chart, Object, pod_templates, tool
from tests.deploy.switches import everything, values_of

LEFT_OUT = {
    "CKV_K8S_21": "no namespace in metadata: Helm puts objects into the release's",
    "CKV_K8S_11": "no CPU limit: throttling adds to every answer's time",
    "CKV_K8S_43": "image.digest is for who installs to set",
    "CKV_K8S_15": "image.pullPolicy too: a version's image does not change",
    "CKV_K8S_38": "two pods speak to the API server; tests/deploy/policies.py says which",
    "CKV_K8S_8": "probes of pods that end by themselves, and of Ray's, which KubeRay adds",
    "CKV_K8S_9": "as CKV_K8S_8; those of the Deployment are in tests/deploy/test_objects.py",
    "CKV_K8S_35": "secrets as variables: that is how ${NAME} in the configuration gets its value",
}

pytestmark = pytest.mark.slow


def failures(objects: list[Object], folder: Path) -> list[str]:
    """Return checkov's faults, "CHECK resource". Ray's pods, which it would pass over, are shown to it as pods."""
    shown = [each for each in objects if each["kind"] != "RayJob"]
    for job in (each for each in objects if each["kind"] == "RayJob"):
        for part, template in pod_templates(job):
            metadata = template["metadata"] | {"name": part}
            shown.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    (folder / "release.yaml").write_text(yaml.safe_dump_all(shown), encoding="utf-8")
    command = [tool("checkov"), "--file", "release.yaml", "--framework", "kubernetes", "--output", "json"]
    command += ["--skip-download", "--skip-check", ",".join(LEFT_OUT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout)
    assert said["summary"]["passed"] > 100
    return [f"{each['check_id']} {each['resource']}" for each in said["results"]["failed_checks"]]


def test_rules(chart: Chart, tmp_path: Path) -> None:
    objects = chart.render(values_of(everything() | {"models": "endpoint", "s3": "secret"}))
    assert failures(objects, tmp_path) == []
    planted = copy.deepcopy(objects)
    (job,) = (each for each in planted if each["kind"] == "RayJob")
    _, head = list(pod_templates(job))[1]
    head["spec"]["containers"][0]["securityContext"]["privileged"] = True
    assert failures(planted, tmp_path) == ["CKV_K8S_16 Pod.default.head"]
