"""`hirag-dist`: the commands, and the exit codes of errors.

Exit codes: 0 done · 1 failed · 2 usage or configuration · 3 done but incomplete · 4 stopped by a budget · 5 another
build holds the index · 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import typer

from hirag_dist import __version__
from hirag_dist.cli._logs import configure
from hirag_dist.cli._output import claim_stdout, emit_error
from hirag_dist.errors import HiragError

_INTERRUPTED = 130
_MODULES = {  # command → its module here, in the order of the help
    "init": "init",
    "plan": "plan",
    "index": "index",
    "import": "import_graph",
    "status": "status",
    "retry": "retry",
    "query": "query",
    "serve": "serve",
    "token": "token",
    "inspect": "inspect",
    "eval": "eval",
    "export": "export",
    "prune": "prune",
    "simulate-llm": "simulate",
    "config": "config",
    "doctor": "doctor",
    "demo": "demo",
}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hirag-dist {__version__}")
        raise typer.Exit


def _common(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what happens, on stderr."),
    debug: bool = typer.Option(False, "--debug", help="Show a traceback where something fails."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    configure({"": logging.INFO if verbose else logging.WARNING})
    if debug:
        os.environ["HIRAG_DEBUG"] = "1"


def _command_line() -> typer.Typer:
    """Return `hirag-dist` without commands; each call of `main` has one of its own, or they would pile up in it."""
    app = typer.Typer(
        name="hirag-dist",
        help="Retrieval-augmented generation with hierarchical knowledge, from a laptop to a cluster.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    return app


def _add_commands(app: typer.Typer, arguments: Sequence[str] = ()) -> None:
    """Add the command that the arguments name, alone: the others' libraries take seconds to load. Else all of them."""
    named = next((argument for argument in arguments if not argument.startswith("-")), "")
    for module in [_MODULES[named]] if named in _MODULES else _MODULES.values():
        import_module(f"hirag_dist.cli.{module}").register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    app = _command_line()
    _add_commands(app, sys.argv[1:])
    if "--json" in sys.argv[1:]:  # before the command line is understood: a wrong one is answered in JSON too
        claim_stdout()
    try:
        code = app(standalone_mode=False)
    except HiragError as error:
        emit_error(str(error))
        code = error.exit_code
        if os.environ.get("HIRAG_DEBUG"):
            raise
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except typer.TyperException as error:
        code = _explain_usage(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if os.environ.get("HIRAG_DEBUG"):
            raise
        emit_error(f"internal error: {type(error).__name__}: {error}; run with --debug and report what it prints")
        code = 1
    if code == _INTERRUPTED:
        emit_error("interrupted; what was finished is kept, run the same command again to go on")
    sys.exit(code if isinstance(code, int) else 0)


def _explain_usage(error: typer.TyperException) -> int:
    """Print one line for a wrong command line, or the help where nothing was asked for."""
    context = getattr(error, "ctx", None)
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(said)
        return 2
    path = context.command_path if context is not None else "hirag-dist"
    emit_error(f"{said.rstrip('.')} (see `{path} --help`)")
    return 2
