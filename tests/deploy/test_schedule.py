"""The scheduled build on Ray, from the CronJob's Job to the run: against an API server and an operator on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.charts import RAY, Chart, Object, Values, only, script
from tests.deploy.cluster import CUT, Cluster, reply, status
from tests.deploy.kuberay import LONGEST_NAME, faults

rayjob = script("rayjob")
JOB: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "rag-run", "labels": {"a": "b"}},
    "spec": {"entrypoint": "x", "ttlSecondsAfterFinished": 600},
}
UID = "6d5f6c5e-8a53-4a39-9b7b-0b9a6e1f2c3d"
NAME = rayjob.named(JOB, "rag-build-29384120", UID)["metadata"]["name"]
SCHEDULE: Values = {"build.inputs": ["s3://bucket/docs"], "build.schedule.enabled": True}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("t0ken\n", encoding="utf-8")
    return tmp_path


def pod(cluster: Cluster, account: Path, job: Object = JOB, uid: str = UID) -> Any:
    """Run what one pod of the CronJob's Job runs; return its end."""
    named = rayjob.named(job, "rag-build-29384120", uid)
    api = rayjob.Api(cluster.address, "search", account)
    return rayjob.watch(api, named, clock=lambda: cluster.now, sleep=cluster.sleep)


def jobs_spec(objects: list[Object]) -> Object:
    return only(objects, "CronJob")["spec"]["jobTemplate"]["spec"]


def test_a_rayjob_is_made_and_watched_to_its_end(cluster: Cluster, account: Path) -> None:
    end = pod(cluster, account)
    assert (end.code, str(end)) == (0, f"RayJob {NAME}: Complete SUCCEEDED")
    assert cluster.runs == [NAME]
    path = "/apis/ray.io/v1/namespaces/search/rayjobs"
    assert cluster.asked[0] == ("POST", path, "Bearer t0ken")
    assert set(cluster.asked[1:]) == {("GET", f"{path}/{NAME}", "Bearer t0ken")}
    made = cluster.rayjobs[NAME]["metadata"]
    assert made["labels"] == JOB["metadata"]["labels"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "rag-build-29384120", "uid": UID}
    assert made["ownerReferences"] == [owner]
    assert JOB["metadata"] == {"name": "rag-run", "labels": {"a": "b"}}


