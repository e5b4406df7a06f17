"""Schema of KubeRay's RayJob (ray.io/v1), as far as the chart uses it.

Restated from KubeRay's API types (ray-operator/apis/ray/v1: raycluster_types.go and rayjob_types.go, as of its version
1.7), since no package registry holds its CRDs. Stricter than they are: a key that is not here is a fault, so that what
the chart begins to use must be looked up first. Pod templates are left to the schemas of Kubernetes.

Behaviour of its controller (ray-operator/controllers/ray/rayjob_controller.go and common/job.go, as of 1.4 and of mid
2026), which `cluster` reproduces:

- The submitter is a Job of batch/v1 with the name of the RayJob. An existing Job of that name counts as the submitter,
  whatever created it: then nothing is submitted, and the RayJob is Running for ever. On a retry, or when it is
  suspended, the Job of that name is deleted.
- A name may have 47 characters and must be a DNS-1035 label. In later versions an invalid RayJob ends
  with the jobDeploymentStatus ValidationFailed; in 1.2 there was only an event, and the status stayed empty.
- backoffLimit retries every failure except an expired deadline, whatever the exit code. activeDeadlineSeconds limits
  one attempt. A failure that is retried is never Failed: it is Retrying at once.
- The submitter follows the log of a job that was sent with --no-wait (since 1.3.2), and ends with 0 even if the
  job failed: only the status of the RayJob shows it.
- A submitter looks up the job's id first and submits an unknown one. A restarted head knows none, so every pod of
  submitterConfig.backoffLimit may start another run.
- preRunningDeadlineSeconds ends a RayJob that is Initializing for longer; one that is Suspended may wait.
- Ended RayJobs keep their submitter; ttlSecondsAfterFinished takes the cluster. The RayJob itself is removed too if the
  operator runs with DELETE_RAYJOB_CR_AFTER_JOB_FINISHES=true.
"""

from __future__ import annotations

from typing import Any

import jsonschema

LONGEST_NAME = 47
_COUNT = {"type": "integer", "minimum": 0}
_PARAMS = {"type": "object", "additionalProperties": {"type": "string"}}
_POD = {"type": "object", "required": ["spec"]}


def exact(required: list[str], **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


_HEAD = exact(
    ["rayStartParams", "template"],
    serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    rayStartParams=_PARAMS,
    template=_POD,
)
_GROUP = exact(
    ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
    groupName={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
    replicas=_COUNT,
    minReplicas=_COUNT,
    maxReplicas=_COUNT,
    numOfHosts={"type": "integer", "minimum": 1},
    rayStartParams=_PARAMS,
    template=_POD,
)
_AUTOSCALER = exact(
    [],
    resources={"type": "object"},
    image={"type": "string"},
    imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    env={"type": "array", "items": {"type": "object"}},
    volumeMounts={"type": "array", "items": {"type": "object"}},
    securityContext={"type": "object"},
    idleTimeoutSeconds=_COUNT,
    upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
)
_AUTH = exact(
    ["mode"], mode={"enum": ["disabled", "token"]}, secretName={"type": "string", "minLength": 1}
)  # since 1.6
_CLUSTER = exact(
    ["headGroupSpec"],
    rayVersion={"type": "string"},
    authOptions=_AUTH,
    enableInTreeAutoscaling={"type": "boolean"},
    autoscalerOptions=_AUTOSCALER,
    headGroupSpec=_HEAD,
    workerGroupSpecs={"type": "array", "items": _GROUP},
)
_JOB = exact(
    ["entrypoint", "rayClusterSpec"],
    entrypoint={"type": "string"},
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
    entrypointNumCpus={"type": "number"},
    entrypointNumGpus={"type": "number"},
    backoffLimit=_COUNT,
    activeDeadlineSeconds={"type": "integer", "minimum": 1},
    preRunningDeadlineSeconds={"type": "integer", "minimum": 1},  # since 1.6
    shutdownAfterJobFinishes={"type": "boolean"},
    ttlSecondsAfterFinished=_COUNT,
    submitterConfig=exact([], backoffLimit=_COUNT),
    submitterPodTemplate=_POD,
    rayClusterSpec=_CLUSTER,
)
RAY_JOB = exact(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata={
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "maxLength": LONGEST_NAME}},
    },
    spec=_JOB,
)
_VALIDATOR = jsonschema.Draft202012Validator(RAY_JOB)


def faults(job: dict[str, Any]) -> list[str]:
    """Return the faults of a RayJob without its pods."""
    return [f"{error.json_path}: {error.message[:200]}" for error in _VALIDATOR.iter_errors(job)]
