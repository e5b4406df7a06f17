"""The command line: its commands, and the exit codes and messages of errors.

Exit codes: 0 done · 1 failed · 2 usage or configuration · 3 done but incomplete · 4 stopped by a budget · 5 another
build holds the index · 6 a check failed · 130 interrupted by Ctrl-C · 143 interrupted by SIGTERM.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import FrameType
from typing import Any, Literal

import typer

from hirag_dist._version import __version__
from hirag_dist.cli._output import claim_stdout, emit_error, log_output, use_json
from hirag_dist.cli.main import INTERRUPTED_CODE, INTERRUPTED_MESSAGE, TERMINATED_CODE, exit_at_once
from hirag_dist.composition.logs import FORMAT_VARIABLE, configure_logging, is_json
from hirag_dist.errors import ConfigError, HiragError

COMMANDS = {  # command → "module" or "module.function" in this package, and its line of `hirag-dist --help`, in order
    "init": ("config.init", "Write a commented hirag.yaml."),
    "plan": ("index.plan", "Estimate calls, tokens, cost and time of an index. Makes no call."),
    "index": ("index", "Build or update an index of documents and publish it, or continue an interrupted build."),
    "add": ("index.add", "Add documents to an index and publish it."),
    "remove": ("remove", "Remove documents from an index and publish it without them."),
    "refresh": ("index.refresh", "Write the texts that updates have put off."),
    "watch": ("index.watch", "Follow a folder or an object-store prefix, and update the index as it changes."),
    "import": (
        "export.import_graph",
        "Import a graph that another tool extracted, build its hierarchy and publish an index.",
    ),
    "status": (
        "status",
        "Show an index: its last build, dead letters, snapshots, documents and cost.",
    ),
    "retry": (
        "index.retry",
        "Repeat the failed model calls (dead letters) of the last build and publish a new snapshot.",
    ),
    "query": ("query", "Ask a question of an index or of a running service."),
    "serve": ("serve", "Serve an index over gRPC, with an optional browser page."),
    "mcp": ("serve.mcp", "Serve an index to agents by the Model Context Protocol (MCP)."),
    "inspect": ("inspect", "Show layers, sparsity, communities, graph measures and cost of an index."),
    "eval": ("eval", "Evaluate retrieval and answers on your own questions."),
    "export": ("export", "Write GraphML, or Parquet tables with GraphRAG's names and columns."),
    "prune": ("remove.prune", "Remove old snapshots of an index and what was derived from them."),
    "simulate-llm": (
        "serve.simulate",
        "Simulate a language model behind an OpenAI-compatible endpoint, for tests and rehearsals.",
    ),
    "config": ("config", "Show or validate the effective configuration, or print its JSON Schema."),
    "doctor": ("doctor", "Check the installation, the configuration and the endpoints it names."),
}
FORMER_OPTIONS = {  # option of an earlier version, of all commands or of the named one → what takes its place
    "--all": "`hirag-dist status` shows the last build",
    "--answer-field": "name the field of --answers answer, response or prediction",
    "--answer-id-field": "name the field of --answers question_id",
    "--batch": "calls are sent one by one",
    "--by": "--cost shows the bill by stage",
    "--claims": "--answers has answers, whose claims a model lists",
    "--csv": "--json has the rows of the bill",
    "--document": "--documents --source PATH shows one",
    "--drop-rate": "--fail-rate and --hang-rate disturb calls",
    "--from": "entity_types and prompts of the configuration say what a domain needs",
    "--judge": "--set llm.roles.judge=ENDPOINT names the judge",
    "--judgements": "--answers has answers, which a model judges",
    "--latency-s": "--tokens-per-s says how fast an endpoint replies",
    "--log": "GET /stats has the counts of calls",
    "--max-faults-per-request": "--seed draws the faults of each attempt",
    "--no-require-complete": "an incomplete snapshot is published, unless --require-complete is given",
    "--no-prompt-cache": "no prompt counts as cached",
    "--plan": "`hirag-dist status` shows the dead letters that a retry asks again",
    "--poll": "--every is the time between two listings",
    "--prompt-cache": "no prompt counts as cached",
    "--storm-rate": "--rpm and --max-concurrent refuse calls with 429",
    "--system-field": "name the field of --answers method, system or mode",
    "--texts": "the page of `inspect --html` has no documents; that of `serve --http` has",
    "eval questions --questions": "--per-task is the number of questions of each task",
    "serve --verify": "--check-files checks the checksum of every file",
    "--unanswerable-types": "the field answerable of --questions says which questions have no answer",
}
FORMER_COMMANDS = {  # command of an earlier version → what does the same
    "bill": "hirag-dist status --cost",
    "demo": "python -m hirag_dist.demo",
    "docs": "hirag-dist status --documents",
    "drift": "hirag-dist inspect --drift",
    "token": "hirag-dist serve token NAME",
    "verify-removed": "hirag-dist remove ID --verify",
}


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    use_json("--json" in arguments)
    termination = _Termination()
    code = _run_app(_new_app(), arguments, termination)
    if code == INTERRUPTED_CODE:
        emit_error(INTERRUPTED_MESSAGE)
        return TERMINATED_CODE if termination.arrived else code
    return code


class _Termination:
    """SIGTERM as Ctrl-C: a command does at SIGTERM what it does at SIGINT, and only the exit code differs."""

    arrived = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Pass a SIGTERM on to the handler of SIGINT."""
        self.arrived = True
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)
        else:  # a shell starts background processes with SIGINT ignored
            raise KeyboardInterrupt


