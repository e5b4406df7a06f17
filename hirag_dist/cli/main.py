"""Entry point of `hirag-dist`. It imports built-in modules only, so that Ctrl-C works from the first moment."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # signal itself imports enum, which takes milliseconds
import atexit
import gc
import os
import sys

TYPE_CHECKING = False  # as of typing, which is not imported

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED_CODE = 130
_BUILDS = ("index", "add", "remove", "refresh", "retry", "import", "demo")
INTERRUPTED_MESSAGE = "interrupted; finished work is kept, run the same command again to continue"


def main() -> None:
    """Run the command line and exit with its code."""
    _exit_on_interrupt()
    _announce(sys.argv[1:])
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's other allocators keep what was freed
    atexit.register(gc.freeze)  # last of all: else the interpreter's end collects what the libraries hold, for 0.4 s
    from hirag_dist.cli._command_line import run

    code = run(sys.argv[1:])
    _exit_on_interrupt()
    sys.exit(code)


def _announce(arguments: list[str]) -> None:
    """Print a line on a terminal before the imports of a build, which take seconds on a slow disk."""
    if arguments[:1] and arguments[0] in _BUILDS and not {"--json", "--help", "-h"} & set(arguments) and os.isatty(2):
        os.write(2, f"hirag-dist {arguments[0]}: starting\n".encode())


def _exit_on_interrupt() -> None:
    """Let Ctrl-C exit at once, unless its handler is another one than Python's."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:  # noqa: SIM105
            signal.signal(signal.SIGINT, exit_at_once)
        except ValueError:
            pass  # this is not the main thread


def exit_at_once(signum: int, frame: FrameType | None) -> None:
    """Exit with one line, during imports and at the end of the interpreter.

    There an exception could be caught or changed by a library.
    """
    if "--json" in sys.argv[1:]:
        os.write(1, f'{{"error": "{INTERRUPTED_MESSAGE}"}}\n'.encode())
    os.write(2, f"hirag-dist: {INTERRUPTED_MESSAGE}\n".encode())
    os._exit(INTERRUPTED_CODE)
