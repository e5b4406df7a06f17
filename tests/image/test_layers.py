"""The images as they are pulled: layers, sizes, user, content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.image import engine
from tests.image.conftest import Record

pytestmark = pytest.mark.timeout(engine.TEST_S)
RELEASE_BYTES = 30 << 20


@pytest.mark.parametrize("target", ["cpu", "query"])
def test_a_release_that_changes_only_our_code_pulls_little(
    images: dict[str, str], source: Path, record: Record, target: str, tmp_path: Path
) -> None:
    """A comment more in one file: the layers of the base and of the packages stay, by their digests."""
    changed = shutil.copytree(source, tmp_path / "changed")
    with (changed / "hirag_dist/__init__.py").open("a", encoding="utf-8") as file:
        file.write("\n# The next release.\n")
    engine.build(changed, target, f"localhost/hirag-dist-{target}:next")
    before, after = (engine.layers(tag, tmp_path) for tag in (images[target], f"localhost/hirag-dist-{target}:next"))
    pulled = sum(size for digest, size in after.items() if digest not in before)
    record(
        what="layers",
        target=target,
        size_mb=round(engine.size_bytes(images[target]) / 1e6),
        layers_mb=[round(size / 1e6, 1) for size in before.values()],
        next_release_pulls_mb=round(pulled / 1e6, 1),
    )
    assert 0 < pulled < RELEASE_BYTES


def test_the_image_of_the_service_is_smaller(images: dict[str, str]) -> None:
    cpu, query = (engine.size_bytes(images[target]) for target in ("cpu", "query"))
    assert query < 0.75 * cpu
    assert not engine.files(images["query"], "/opt/hirag/lib", "ray-*.dist-info")
    assert engine.files(images["cpu"], "/opt/hirag/lib", "ray-*.dist-info")


@pytest.mark.parametrize("target", ["cpu", "query"])
def test_content(images: dict[str, str], target: str) -> None:
    """The user, the bill of materials, no pip, and the processor that compiled code is for."""

    def said(*command: str) -> str:
        options = ["run", "--rm", *engine.limits(), "--entrypoint", command[0]]
        return engine.podman(*options, images[target], *command[1:]).stdout

    assert said("id", "-u").strip() == "10001"
    bill = json.loads(said("cat", "/opt/hirag/sbom.cdx.json"))
    names = {component["name"] for component in bill["components"]}
    assert {"hirag-dist", "numba", "grpcio"} <= names
    assert ("ray" in names) == (target == "cpu")
    code = "import importlib.util, os; print(importlib.util.find_spec('pip'), os.environ['NUMBA_CPU_NAME'])"
    assert said("python", "-c", code).split()[0] == "None"
    assert said("python", "-c", code).split()[1] in ("x86-64-v3", "generic")
    assert "serve" in said("hirag-dist", "--help")