def _new_app() -> typer.Typer:
    """Return `hirag-dist` without commands. Each run has an app of its own, or commands would accumulate in it."""
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


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hirag-dist {__version__}")
        raise typer.Exit


def _common(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log progress on stderr."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    log_format: Literal["text", "json"] = typer.Option(
        "text",
        envvar=FORMAT_VARIABLE,
        help="Format of all lines on stderr, also of the processes that this one starts.",
    ),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    os.environ[FORMAT_VARIABLE] = log_format
    if is_json():
        log_output()
    configure_logging({"": logging.INFO if verbose else logging.WARNING})
    if debug:
        os.environ["HIRAG_DEBUG"] = "1"


def add_commands(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Add the command that the arguments name; if they name none, all commands with their line of help only.

    The modules of all commands together take seconds to import.
    """
    after = zip(["", *arguments], arguments, strict=False)  # "json" of `--log-format json` names no command
    named = next((each for option, each in after if not each.startswith("-") and option != "--log-format"), "")
    if named in COMMANDS:
        add_command(app, named)
        return
    if named in FORMER_COMMANDS:
        raise ConfigError(f"`hirag-dist {named}` is now `{FORMER_COMMANDS[named]}`")
    for name, (_, summary) in COMMANDS.items():
        app.command(name, help=summary)(lambda: None)


def add_command(app: typer.Typer, name: str) -> None:
    """Add a command: a function or a group of commands, by default of the same name as its module."""
    module, _, function = COMMANDS[name][0].partition(".")
    command = getattr(import_module(f"hirag_dist.cli.{module}"), function or module)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(flattened(command))


def _run_app(app: typer.Typer, arguments: Sequence[str], termination: _Termination) -> int:
    """Return the exit code of a command, after the message of an error."""
    try:
        add_commands(app, arguments)
        if signal.getsignal(signal.SIGINT) is exit_at_once:  # the imports are done
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if signal.getsignal(signal.SIGTERM) is exit_at_once:
            signal.signal(signal.SIGTERM, termination.handle)
        if "--json" in arguments:  # before parsing, so that a usage error is reported in JSON too
            claim_stdout()
        code = app(list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except HiragError as error:
        emit_error(str(error))
        if os.environ.get("HIRAG_DEBUG"):
            raise
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED_CODE
    except typer.TyperException as error:
        return _explain_usage(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if _was_interrupted(error):
            return INTERRUPTED_CODE
        if os.environ.get("HIRAG_DEBUG"):
            raise
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and not missing.startswith("hirag_dist"):
            package = missing.partition(".")[0]
            emit_error(f"the package {package} is not installed, and this command needs it: pip install hirag-dist")
            return 1
        emit_error(f"internal error: {type(error).__name__}: {error}; run with --debug and report what it prints")
        return 1


def _was_interrupted(error: BaseException | None) -> bool:
    """Return whether an error came from Ctrl-C: libraries turn it into another one while they are imported."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _explain_usage(error: typer.TyperException) -> int:
    """Print one line for a usage error, or the help if there were no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return 2
    option = getattr(error, "option_name", "")
    context = getattr(error, "ctx", None)  # typer does not export the class that has it
    path = getattr(context, "command_path", "hirag-dist")
    for former, instead in FORMER_OPTIONS.items():
        if option and f"{path} {option}".endswith(f" {former}"):
            emit_error(f"{option} is gone: {instead}")
            return 2
    emit_error(f"{error.format_message().rstrip('.')} (see `{path} --help`)")
    return 2


def flattened(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function as a command: a parameter whose type is a group of options stands for the options in it.

    The help lists the options of groups last.
    """
    groups: dict[str, type[Any]] = {}
    own: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for each in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(each.annotation) and isinstance(each.annotation, type):
            groups[each.name] = each.annotation
            shared += inspect.signature(each.annotation, eval_str=True).parameters.values()
        else:
            own.append(each)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]

    def command(**given: Any) -> None:
        use_json(bool(given.get("json")))
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        function(**given)

    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
