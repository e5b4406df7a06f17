"""Import rules: a module imports lower ranks, its own package, or (rank 0) its peers; each library has its files."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOT = REPOSITORY / "hirag_dist"

RANKS: list[list[str]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["hirag"]["ranks"]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
ROOT_MODULES = {"__init__", "__main__"}  # these import any rank
DATA = {"samples"}  # packages without code

_GRPC = ("service/", "client/", "wire/", "retrieval/vector_index/milvus/")  # pymilvus raises grpc errors
_GPU = ("compute/gpu.py",)
FENCED = {  # library: where it may be imported, by the beginning of the path
    "ray": ("execution/ray/",),
    "grpc": _GRPC,
    "grpc_health": _GRPC,
    "grpc_reflection": _GRPC,
    "grpc_status": _GRPC,
    "prometheus_client": ("service/",),
    "opentelemetry": ("execution/tracing.py", "service/access_log.py"),
    "pymilvus": ("retrieval/vector_index/milvus/",),
    "obstore": ("config/object_stores.py", "readers/discover.py", "storage/conditional_put.py"),
    "milvus_lite": ("retrieval/vector_index/milvus/",),
    "cuml": _GPU,
    "pylibcugraph": _GPU,
    "cupy": ("compute/gpu.py", "compute/cells.py"),
    "umap": (),
    "sklearn": (),
    "openai": ("llm/endpoints/openai",),
    "langchain_core": ("integrations/langchain.py",),
    "llama_index": ("integrations/llamaindex.py",),
    "mcp": ("mcp/",),
    "mcp_types": ("mcp/",),
    "starlette": ("mcp/",),
    "uvicorn": ("mcp/",),
    "jinja2": ("html/",),
    "markupsafe": ("html/",),
    "aiohttp": ("llm/endpoints/openai", "testing/simulator/", "service/web/", "service/http_api/"),
}

# core is pure: tables and arrays in, the same out
CORE_LIBRARIES = {"numpy", "scipy", "pyarrow", "numba"}
NOT_IN_CORE = {
    *("os", "pathlib", "io", "logging", "time", "socket", "asyncio", "subprocess", "open", "print", "input"),
    *(f"pyarrow.{module}" for module in ("fs", "parquet", "dataset", "csv", "json", "feather", "orc", "ipc", "flight")),
}


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import, those inside functions too, and of the built-in ways to do I/O."""
    package = ("hirag_dist", *path.relative_to(root).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Name) and node.id in ("open", "print", "input"):
            yield node.lineno, node.id


def fault(here: str, name: str) -> str | None:
    """Return why the file at `here` may not import `name`, or None."""
    own = here.split("/")[0].removesuffix(".py")
    top, _, rest = name.partition(".")
    below = rest.split(".")[0]
    if top in FENCED and not here.startswith(FENCED[top]):
        return f"{top} belongs in {' or '.join(FENCED[top]) or 'tests and benchmarks'}"
    if own == "core" and top != "hirag_dist":
        if top in NOT_IN_CORE or f"{top}.{below}" in NOT_IN_CORE:
            return "core is pure"
        allowed = CORE_LIBRARIES | sys.stdlib_module_names | ({"tiktoken"} if here == "core/text/tokens.py" else set())
        if top not in allowed:
            return f"core takes nothing but {', '.join(sorted(CORE_LIBRARIES))}"
    if top == "hirag_dist" and own not in ROOT_MODULES and below not in ("", own):
        if unranked := {own, below} - RANK.keys():
            return f"no rank for {', '.join(sorted(unranked))} in pyproject.toml, [tool.hirag]"
        if RANK[below] >= RANK[own] and not RANK[below] == RANK[own] == 0:
            return f"{own} has rank {RANK[own]}, {below} has {RANK[below]}"
    return None


def faults(path: Path, root: Path = ROOT) -> list[str]:
    here = path.relative_to(root).as_posix()
    found = [(line, name, fault(here, name)) for line, name in imports(path, root)]
    return [f"hirag_dist/{here}:{line} {name}: {why}" for line, name, why in found if why]


MODULES = sorted(path for path in ROOT.rglob("*.py") if "_pb" not in path.parts)


def test_every_module_keeps_the_import_rules() -> None:
    broken = [line for path in MODULES for line in faults(path)]
    assert not broken, "\n".join(broken)


def test_every_top_level_name_has_a_rank() -> None:
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert names - ROOT_MODULES - DATA == RANK.keys()


@pytest.mark.parametrize("page", ["docs/explanation/architecture.md", "CONTRIBUTING.md"])
def test_the_pages_have_the_table_of_ranks(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", text, re.MULTILINE)
    assert [(int(rank), re.findall(r"\w+", names)) for rank, names in rows] == list(enumerate(RANKS))
