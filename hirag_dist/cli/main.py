"""Entry point of `hirag-dist`. It imports the standard library only, so that Ctrl-C works from the first moment."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from types import FrameType

INTERRUPTED_CODE = 130
INTERRUPTED_MESSAGE = "interrupted; finished work is kept, run the same command again to continue"


def main() -> None:
    """Run the command line and exit with its code."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_during_imports)
    atexit.register(gc.freeze)  # last of all: else the interpreter's end collects what the libraries hold, for 0.4 s
    from hirag_dist.cli._command_line import run

    sys.exit(run(sys.argv[1:]))


def exit_during_imports(signum: int, frame: FrameType | None) -> None:
    """Exit at once with one line. An exception inside an import could be caught or changed by the library."""
    if "--json" in sys.argv[1:]:
        os.write(1, f'{{"error": "{INTERRUPTED_MESSAGE}"}}\n'.encode())
    os.write(2, f"hirag-dist: {INTERRUPTED_MESSAGE}\n".encode())
    os._exit(INTERRUPTED_CODE)
