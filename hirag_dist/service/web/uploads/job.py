"""The upload of a service: files are received, planned, confirmed and added to the index. There is one at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import unicodedata
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from hirag_dist.errors import HiragError, InputError
from hirag_dist.service.web.options import UploadOptions
from hirag_dist.service.web.uploads.folder import UploadFolder, write_file

logger = logging.getLogger(__name__)
_LINE_BYTES = 1 << 22
_SEPARATORS = re.compile(r"[/\\]")
_MAX_BYTES = 200  # of a name; filesystems allow 255
_SEARCHED = re.compile(r"[*?\[\]:|<>\"]")  # globs, alternate streams, and what some filesystems refuse
State = Literal["empty", "collecting", "planning", "planned", "running", "cancelled", "failed", "done"]
_BUSY: tuple[State, ...] = ("planning", "running")


class UpdateProcess:
    """One run of the process. It ends when its standard input is closed, also if this process dies.

    Args:
        command: program and arguments.
        task: sent to it as one line of JSON.
        stop_s: seconds that it has to end after `cancel`; then it is killed.
    """

    def __init__(self, command: tuple[str, ...], task: Mapping[str, Any], stop_s: float) -> None:
        self._command = command
        self._task = task
        self._stop_s = stop_s
        self._process: asyncio.subprocess.Process | None = None
        self._cancelled = False
        self._killing: asyncio.Task[None] | None = None

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled

    async def run(self, on_message: Callable[[Mapping[str, Any]], None]) -> int:
        """Run the process; call `on_message` with each of its messages. Return its exit status."""
        pipe = asyncio.subprocess.PIPE
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C on a terminal stops the service, which stops this process
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(ConnectionError):  # it has ended: its exit status says so
                process.stdin.write(json.dumps(self._task).encode() + b"\n")
                await process.stdin.drain()
            if self._cancelled:
                self._end(process)
            async for line in process.stdout:
                on_message(json.loads(line))
            return await process.wait()
        finally:
            if process.returncode is None:
                _kill(process)
                await process.wait()
            if self._killing is not None:
                self._killing.cancel()

    def cancel(self) -> None:
        """Ask the process to end: a build keeps its state."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._process is not None:
            self._end(self._process)

    def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        self._killing = asyncio.create_task(self._kill_later(process))

    async def _kill_later(self, process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(self._stop_s)
        logger.warning("the update did not end within %g s and is killed", self._stop_s)
        _kill(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with its own processes


def safe_name(given: str) -> str:
    r"""Return a name for a file: without folders, control characters, leading dots, and signs that globs read.

    Raises:
        InputError: nothing is left of the name, or the readers do not know its type.

    >>> safe_name("../../etc/notes.md"), safe_name("C:\\My files\\Straße?.txt"), safe_name(".hidden.csv")
    ('notes.md', 'Straße_.txt', 'hidden.csv')
    """
    from hirag_dist.readers.open import FORMATS, split_name  # pyarrow, which the page does without

    name = _SEPARATORS.split(unicodedata.normalize("NFC", given))[-1]
    name = "".join(character for character in name if unicodedata.category(character)[0] != "C")
    name = _SEARCHED.sub("_", name).strip().lstrip(".").strip()
    if not name:
        raise InputError(f"{given[:80]!r} is no name of a file")
    stem, extension, _ = split_name(name)
    if extension not in FORMATS:
        raise InputError(f"{name}: files of type {extension} cannot be read; what can be read is {readable()}")
    ending = name[len(stem) :]
    return _cut(stem, _MAX_BYTES - len(ending.encode())) + ending


def readable() -> str:
    """Return the extensions that the readers know, for people."""
    from hirag_dist.readers.open import FORMATS

    return " ".join(extension for extension in FORMATS if extension)


def _cut(text: str, max_bytes: int) -> str:
    """Return the beginning of a text that fits, cut between characters."""
    return text.encode()[: max(max_bytes, 1)].decode("utf-8", "ignore")


class UploadConflict(HiragError):
    """The upload is in a state in which this cannot be done."""


class UploadJob:
    """The upload of a service, for all operators together.

    Args:
        options: folder, limits, and the command of the process that plans and updates.

    Raises:
        ConfigError: as `UploadFolder`.
    """

    def __init__(self, options: UploadOptions) -> None:
        self._options = options
        self._folder = UploadFolder(options)
        self._process: UpdateProcess | None = None
        self._running: asyncio.Task[None] | None = None
        self._receiving = 0
        self._clear()

    def _clear(self) -> None:
        self._state: State = "empty"
        self._upload: Path | None = None
        self._files: dict[str, int] = {}
        self._plan: Mapping[str, Any] | None = None
        self._plan_id = ""
        self._progress: Mapping[str, Any] = {}
        self._result: Mapping[str, Any] | None = None
        self._error = ""

    def status(self) -> dict[str, Any]:
        """Return the state of the upload, as JSON."""
        return {
            "state": self._state,
            "files": [{"name": name, "bytes": size} for name, size in self._files.items()],
            "plan": self._plan,
            "plan_id": self._plan_id,
            "progress": self._progress,
            "result": self._result,
            "error": self._error,
        }

    async def receive(self, given: str, chunks: AsyncIterator[bytes]) -> None:
        """Take a file; one of the same name is replaced, and a plan that was made is void.

        Raises:
            UploadConflict: an update runs.
            InputError: the name, type, size or number of files is refused.
            StoreError: it cannot be written.
        """
        self._refuse_if(*_BUSY)
        name = safe_name(given)
        if self._state == "done":
            self._clear()
        if name not in self._files and len(self._files) + self._receiving >= self._options.max_files:
            raise InputError(f"an upload has at most {self._options.max_files:,} files")
        if self._upload is None:
            self._upload = self._folder.begin()
        upload = self._upload
        self._receiving += 1
        try:
            size = await write_file(upload, name, chunks, self._room(name))
        finally:
            self._receiving -= 1
        if upload is not self._upload:
            raise UploadConflict("the upload was discarded")
        self._files[name] = size
        total = sum(self._files.values())
        if total > self._options.max_bytes:  # of files that arrived at the same time
            (upload / name).unlink(missing_ok=True)
            del self._files[name]
            raise InputError(f"an upload has at most {self._options.max_bytes:,} bytes")
        self._state, self._plan, self._plan_id, self._error = "collecting", None, "", ""

    def plan(self) -> None:
        """Begin to estimate the update; no model is called.

        Raises:
            UploadConflict: there are no files, or they are still arriving, or an update runs.
        """
        self._refuse_if(*_BUSY, "empty", "done")
        if self._receiving or self._upload is None:
            raise UploadConflict("files are still arriving")
        self._state, self._plan, self._plan_id, self._error = "planning", None, "", ""
        self._start_process("plan", self._upload)

    def start(self, plan_id: str, max_usd: float | None) -> None:
        """Begin the update that was planned.

        Args:
            plan_id: of the plan that was shown, so that nothing else is confirmed.
            max_usd: as --max-usd.

        Raises:
            UploadConflict: this is not the plan of the files, or an update runs.
        """
        self._refuse_if(*_BUSY)
        if self._state != "planned" or plan_id != self._plan_id or self._upload is None or self._receiving:
            raise UploadConflict("the files have changed since this plan, or it was started: plan again")
        self._upload = self._folder.confirm(self._upload)
        self._state, self._progress, self._error = "running", {}, ""
        self._start_process("add", self._upload, max_usd)

    def cancel(self) -> None:
        """Stop the plan or the update; the replies that were paid are kept, and planning again goes on."""
        if self._process is not None:
            self._process.cancel()

    def discard(self) -> None:
        """Remove the files of an upload that is not in the index; of one that is, forget the result.

        Raises:
            UploadConflict: an update runs.
        """
        self._refuse_if(*_BUSY)
        if self._upload is not None and self._state != "done":
            self._folder.discard(self._upload)
        self._clear()

    async def close(self) -> None:
        """Stop what runs, and release the folder."""
        self.cancel()
        if self._running is not None:
            await self._running
        self._folder.close()

    def _room(self, name: str) -> int:
        used = sum(size for other, size in self._files.items() if other != name)
        return min(self._options.max_file_bytes, self._options.max_bytes - used)

    def _refuse_if(self, *states: State) -> None:
        if self._state in states:
            why = {
                "planning": "the plan is being made",
                "running": "an update runs",
                "empty": "there are no files",
                "done": "these files are in the index",
            }
            raise UploadConflict(why[self._state])

    def _start_process(self, action: str, upload: Path, max_usd: float | None = None) -> None:
        options = self._options
        task = {"action": action, "index": options.index, "folder": str(upload), "max_usd": max_usd}
        self._process = UpdateProcess(options.command, task | {"payload": options.payload}, options.stop_s)
        self._running = asyncio.create_task(self._follow(self._process, upload))

    async def _follow(self, process: UpdateProcess, upload: Path) -> None:
        """Take the messages of the process; at its end, the last one is the outcome."""
        outcome: Mapping[str, Any] = {}

        def on_message(message: Mapping[str, Any]) -> None:
            nonlocal outcome
            if "progress" in message:
                self._progress = message["progress"]
            else:
                outcome = message

        try:
            status = await process.run(on_message)
        except Exception:
            logger.exception("the process of an upload failed")
            status = 1
        if outcome.get("result", {}).get("complete"):
            await asyncio.to_thread(self._folder.replace_earlier, upload)
        self._process = None
        match outcome:
            case {"plan": plan}:
                self._plan, self._plan_id, self._state = plan, uuid.uuid4().hex, "planned"
            case {"result": result}:
                self._result, self._state = result, "done"
            case _ if process.cancelled:
                self._state = "cancelled"
            case {"failed": why}:
                self._error, self._state = why, "failed"
            case _:
                self._error = f"the process ended with exit status {status}; the log of the service has details"
                self._state = "failed"
