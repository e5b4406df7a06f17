"""Makes a RayJob for the Job that this runs in, and ends as it does: CronJobs, helm and alerts ask Jobs.

    python rayjob.py RAYJOB.json START_SECONDS [ARGUMENT…]

The RayJob is named after the file's name for it and the Job's UID. It must not be called as the Job is: KubeRay gives
its submitter, a Job too, the name of the RayJob. Each ARGUMENT is added to its entry point. The Job owns the RayJob,
which goes with it. A pod that comes after one that died finds the RayJob there and watches it on. One that was deleted
is not made again, unless that happened while no pod was there to see it. One that has not begun within START_SECONDS
(no node, no quota, no image, no operator) is deleted: else it might yet begin when nobody watches.

Environment: NAMESPACE; JOB_NAME and JOB_UID of the Job. Exit codes: 0 the build succeeded. What another pod would meet
again: 10 the build failed or did not begin, 11 its RayJob was deleted, 12 the API server refuses it. 13, no answer for
long, and all that an interpreter may end with by itself are worth another pod. Nothing but the standard library.
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
PATIENCE_S = 600.0  # without one reply that can be used
SUCCEEDED, FAILED, DELETED, REFUSED, UNREACHED = 0, 10, 11, 12, 13
_FINAL = {400, 403, 404, 405, 413, 415, 422}  # answers to a RayJob that is to be made; any other may pass
_ENDS = {"Complete", "Failed", "ValidationFailed"}  # of status.jobDeploymentStatus
_BEGINNING = {"", "Initializing"}  # not Suspended: who waits in a queue waits for a reason


class Ended(Exception):
    """The watch is over, with the exit code and the line to say."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code


class Passing(Exception):
    """The API server did not answer, or not as it does; it may the next time."""


class Api:
    """RayJobs of one namespace."""

    def __init__(self, server: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._url = f"{server}/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
        self._account = account

    def create(self, job: dict[str, Any]) -> None:
        """Make it; one of that name that is there already will do.

        Raises:
            Ended: it is refused.
            Passing: it may be made the next time.
        """
        code, said = self._ask("POST", self._url, job)
        name = job["metadata"]["name"]
        if code in _FINAL:
            raise Ended(REFUSED, f"the API server says {code} of RayJob {name}: {_message(said)}")
        exists = code == 409 and _object(said).get("reason") != "Conflict"  # as where a quota is being counted
        if code not in (200, 201, 202) and not exists:
            raise Passing(f"{code} {_message(said)}")

    def read(self, name: str) -> dict[str, Any] | None:
        """Return it; None where there is none.

        Raises:
            Passing: it may be read the next time. Rights that are gone count as that: the build is under way, and
                nobody would watch it.
        """
        code, said = self._ask("GET", f"{self._url}/{name}")
        found = _object(said)
        if code == 404 and found.get("kind") == "Status":  # of the API server's, and no proxy's
            return None
        if code != 200 or found.get("kind") != "RayJob":
            raise Passing(f"{code} {_message(said)}")
        return found

    def delete(self, name: str) -> None:
        """Take it back, with its cluster.

        Raises:
            Passing: it may be taken back the next time.
        """
        code, said = self._ask("DELETE", f"{self._url}/{name}")
        if code not in (200, 202, 404):
            raise Passing(f"{code} {_message(said)}")

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        try:
            token = (self._account / "token").read_text(encoding="utf-8").strip()  # each time: it is renewed
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
    """Return the JSON object of a reply; empty where it holds none."""
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
    start_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Make the RayJob and wait for its end; return how it ended.

    Args:
        job: whose one owner is the Job that it is made for.
        start_s: seconds within which a try must have begun.
    """
    name = job["metadata"]["name"]
    made = False
    begins = heard = clock()
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
            if _state(found) not in _BEGINNING:
                begins = clock()
            elif clock() - begins > start_s:
                api.delete(name)
                return Ended(FAILED, f"RayJob {name}: {line}, for more than {start_s:.0f} s; it was deleted")
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
    """Return how a RayJob ended that was made, or found in its place; None while it goes on."""
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
    """Return the RayJob of a Job, with its name, its owner, and arguments behind its entry point.

    Args:
        job: its metadata.name is the beginning of the name, at most 38 characters: KubeRay allows 47.
        name, uid: of the Job.
    """
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    full = f"{job['metadata']['name']}-{uid[:8]}"
    entrypoint = " ".join([job["spec"]["entrypoint"], *arguments])
    return job | {
        "metadata": job["metadata"] | {"name": full, "ownerReferences": [owner]},
        "spec": job["spec"] | {"entrypoint": entrypoint},
    }


def main() -> int:
    """Read the RayJob, name it, run it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the first process of a pod is deaf to it
    environ = os.environ
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    host = environ["KUBERNETES_SERVICE_HOST"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{environ['KUBERNETES_SERVICE_PORT']}"
    job = named(job, environ["JOB_NAME"], environ["JOB_UID"], sys.argv[3:])
    end = watch(Api(server, environ["NAMESPACE"]), job, float(sys.argv[2]))
    print(end, file=sys.stderr)
    return end.code


if __name__ == "__main__":
    sys.exit(main())
