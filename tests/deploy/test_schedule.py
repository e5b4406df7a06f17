"""The scheduled build on Ray, from the CronJob's Job to the run: against an API server and an operator on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.charts import Chart, Object, merged, only, script
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
SCHEDULE = {"build": {"inputs": ["s3://bucket/docs"], "schedule": {"enabled": True}}}


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
    return rayjob.watch(api, named, clock=cluster.clock, sleep=cluster.sleep)


def jobs_spec(objects: list[Object]) -> Object:
    found: Object = only(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
    return found


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
    objects = chart.render(merged(SCHEDULE, {"fullnameOverride": "a" * 32}))
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


def test_a_rayjob_with_the_name_of_a_job_would_never_run(cluster: Cluster, account: Path) -> None:
    """Why it is named apart: as KubeRay's submitter counts a Job that has nothing to do with it."""
    cluster.jobs[NAME] = {}
    cluster.at(3600, lambda: cluster.delete(NAME))
    assert pod(cluster, account).code == rayjob.DELETED
    assert not cluster.runs


def test_every_job_has_a_rayjob_of_its_own(cluster: Cluster, account: Path) -> None:
    for uid in ("a", "b", UID):
        assert pod(cluster, account, uid=uid).code == 0
    assert len(set(cluster.runs)) == 3


@pytest.mark.parametrize(("ends_as", "code"), [("SUCCEEDED", 0), ("FAILED", 10), ("STOPPED", 10)])
def test_the_watch_ends_as_the_build_does(cluster: Cluster, account: Path, ends_as: str, code: int) -> None:
    cluster.ends_as = ends_as
    end = pod(cluster, account)
    assert end.code == code
    assert ends_as in str(end)


def test_a_failure_that_is_tried_again_is_no_end(cluster: Cluster, account: Path) -> None:
    cluster.ends_as = "FAILED"
    job = JOB | {"spec": JOB["spec"] | {"backoffLimit": 2}}
    cluster.at(100, lambda: setattr(cluster, "ends_as", "SUCCEEDED"))
    assert pod(cluster, account, job).code == 0
    assert len(cluster.runs) == 2


def test_a_rayjob_that_is_not_valid_fails(cluster: Cluster, account: Path) -> None:
    job = JOB | {"metadata": {"name": "1-" + "x" * 60}}
    end = pod(cluster, account, job)
    assert end.code == rayjob.FAILED
    assert "ValidationFailed RayJob name should be" in str(end)


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


def test_a_try_that_begins_late_has_as_long_as_the_first(cluster: Cluster, account: Path) -> None:
    cluster.full, cluster.ends_as = True, "FAILED"
    cluster.at(3000, lambda: setattr(cluster, "full", False))
    cluster.at(3010, lambda: setattr(cluster, "full", True))
    cluster.at(6000, lambda: (setattr(cluster, "full", False), setattr(cluster, "ends_as", "SUCCEEDED")))
    assert pod(cluster, account, JOB | {"spec": JOB["spec"] | {"backoffLimit": 1}}).code == 0
    assert len(cluster.runs) == 2


def test_a_rayjob_that_waits_in_a_queue_is_left_there(cluster: Cluster, account: Path) -> None:
    cluster.queued = True
    cluster.at(20_000, lambda: setattr(cluster, "queued", False))
    assert pod(cluster, account).code == 0


def test_a_build_that_was_cancelled_does_not_come_back(chart: Chart, cluster: Cluster, account: Path) -> None:
    cluster.run_s = 7200
    cluster.at(1800, lambda: cluster.delete(NAME))
    end = pod(cluster, account)
    assert end.code == rayjob.DELETED
    assert "was deleted before its end was seen; it is not made again" in str(end)
    assert [asked[0] for asked in cluster.asked].count("POST") == 1
    assert len(cluster.runs) == 1
    (fails, _) = jobs_spec(chart.render(SCHEDULE))["podFailurePolicy"]["rules"]
    assert fails["action"] == "FailJob"
    assert end.code in fails["onExitCodes"]["values"]


