"""Tools around the product are imported by the commands that need them only."""

import subprocess
import sys

import pytest

from hirag_dist.cli._command_line import COMMANDS

TOOLS = ("hirag_dist.testing", "hirag_dist.evaluation", "hirag_dist.inspection", "hirag_dist.html", "jinja2")
USERS = ("eval", "inspect", "demo", "simulate-llm")  # demo writes the page of inspect
OTHERS = [module for name, (module, _) in COMMANDS.items() if name not in USERS]
PROGRAMS = {
    "package": "from hirag_dist import build_index, open_index",
    "service": "import hirag_dist.service.server",
    "commands": f"import {', '.join(f'hirag_dist.cli.{module}' for module in OTHERS)}",
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.integration
def test_tools_stay_out_of_the_default_imports(program: str) -> None:
    code = f"import sys\n{PROGRAMS[program]}\nprint(*(name for name in sys.modules if name.startswith({TOOLS})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []
