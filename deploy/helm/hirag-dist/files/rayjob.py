"""Create a RayJob for the Job of this pod and end with its result, because CronJobs, Helm and alerts read Jobs.

    python rayjob.py RAYJOB.json [ARGUMENT…]

The name of the RayJob is the one in the file with the UID of the Job. It must differ from the name of the Job: KubeRay
names its submitter, a Job too, like the RayJob. Each ARGUMENT is appended to the entry point. The Job owns the RayJob,
so that both are deleted together. After a restart the next pod finds the RayJob and continues to watch it. A deleted
RayJob is not created again, unless it was deleted while no pod was running. One that no operator takes up is deleted,
because it could otherwise start unwatched; KubeRay itself ends one that does not start (preRunningDeadlineSeconds).

Environment: NAMESPACE; JOB_NAME and JOB_UID of the Job. Exit codes: 0 the build succeeded. A retry does not help after
10 (the build failed or did not start), 11 (its RayJob was deleted) and 12 (the API server refused it). It may help
after 13 (no answer for long) and any other code. Only the standard library is used.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
POLL_S = 15.0
PATIENCE_S = 600.0  # without a usable reply of the API server, or without an operator
SUCCEEDED, FAILED, DELETED, REFUSED, UNREACHED = 0, 10, 11, 12, 13
_FINAL = {400, 403, 404, 405, 413, 415, 422}  # status codes of a refused creation; any other may be temporary
_ENDS = {"Complete", "Failed", "ValidationFailed"}  # of status.jobDeploymentStatus


class Ended(Exception):
    """End of the watch, with the exit code and a message."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code


class Passing(Exception):
    """Temporary failure of the API server."""


class Api:
    """The API of RayJobs in one namespace."""

    def __init__(self, server: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._url = f"{server}/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
        self._account = account

    def create(self, job: dict[str, Any]) -> None:
        """Create a RayJob, unless one of that name exists.

        Raises:
            Ended: the API server refused it.
            Passing: a retry may succeed.
        """
        code, said = self._ask("POST", self._url, job)
        name = job["metadata"]["name"]
        if code in _FINAL:
            raise Ended(REFUSED, f"the API server says {code} of RayJob {name}: {_message(said)}")
        exists = code == 409 and _object(said).get("reason") != "Conflict"  # Conflict: a quota is being counted
        if code not in (200, 201, 202) and not exists:
            raise Passing(f"{code} {_message(said)}")

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a RayJob, or None if it does not exist.

        Raises:
            Passing: a retry may succeed. Lost permissions count as temporary, because the build continues and would
                not be watched any more.
        """
        code, said = self._ask("GET", f"{self._url}/{name}")
        found = _object(said)
        if code == 404 and found.get("kind") == "Status":  # the API server's reply, not a proxy's
            return None
        if code != 200 or found.get("kind") != "RayJob":
            raise Passing(f"{code} {_message(said)}")
        return found

    def delete(self, name: str) -> None:
        """Delete a RayJob and its cluster.

        Raises:
            Passing: a retry may succeed.
        """
        code, said = self._ask("DELETE", f"{self._url}/{name}")
        if code not in (200, 202, 404):
            raise Passing(f"{code} {_message(said)}")

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        try:
            token = (self._account / "token").read_text(encoding="utf-8").strip()  # renewed, so read each time
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(url, data, headers, method=method)
            authority = self._account / "ca.crt"
            context = ssl.create_default_context(cafile=str(authority)) if url.startswith("https:") else None
            try:
                with urllib.request.urlopen(request, timeout=30, context=context) as reply:
                    return int(reply.status), reply.read()
            except urllib.error.HTTPError as error:
                with error:
                    return int(error.code), error.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Passing(f"{type(error).__name__}: {error}") from error


def _object(said: bytes) -> dict[str, Any]:
    """Return the JSON object of a reply, or an empty one."""
    try:
        found = json.loads(said)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(said: bytes) -> str:
    return str(_object(said).get("message") or said.decode(errors="replace"))[:500]


def watch(
    api: Api,
    job: dict[str, Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Create the RayJob, wait for its end and return the result.

    Args:
        job: RayJob with the Job as its only owner.
    """
    name = job["metadata"]["name"]
    made = False
    taken_up = heard = clock()
    said = ""
    while True:
        try:
            if not made:
                api.create(job)
                made = True
            found = api.read(name)
            end = _end(job, found)
            if end is not None:
                return end
            line = _line(found)
            heard = clock()
            if _state(found):
                taken_up = clock()
            elif clock() - taken_up > PATIENCE_S:
                api.delete(name)
                said = f"{line}, for {PATIENCE_S:.0f} s; it was deleted. Is KubeRay there?"
                return Ended(FAILED, f"RayJob {name}: {said}")
        except Passing as error:
            line = f"waiting for the API server: {error}"
            if clock() - heard > PATIENCE_S:
                return Ended(UNREACHED, f"RayJob {name}: {line}, for {PATIENCE_S:.0f} s")
        except Ended as end:
            return end
        if line != said:
            print(f"RayJob {name}: {line}", file=sys.stderr, flush=True)
            said = line
        sleep(POLL_S)


def _end(job: dict[str, Any], found: dict[str, Any] | None) -> Ended | None:
    """Return the result of a RayJob, or None while it runs."""
    name = job["metadata"]["name"]
    if found is None:
        return Ended(DELETED, f"RayJob {name} was deleted before its end was seen; it is not made again")
    owner = job["metadata"]["ownerReferences"][0]["uid"]
    if all(each.get("uid") != owner for each in found["metadata"].get("ownerReferences") or ()):
        return Ended(REFUSED, f"RayJob {name} is there already and another's: delete or rename it")
    state = _state(found)
    if state not in _ENDS:
        return None
    succeeded = state == "Complete" and found["status"].get("jobStatus") == "SUCCEEDED"
    return Ended(SUCCEEDED if succeeded else FAILED, f"RayJob {name}: {_line(found)}")


def _state(found: dict[str, Any] | None) -> str:
    return str(((found or {}).get("status") or {}).get("jobDeploymentStatus") or "")


def _line(found: dict[str, Any] | None) -> str:
    status = (found or {}).get("status") or {}
    words = (_state(found) or "not taken up by an operator yet", status.get("jobStatus"), status.get("message"))
    return " ".join(str(word) for word in words if word)


def named(job: dict[str, Any], name: str, uid: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Return the RayJob of a Job, with its name, its owner, and arguments after its entry point.

    Args:
        job: RayJob whose metadata.name, at most 38 characters, is the prefix of the name; KubeRay allows 47.
        name: name of the Job.
        uid: UID of the Job.
    """
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    full = f"{job['metadata']['name']}-{uid[:8]}"
    entrypoint = " ".join([job["spec"]["entrypoint"], *arguments])
    return job | {
        "metadata": job["metadata"] | {"name": full, "ownerReferences": [owner]},
        "spec": job["spec"] | {"entrypoint": entrypoint},
    }


def main() -> int:
    """Read the RayJob, name it and run it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ignored by process 1 by default
    environ = os.environ
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    host = environ["KUBERNETES_SERVICE_HOST"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{environ['KUBERNETES_SERVICE_PORT']}"
    job = named(job, environ["JOB_NAME"], environ["JOB_UID"], sys.argv[2:])
    end = watch(Api(server, environ["NAMESPACE"]), job)
    print(end, file=sys.stderr)
    return end.code


if __name__ == "__main__":
    sys.exit(main())
