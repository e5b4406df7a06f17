"""Unit tests start no process; marked ones may."""

from __future__ import annotations

import os
import subprocess

import pytest


def test_a_unit_test_that_starts_a_process_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="Mark it `integration`"):
        subprocess.run(["true"], check=True)


def test_a_unit_test_that_forks_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"os\.fork"):
        os.fork()


@pytest.mark.integration
def test_a_marked_test_may_start_one() -> None:
    subprocess.run(["true"], check=True)