def test_an_operator_that_deletes_what_ended_leaves_time_to_see_it(
    chart: Chart, cluster: Cluster, account: Path
) -> None:
    cluster.deletes = True
    job = JOB | {"spec": {"entrypoint": "x", "ttlSecondsAfterFinished": 60}}
    assert pod(cluster, account, job).code == 0
    cluster.sleep(120)
    assert not cluster.rayjobs
    said = chart.refusal(merged(SCHEDULE, {"build": {"ttlSecondsAfterFinished": 59}}))
    assert "ttlSecondsAfterFinished': minimum: got 59, want 60" in said


def test_what_ended_and_was_deleted_between_two_looks_is_not_done_again(cluster: Cluster, account: Path) -> None:
    cluster.deletes = True
    job = JOB | {"spec": {"entrypoint": "x", "ttlSecondsAfterFinished": 0}}
    assert pod(cluster, account, job).code == rayjob.DELETED
    assert len(cluster.runs) == 1


def test_a_pod_that_comes_second_watches_the_rayjob_that_is_there(cluster: Cluster, account: Path) -> None:
    cluster.run_s = 1000

    class Killed(BaseException):
        """As by the node that goes."""

    def killed() -> None:
        raise Killed

    cluster.at(300, killed)
    with pytest.raises(Killed):
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
    "a proxy's page that is missing": (404, HTML),
    "null": reply(200, None),
    "a list": reply(200, []),
    "something else": reply(200, {"kind": "Pod"}),
    "busy": status(429, "TooManyRequests"),
    "broken": status(500, "InternalError"),
    "a gateway": (502, HTML),
    "away": status(503, "ServiceUnavailable"),
    "a token that has just run out": status(401, "Unauthorized"),
    "rights that are gone for a while": status(403, "Forbidden"),
}


@pytest.mark.parametrize("case", PASSING)
def test_what_passes_is_waited_for(cluster: Cluster, account: Path, case: str) -> None:
    cluster.instead = [None, None, PASSING[case], PASSING[case]]  # it was made and read once
    assert pod(cluster, account).code == 0
    assert len(cluster.runs) == 1


@pytest.mark.parametrize("case", ["cut short", "a proxy's page", "null", "broken", "busy"])
def test_a_yes_that_was_lost_is_no_second_build(cluster: Cluster, account: Path, case: str) -> None:
    cluster.instead, cluster.lost = [PASSING[case]], True
    assert pod(cluster, account).code == 0
    assert len(cluster.runs) == 1


def test_a_conflict_over_a_quota_is_no_yes(cluster: Cluster, account: Path) -> None:
    cluster.instead = [status(409, "Conflict")]
    assert pod(cluster, account).code == 0
    assert [asked[0] for asked in cluster.asked[:2]] == ["POST", "POST"]


@pytest.mark.parametrize("code", [400, 403, 404, 422])
def test_what_is_refused_is_not_asked_again(chart: Chart, cluster: Cluster, account: Path, code: int) -> None:
    cluster.instead = [status(code, "Invalid")]
    end = pod(cluster, account)
    assert (end.code, str(end)) == (12, f"the API server says {code} of RayJob {NAME}: no: Invalid")
    assert len(cluster.asked) == 1
    (fails, _) = jobs_spec(chart.render(SCHEDULE))["podFailurePolicy"]["rules"]
    assert end.code in fails["onExitCodes"]["values"]


@pytest.mark.parametrize("answer", [(403, HTML), (200, HTML), reply(200, None)])
def test_rights_that_stay_away_are_given_up(cluster: Cluster, account: Path, answer: tuple[int, bytes]) -> None:
    cluster.run_s = 7200
    cluster.instead = [None, None, *[answer] * 50]
    end = pod(cluster, account)
    assert end.code == rayjob.UNREACHED  # another pod goes on: the build does
    assert 600 < cluster.now <= 630


def test_a_server_that_never_answers_is_given_up(account: Path) -> None:
    gone = Cluster()
    gone.close()
    end = pod(gone, account)
    assert end.code == rayjob.UNREACHED
    assert "waiting for the API server" in str(end)
    assert 600 < gone.now <= 615


def test_patience_begins_anew_with_each_reply(cluster: Cluster, account: Path) -> None:
    cluster.run_s = 1300
    quiet = [status(503, "ServiceUnavailable")] * 39  # 585 s
    cluster.instead = [None, None, None, *quiet, None, *quiet]
    assert pod(cluster, account).code == 0
    assert cluster.now > 1100