def test_names_that_are_as_long_as_they_can_be(chart: Chart, cluster: Cluster, account: Path) -> None:
    """From the CronJob to the run: no two Jobs have one name, and none is longer than its controller allows."""
    objects = chart.render(SCHEDULE | {"fullnameOverride": "a" * 32})
    cron = only(objects, "CronJob")
    job_name = f"{cron['metadata']['name']}-29384120"  # the CronJob's controller: minutes since 1970
    assert len(cron["metadata"]["name"]) <= 52
    cluster.jobs[job_name] = {}
    (container,) = jobs_spec(objects)["template"]["spec"]["containers"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert fields["JOB_NAME"] == "metadata.labels['batch.kubernetes.io/job-name']"
    assert len(job_name) <= 63  # a label's value
    written = only(objects, "RayJob")
    named = rayjob.named(written, job_name, UID)
    assert len(named["metadata"]["name"]) <= LONGEST_NAME
    assert not faults(named)
    end = pod(cluster, account, written)
    assert end.code == 0
    assert cluster.runs == [named["metadata"]["name"]]
    assert cluster.jobs.keys() == {job_name, named["metadata"]["name"]}


@pytest.mark.parametrize("ends_as", ["FAILED", "STOPPED"])
def test_a_build_without_success_is_a_failure(cluster: Cluster, account: Path, ends_as: str) -> None:
    cluster.ends_as = ends_as
    end = pod(cluster, account)
    assert end.code == rayjob.FAILED
    assert ends_as in str(end)


def test_a_failure_that_is_tried_again_is_no_end(cluster: Cluster, account: Path) -> None:
    cluster.ends_as = "FAILED"
    job = JOB | {"spec": JOB["spec"] | {"backoffLimit": 2}}
    cluster.at(100, lambda: setattr(cluster, "ends_as", "SUCCEEDED"))
    assert pod(cluster, account, job).code == 0
    assert len(cluster.runs) == 2


def test_a_rayjob_that_no_operator_takes_up_is_deleted(cluster: Cluster, account: Path) -> None:
    """Otherwise it might begin unwatched."""
    cluster.stopped = True
    cluster.instead = [None] * 43 + [status(503, "ServiceUnavailable")] * 2  # when it is to be deleted
    end = pod(cluster, account)
    assert end.code == rayjob.FAILED
    assert "not taken up by an operator yet, for 600 s; it was deleted. Is KubeRay there?" in str(end)
    assert 600 < cluster.now <= 660
    assert not cluster.rayjobs


def test_a_rayjob_that_does_not_start_in_time_is_a_failed_build(chart: Chart, cluster: Cluster, account: Path) -> None:
    cluster.full = True
    end = pod(cluster, account, JOB | {"spec": JOB["spec"] | {"preRunningDeadlineSeconds": 900}})
    assert end.code == rayjob.FAILED
    assert "passed the preRunningDeadlineSeconds" in str(end)
    assert only(chart.render(SCHEDULE), "RayJob")["spec"]["preRunningDeadlineSeconds"] == 3600


def test_a_build_that_was_cancelled_does_not_come_back(cluster: Cluster, account: Path) -> None:
    cluster.run_s = 7200
    cluster.at(1800, lambda: cluster.delete(NAME))
    end = pod(cluster, account)
    assert end.code == rayjob.DELETED
    assert "was deleted before its end was seen; it is not made again" in str(end)
    assert [asked[0] for asked in cluster.asked].count("POST") == 1
    assert len(cluster.runs) == 1


def test_a_pod_that_comes_second_watches_the_rayjob_that_is_there(cluster: Cluster, account: Path) -> None:
    cluster.run_s = 1000
    cluster.at(300, sys.exit)  # as by the node that goes
    with pytest.raises(SystemExit):
        pod(cluster, account)
    assert pod(cluster, account).code == 0
    assert len(cluster.runs) == 1
    assert cluster.asked.count(("POST", "/apis/ray.io/v1/namespaces/search/rayjobs", "Bearer t0ken")) == 2


def test_anothers_rayjob_of_that_name_is_left_alone(cluster: Cluster, account: Path) -> None:
    other = rayjob.named(JOB, "x", UID)
    other["metadata"]["ownerReferences"] = []
    cluster.rayjobs[NAME] = other
    end = pod(cluster, account)
    assert end.code == rayjob.REFUSED
    assert "is there already and another's" in str(end)


HTML = b"<html><body>Sign in</body></html>"
PASSING = {
    "cut short": (200, b'{"kind": "RayJob"' + CUT),
    "a proxy's page": (200, HTML),
    "something else": reply(200, {"kind": "Pod"}),
    "busy": status(429, "TooManyRequests"),
    "broken": status(500, "InternalError"),
    "a token that has just run out": status(401, "Unauthorized"),
}


@pytest.mark.parametrize("case", PASSING)
def test_what_passes_is_waited_for(cluster: Cluster, account: Path, case: str) -> None:
    cluster.instead = [None, None, PASSING[case], PASSING[case]]  # it was made and read once
    assert pod(cluster, account).code == 0
    assert len(cluster.runs) == 1


@pytest.mark.parametrize("case", ["cut short", "broken"])
def test_a_yes_that_was_lost_is_no_second_build(cluster: Cluster, account: Path, case: str) -> None:
    cluster.instead, cluster.lost = [PASSING[case]], True
    assert pod(cluster, account).code == 0
    assert len(cluster.runs) == 1


@pytest.mark.parametrize("code", [403, 422])
def test_what_is_refused_is_not_asked_again(cluster: Cluster, account: Path, code: int) -> None:
    cluster.instead = [status(code, "Invalid")]
    end = pod(cluster, account)
    assert (end.code, str(end)) == (rayjob.REFUSED, f"the API server says {code} of RayJob {NAME}: no: Invalid")
    assert len(cluster.asked) == 1


def test_a_server_that_never_answers_is_given_up(account: Path) -> None:
    gone = Cluster()
    gone.close()
    end = pod(gone, account)
    assert end.code == rayjob.UNREACHED
    assert "waiting for the API server" in str(end)
    assert 600 < gone.now <= 615


def test_no_code_that_an_interpreter_ends_with_fails_the_job(chart: Chart) -> None:
    """A traceback is 1, a wrong command line 2, a signal above 128: they tell nothing of the build."""
    spec = jobs_spec(chart.render(SCHEDULE))
    (fails, ignored) = spec["podFailurePolicy"]["rules"]
    assert fails["action"] == "FailJob"
    assert fails["onExitCodes"]["values"] == [rayjob.FAILED, rayjob.DELETED, rayjob.REFUSED] == [10, 11, 12]
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert spec["backoffLimit"] > 0


def test_nothing_begins_a_second_run_where_spending_is_limited(chart: Chart) -> None:
    limit, none = {"build.maxUsd": 5}, {"build.ray.submitter.backoffLimit": 0}

    def second_tries(build: Values) -> tuple[int, list[str]]:
        values = SCHEDULE | {"build.once": True} | build
        ray = only(chart.render(values), "RayJob")["spec"]
        inline = only(chart.render(values | {"config.execution.executor": "inline"}), "Job")["spec"]
        assert ray["backoffLimit"] == inline["backoffLimit"] == 0
        return ray["submitterConfig"]["backoffLimit"], [each["action"] for each in inline["podFailurePolicy"]["rules"]]

    assert second_tries({}) == (2, ["FailJob", "Ignore"])
    assert second_tries(limit) == (0, ["FailJob"])
    assert second_tries(none)[0] == 0
    one = {"build.ray.submitter.backoffLimit": 1}
    assert "build.ray.submitter.backoffLimit must be 0" in chart.refusal(RAY | limit | one)
