"""Entry point of `hirag-dist`. It imports built-in modules only, so that Ctrl-C works from the first moment."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

TYPE_CHECKING = False  # as of typing, which is not imported

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED_CODE = 130
_BUILDS = ("index", "add", "remove", "refresh", "retry", "import")
TERMINATED_CODE = 143
INTERRUPTED_MESSAGE = "interrupted; finished work is kept, run the same command again to continue"


def main() -> None:
    """Run the command line and exit with its code."""
    exit_on_signals()
    arguments = sys.argv[1:]
    if arguments[:1] and arguments[0] in _BUILDS and not {"--json", "--help", "-h"} & set(arguments) and os.isatty(2):
        os.write(2, f"hirag-dist {arguments[0]}: starting\n".encode())  # imports take seconds on a slow disk
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's other allocators keep what was freed
    atexit.register(gc.freeze)  # last of all: else the interpreter's end collects what the libraries hold, for 0.4 s
    from hirag_dist.cli._command_line import run

    code = run(arguments)
    exit_on_signals()
    sys.exit(code)


def exit_on_signals() -> None:
    """Let Ctrl-C and SIGTERM exit at once, unless the handler of Ctrl-C is another one than Python's."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, exit_at_once)
        signal.signal(signal.SIGTERM, exit_at_once)
    except ValueError:
        pass  # this is not the main thread


def exit_at_once(signum: int, frame: FrameType | None) -> None:
    """Exit with one line, during imports and at the end of the interpreter.

    There an exception could be caught or changed by a library.
    """
    if "--json" in sys.argv[1:]:
        os.write(1, f'{{"error": "{INTERRUPTED_MESSAGE}"}}\n'.encode())
    os.write(2, f"hirag-dist: {INTERRUPTED_MESSAGE}\n".encode())
    os._exit(TERMINATED_CODE if signum == signal.SIGTERM else INTERRUPTED_CODE)
