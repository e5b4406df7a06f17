"""Makes a RayJob named after the Job that this runs in, and ends as it does: a CronJob then knows how builds went.

    python rayjob.py RAYJOB.json

Environment: NAMESPACE; JOB_NAME and JOB_UID of the Job, which owns the RayJob: it goes with it. A pod that comes after
one that died finds the RayJob there and watches it on. Exit codes: 0 the build succeeded, 1 it failed, 2 the API server
refuses or is out of reach. Nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
POLL_S = 15.0
PATIENCE_S = 600.0  # without one reply from the API server
_PASSING = {429, 500, 502, 503, 504}


class Refused(Exception):
    """What the API server will say again, however often it is asked."""


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

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        token = (self._account / "token").read_text(encoding="utf-8").strip()  # each time: it is renewed
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        authority = self._account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority)) if url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return dict(json.load(reply))


def build(
    api: Api,
    job: dict[str, Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Make the RayJob and wait for its end. Return 0 where it succeeded, 1 where it failed.

    Raises:
        Refused: it is not allowed, is wrong, was deleted, or nobody answered for `PATIENCE_S`.
    """
    name = job["metadata"]["name"]
    created = False
    heard = clock()
    said = ""
    while True:
        try:
            if not created:
                api.create(job)
                created = True
            status = api.status(name)
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")[:500]
            if error.code not in _PASSING or clock() - heard > PATIENCE_S:
                raise Refused(f"the API server says {error.code} of RayJob {name}: {detail}") from error
        except OSError as error:
            if clock() - heard > PATIENCE_S:
                raise Refused(f"the API server is out of reach: {error}") from error
        else:
            heard = clock()
            state = str(status.get("jobDeploymentStatus", ""))
            line = f"{state or 'New'} {status.get('jobStatus', '')} {status.get('message', '')}".strip()
            if line != said:
                print(f"RayJob {name}: {line}", file=sys.stderr, flush=True)
                said = line
            if state in ("Complete", "Failed"):
                return 0 if state == "Complete" and status.get("jobStatus") == "SUCCEEDED" else 1
        sleep(POLL_S)


def main() -> int:
    """Read the RayJob, name it, run it."""
    environ = os.environ
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": environ["JOB_NAME"], "uid": environ["JOB_UID"]}
    job["metadata"] |= {"name": environ["JOB_NAME"], "ownerReferences": [owner]}
    host = environ["KUBERNETES_SERVICE_HOST"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{environ['KUBERNETES_SERVICE_PORT']}"
    try:
        return build(Api(server, environ["NAMESPACE"]), job)
    except Refused as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
