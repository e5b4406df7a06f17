"""Writes the schema of the chart's values: that of the chart's own switches, with the configuration's put in.

python tools/chart.py            write deploy/helm/hirag-dist/values.schema.json
python tools/chart.py --check    say whether it is as this would write it; exit code 1 if not
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from hirag_dist.config import Config

HELM = Path(__file__).parents[1] / "deploy" / "helm"
OWN, WRITTEN = HELM / "values.schema.yaml", HELM / "hirag-dist" / "values.schema.json"

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
_SCALARS = {"integer", "number", "boolean"}


def values_schema() -> dict[str, Any]:
    """Return the JSON Schema of the chart's values."""
    own: dict[str, Any] = yaml.safe_load(OWN.read_text(encoding="utf-8"))
    config = Config.model_json_schema(ref_template="#/definitions/Config.{model}")
    sections = config.pop("$defs")
    own["properties"]["config"] = {"$ref": "#/definitions/Config"}
    own["definitions"] |= {"Config": _as_file(config)}
    own["definitions"] |= {f"Config.{name}": _as_file(section) for name, section in sections.items()}
    return own


def _as_file(schema: Any) -> Any:
    """Return the schema of what a file may say, where pydantic's is of what the program then has.

    In the file a number or a switch may be a variable of the environment (`${RPM}`), and a section may be empty. Titles
    are left out: they repeat the keys.
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


def main() -> None:
    """Write it, or check that it is fresh."""
    text = json.dumps(values_schema(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if sys.argv[1:] != ["--check"]:
        WRITTEN.write_text(text, encoding="utf-8")
    elif not WRITTEN.exists() or WRITTEN.read_text(encoding="utf-8") != text:
        sys.exit(f"{WRITTEN.relative_to(HELM.parents[1])} is not what the configuration says: run `make chart`")


if __name__ == "__main__":
    main()
