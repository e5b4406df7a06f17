"""Generate the derived files of the chart, and its alert rules and dashboard for use without Kubernetes.

    python -m tools.chart            write them
    python -m tools.chart --check    list the stale ones; exit code 1 if there are any

They are the schema of its values, the dashboard and the README, and deploy/monitoring.
The schema of the values is deploy/helm/values.schema.yaml with the schema of the configuration; the table of the README
is generated from values.yaml and its comments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from hirag_dist.config.model import Config
from tools.chart_readme import readme
from tools.dashboard import dashboard
from tools.monitoring import rules

ROOT = Path(__file__).parents[1]
OWN = ROOT / "deploy/helm/values.schema.yaml"
CHART = ROOT / "deploy/helm/hirag-dist"
MONITORING = ROOT / "deploy/monitoring"

OWN_KEYS = {
    "Config": ("prompts",),
    "ExecutionConfig": ("ray_address",),
    "ServiceConfig": (
        *("listen", "metrics_listen", "tls_cert", "tls_key", "tls_client_ca", "callers_file"),
        *("cache_dir", "cache_bytes", "http", "http_names", "http_client_cert", "http_client_key"),
    ),
}
"""Keys of the configuration that the templates set from other values, so that `config` must leave them out."""
NUMBERS = ("drain_s", "drain_delay_s")
"""Keys of the service that the templates calculate with, so that they cannot be variables."""

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
_SCALARS = {"integer", "number", "boolean"}


def values_schema() -> dict[str, Any]:
    """Return the JSON Schema of the chart's values."""
    own: dict[str, Any] = yaml.safe_load(OWN.read_text(encoding="utf-8"))
    config = Config.model_json_schema(ref_template="#/definitions/Config.{model}")
    sections = config.pop("$defs")
    for section in (own, *own["definitions"].values()):
        _require_sections(section, own["definitions"])
    own["properties"]["config"] = {"$ref": "#/definitions/Config"}
    made = {"Config": _as_file(config)} | {f"Config.{name}": _as_file(section) for name, section in sections.items()}
    for name, keys in OWN_KEYS.items():
        properties = made[name if name == "Config" else f"Config.{name}"]["properties"]
        for key in keys:
            del properties[key]
    service = made["Config.ServiceConfig"]["properties"]
    for key in NUMBERS:
        service[key] = service[key].pop("anyOf")[0] | service[key]
    service["processes"]["anyOf"][0]["minimum"] = 1  # 0 counts the cores of the node, not those of the pod
    own["definitions"] |= made
    return own


def _require_sections(schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Require every section, because templates read all of them and a null in a user's values removes one."""
    for name, inner in schema.get("properties", {}).items():
        section = definitions[inner["$ref"].rsplit("/", 1)[1]] if "$ref" in inner else inner
        if "properties" in section:
            schema["required"] = sorted({*schema.get("required", ()), name})
        _require_sections(inner, definitions)


def _as_file(schema: Any) -> Any:
    """Return the schema of a configuration file for pydantic's schema of the validated configuration.

    In the file a number or a switch may be an environment variable (`${RPM}`), and a section may be empty. Titles are
    left out: they repeat the keys.
    """
    if isinstance(schema, list):
        return [_as_file(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: _as_file(item) for name, item in value.items()} if key == "properties" else _as_file(value)
        for key, value in schema.items()
        if key not in ("title", "default")
    }
    if isinstance(schema.get("default"), str | int | float | list) and schema["default"] != []:
        made["default"] = schema["default"]
    said = {key: made.pop(key) for key in ("description", "default") if key in made}
    if made.get("type") in _SCALARS:
        made = {"anyOf": [made, _VARIABLE]}
    elif "$ref" in made:
        made = {"anyOf": [made, {"type": "null"}]}
    return made | said


def written() -> dict[Path, str]:
    """Return the generated files with their content."""
    made = {
        CHART / "values.schema.json": values_schema(),
        CHART / "files/dashboard.json": dashboard(),
        MONITORING / "dashboard.json": dashboard(kubernetes=False),
    }
    texts = {
        path: json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n" for path, value in made.items()
    }
    texts[CHART / "README.md"] = readme(CHART / "values.yaml")
    texts[MONITORING / "rules.yaml"] = rules()
    return texts


def stale() -> list[Path]:
    """Return the generated files that are missing or stale."""
    return [path for path, text in written().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main() -> None:
    """Write the files, or check that they are fresh."""
    if sys.argv[1:] == ["--check"]:
        old = stale()
        for path in old:
            print(f"{path.relative_to(ROOT)} is stale: run `make chart`", file=sys.stderr)
        sys.exit(bool(old))
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
