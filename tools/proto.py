"""Generate hirag_dist/wire/_pb from proto/; with --check, report stale files instead."""

import re
import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
PROTO = ROOT / "proto"
PACKAGE = "hirag_dist.wire._pb"
TARGET = ROOT.joinpath(*PACKAGE.split("."))


def generate() -> dict[str, str]:
    """Return file name → generated code. The package is flat: imports between generated files are made to fit it."""
    protos = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    with TemporaryDirectory() as out:
        flags = [f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}"]
        flags += [f"--{kind}_out={out}" for kind in ("python", "pyi")]
        if protoc.main(["protoc", *flags, *protos]):
            sys.exit("protoc failed")
        made = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(out).rglob("*.py*"))}
    packages = {str(Path(proto).parent).replace("/", ".") for proto in protos}
    imports = re.compile(rf"^from (?:{'|'.join(map(re.escape, packages))}) import (\w+_pb2)", flags=re.MULTILINE)
    made = {name: imports.sub(rf"from {PACKAGE} import \1", code) for name, code in made.items()}
    return made | {"__init__.py": '"""Generated from proto/ by `make proto`; never edited."""\n'}


def main(check: bool) -> int:
    made = generate()
    there = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py*")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    if check:
        print(f"stale, run `make proto`: {', '.join(stale)}" if stale else "generated protobuf code: fresh")
        return bool(stale)
    TARGET.mkdir(exist_ok=True)
    for name in stale:
        if name in made:
            (TARGET / name).write_text(made[name], encoding="utf-8")
        else:
            (TARGET / name).unlink()
    print(f"written: {', '.join(stale)}" if stale else "generated protobuf code: nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