def test_no_code_that_an_interpreter_ends_with_fails_the_job(chart: Chart) -> None:
    """A traceback is 1, a wrong command line 2, a signal above 128: they tell nothing of the build."""
    spec = jobs_spec(chart.render(SCHEDULE))
    (fails, ignored) = spec["podFailurePolicy"]["rules"]
    assert fails["onExitCodes"]["values"] == [rayjob.FAILED, rayjob.DELETED, rayjob.REFUSED]
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert rayjob.UNREACHED not in fails["onExitCodes"]["values"]
    assert spec["backoffLimit"] > 0


@pytest.mark.parametrize(("build", "seconds"), [({"backoffLimit": 0}, 2800), ({"backoffLimit": 2}, 3 * 2800)])
def test_the_watch_outlasts_the_build_and_ends(chart: Chart, build: dict[str, Any], seconds: int) -> None:
    limited = merged(SCHEDULE, {"build": build | {"activeDeadlineSeconds": 1000}})
    objects = chart.render(limited)
    assert jobs_spec(objects)["activeDeadlineSeconds"] == seconds
    assert only(objects, "RayJob")["spec"]["activeDeadlineSeconds"] == 1000
    assert "activeDeadlineSeconds" not in jobs_spec(
        chart.render(merged(limited, {"build": {"activeDeadlineSeconds": None}}))
    )


def test_a_build_that_is_stuck_ends_by_itself(chart: Chart) -> None:
    for executor in ("ray", "inline"):
        objects = chart.render(merged(SCHEDULE, {"config": {"execution": {"executor": executor}}}))
        assert jobs_spec(objects)["activeDeadlineSeconds"] >= 7 * 86_400


@pytest.mark.parametrize("executor", ["ray", "inline"])
def test_a_night_that_finds_another_build_is_left_out(chart: Chart, executor: str) -> None:
    """By the schedule alone: what is to be built once is not built by passing it over."""
    objects = chart.render(merged(SCHEDULE, {"build": {"once": True}, "config": {"execution": {"executor": executor}}}))
    once = only(objects, "Job")["spec"]["template"]["spec"]["containers"][0]["command"]
    nightly = jobs_spec(objects)["template"]["spec"]["containers"][0]["command"]
    assert nightly == [*once, "5"]
    if executor == "ray":
        job = rayjob.named(only(objects, "RayJob"), "n", UID, nightly[3:])
        assert job["spec"]["entrypoint"] == "python /etc/hirag/config/build.py /etc/hirag/config/order.json 5"


@pytest.mark.parametrize("limit", [{"maxUsd": 5}, {"maxTokens": 1_000_000}])
def test_nothing_begins_a_second_run_where_spending_is_limited(chart: Chart, limit: dict[str, Any]) -> None:
    def second_tries(build: dict[str, Any]) -> tuple[int, list[str]]:
        values = merged(SCHEDULE, {"build": build | {"once": True}})
        ray = only(chart.render(values), "RayJob")["spec"]
        inline = only(chart.render(merged(values, {"config": {"execution": {"executor": "inline"}}})), "Job")["spec"]
        assert ray["backoffLimit"] == inline["backoffLimit"] == 0
        return ray["submitterConfig"]["backoffLimit"], [each["action"] for each in inline["podFailurePolicy"]["rules"]]

    assert second_tries({}) == (2, ["FailJob", "Ignore"])
    assert second_tries(limit) == (0, ["FailJob"])
    assert second_tries({"ray": {"submitter": {"backoffLimit": 0}}})[0] == 0
    submitter = {"build": limit | {"ray": {"submitter": {"backoffLimit": 1}}}}
    assert "build.ray.submitter.backoffLimit must be 0" in chart.refusal(merged(SCHEDULE, submitter))


def test_failed_builds_keep_their_pods_and_logs(chart: Chart) -> None:
    for executor in ("ray", "inline"):
        objects = chart.render(merged(SCHEDULE, {"config": {"execution": {"executor": executor}}}))
        assert "ttlSecondsAfterFinished" not in jobs_spec(objects)
        assert only(objects, "CronJob")["spec"]["failedJobsHistoryLimit"] > 0
