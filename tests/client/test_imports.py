"""A client is cheap to import: gRPC, protobuf and the standard library."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# An import of anything but the declared dependencies of the client, and what these import, fails.
CODE = """
import importlib.abc, json, sys
DECLARED = {*sys.stdlib_module_names, "hirag_dist", "grpc", "typing_extensions"}
class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        protobuf = name == "google" or name.startswith(("google.protobuf", "google._upb"))
        if not protobuf and name.partition(".")[0] not in DECLARED:
            raise ImportError(f"{name} is no dependency of the client")
sys.meta_path.insert(0, Only())
from hirag_dist import AsyncHiragClient, HiragClient, Query, errors
with HiragClient("127.0.0.1:1", retries=False) as client:
    for call in (client.retrieve, client.wait_ready):
        try:
            call(Query("q", vector=[1.0, 2.0]), timeout_s=0.2) if call == client.retrieve else call(0.2)
        except errors.ServiceError:
            pass
        else:
            raise AssertionError("nothing listens there")
print(json.dumps(sorted(name for name in sys.modules if name.startswith("hirag_dist"))))
"""
PARTS = {"_loop_thread", "_version", "client", "wire", "types", "errors"}


@pytest.mark.integration
def test_a_client_needs_grpc_and_protobuf_alone() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert {name.split(".")[1] for name in json.loads(done.stdout) if "." in name} == PARTS
