"""Makes a RayJob for the Job that this runs in, and ends as it does: a CronJob then knows how builds went.

    python rayjob.py RAYJOB.json START_SECONDS

The RayJob is named after the file's name and the Job's uid. Not after the Job: KubeRay submits a RayJob by a Job of the
RayJob's own name, and would take ours for it. Environment: NAMESPACE; JOB_NAME and JOB_UID of the Job, which owns the
RayJob: it goes with it. A pod that comes after one that died finds the RayJob there and watches it on.

Exit codes: 0 the build succeeded; 10 it failed, was deleted, was not taken, or had not begun within START_SECONDS and
was taken back: it must not be made again; 2 the API server is out of reach. Nothing but the standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
POLL_S = 15.0
PATIENCE_S = 600.0  # without one reply from the API server
FAILED = 10  # no interpreter ends with it by itself
_PASSING = {429, 500, 502, 503, 504}
_ENDED = ("Complete", "Failed", "ValidationFailed")  # jobDeploymentStatus
_BEGINNING = ("", "Initializing")  # not Suspended: who waits in a queue waits for a reason


class Refused(Exception):
    """What the API server will say again, however often it is asked."""


class OutOfReach(Exception):
    """Nobody answered for so long that another pod should try."""


class Api:
    """RayJobs of one namespace."""

    def __init__(self, server: str, namespace: str, account: Path = ACCOUNT) -> None:
        self._url = f"{server}/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
        self._account = account

    def create(self, job: dict[str, Any]) -> None:
        """Make it; one of that name that is there already is it."""
        try:
            self._ask("POST", self._url, job)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def status(self, name: str) -> dict[str, Any]:
        """Return its status, empty while it has none."""
        return dict(self._ask("GET", f"{self._url}/{name}").get("status") or {})

    def delete(self, name: str) -> None:
        """Take it back, with its cluster."""
        self._ask("DELETE", f"{self._url}/{name}")

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        token = (self._account / "token").read_text(encoding="utf-8").strip()  # each time: it is renewed
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        authority = self._account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority)) if url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            said = json.load(reply)
        if not isinstance(said, dict):
            raise ValueError(f"not an object but {said!r:.100}")
        return said


def build(
    api: Api,
    job: dict[str, Any],
    start_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Make the RayJob and wait for its end. Return 0 where it succeeded, 10 where it failed.

    Args:
        start_s: within which its cluster must be there and the job run; else it is deleted, and has failed.

    Raises:
        Refused: it is not allowed, is wrong, or was deleted.
        OutOfReach: nobody answered for `PATIENCE_S`.
    """
    name = job["metadata"]["name"]
    created = False
    waits_since = heard = clock()
    late = False
    said = ""
    while True:
        try:
            if not created:
                api.create(job)
                created = True
            if late:
                api.delete(name)
                return FAILED
            status = api.status(name)
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")[:500]
            # What is refused of a build that runs is refused for a while, by a token or a rule that is being renewed.
            if error.code not in _PASSING and (error.code == 404 or not created):
                raise Refused(f"the API server says {error.code} of RayJob {name}: {detail}") from error
            if clock() - heard > PATIENCE_S:
                raise OutOfReach(f"the API server says {error.code} of RayJob {name}: {detail}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a proxy's page, or half a reply
            if clock() - heard > PATIENCE_S:
                raise OutOfReach(f"the API server is out of reach: {error}") from error
        else:
            heard = clock()
            state = str(status.get("jobDeploymentStatus", ""))
            line = f"{state or 'New'} {status.get('jobStatus', '')} {status.get('message', '')}".strip()
            if line != said:
                print(f"RayJob {name}: {line}", file=sys.stderr, flush=True)
                said = line
            if state in _ENDED:
                return 0 if state == "Complete" and status.get("jobStatus") == "SUCCEEDED" else FAILED
            if state not in _BEGINNING:
                waits_since = clock()
            elif clock() - waits_since > start_s:
                print(f"RayJob {name} has not begun within {start_s:.0f} s: it is deleted", file=sys.stderr)
                late = True
                continue
        sleep(POLL_S)


def named(job: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the RayJob of the Job that the environment tells of."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": environ["JOB_NAME"], "uid": environ["JOB_UID"]}
    name = f"{job['metadata']['name']}-{environ['JOB_UID'][:8]}"
    return job | {"metadata": job["metadata"] | {"name": name, "ownerReferences": [owner]}}


def main() -> int:
    """Read the RayJob, name it, run it."""
    environ = os.environ
    job = named(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), environ)
    host = environ["KUBERNETES_SERVICE_HOST"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{environ['KUBERNETES_SERVICE_PORT']}"
    try:
        return build(Api(server, environ["NAMESPACE"]), job, float(sys.argv[2]))
    except (Refused, OutOfReach) as error:
        print(error, file=sys.stderr)
        return FAILED if isinstance(error, Refused) else 2


if __name__ == "__main__":
    sys.exit(main())
