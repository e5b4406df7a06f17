"""Power cuts while an index is built, and after the command has ended: what is left is an index, and nothing is lost.

On an ext4 or XFS in a file: an index of half of the corpus is published; an update to the whole corpus is cut at some
numbers of files, and at some seconds after it has ended with exit code 0. After each cut the filesystem is mounted
again, its log is replayed, the index is asked, and the same command is given. A JSON line for each cut: whether the
index was readable, whether the command ended in the snapshot of an uncut run, and the calls paid twice.

    python -m benchmarks.power_cuts [--filesystem ext4 xfs] [--method copy shutdown abort] [--cuts 12] [--after 0 1 5]

Methods: `copy` stops the driver (SIGSTOP) and copies the file behind the mount; `shutdown` ends the filesystem at once,
its log unwritten (FS_IOC_SHUTDOWN); `abort` is an error of the disk, after which ext4 is read-only. Root needed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.build import CONFIG, start_simulator
from benchmarks.crash_images import abort, check_filesystem, copy_image, cut_power, make_image, mounted

_SETTINGS = "chunk_tokens: 200\nchunk_overlap_tokens: 10\n"


@dataclass
class Drill:
    """The files of one filesystem's cuts.

    Attributes:
        folder: for images and mounts, outside of them.
        corpora: of the first index, and of its update.
        config: of the builds.
        url: of the simulated endpoint.
        n_calls: of an uncut update.
    """

    folder: Path
    corpora: tuple[Path, Path]
    config: Path
    url: str
    n_calls: int = 0

    def command(self, corpus: Path, at: Path) -> list[str]:
        """Return the command that builds or updates the index in a mount."""
        command = [sys.executable, "-m", "hirag_dist", "index", str(corpus), "--index", f"{at}/index"]
        return [*command, "--config", str(self.config), "--executor", "inline", "--json"]

    def run(self, corpus: Path, at: Path) -> tuple[int, dict[str, Any], str]:
        """Run the command; return its exit code, its result and its log."""
        ended = subprocess.run(self.command(corpus, at), capture_output=True, text=True, check=False)
        report = json.loads(ended.stdout) if ended.stdout.startswith("{") else {}
        return ended.returncode, report, ended.stderr

    def start(self, at: Path) -> subprocess.Popen[str]:
        """Start the update."""
        return subprocess.Popen(
            self.command(self.corpora[1], at), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def calls(self) -> int:
        """Return how many calls the endpoint has answered."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats", timeout=10) as reply:
            return int(json.load(reply)["total"]["calls"])


def main() -> None:
    """Run the cuts that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filesystem", nargs="+", default=["ext4", "xfs"], choices=["ext4", "xfs"])
    parser.add_argument("--method", nargs="+", default=["copy", "shutdown", "abort"])
    parser.add_argument("--cuts", type=int, default=12, help="during the update, evenly over its files")
    parser.add_argument("--after", nargs="*", type=float, default=[0.0, 1.0, 5.0, 15.0, 30.0, 60.0], metavar="SECONDS")
    parser.add_argument("--folder", help="for the images; /dev/shm keeps them in memory")
    arguments = parser.parse_args()
    corpus = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
    for filesystem in arguments.filesystem:
        for method in arguments.method:
            if filesystem != "xfs" or method != "abort":
                for line in cuts(filesystem, method, corpus, arguments.cuts, arguments.after, arguments.folder):
                    case = {"benchmark": "power_cuts", "filesystem": filesystem, "way": method}
                    print(json.dumps(case | line), flush=True)


def cuts(
    filesystem: str, method: str, corpus: Path, n_cuts: int, after: Sequence[float], where: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each cut of one filesystem."""
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = Path(name)
        simulator, url = start_simulator()
        try:
            drill = Drill(folder, _corpora(folder, corpus), folder / "hirag.yaml", url)
            drill.config.write_text(CONFIG.format(url=url) + _SETTINGS, encoding="utf-8")
            before, expected, (first, last) = _prepared(drill, filesystem)
            for number in range(n_cuts):
                paid = drill.calls() + drill.n_calls
                n_files = first + round((number + 0.5) * (last - first) / n_cuts)
                yield _during(drill, method, n_files) | _checked(drill, before, expected, paid)
            if method != "abort":
                yield from _after(drill, method, before, expected, after)
        finally:
            simulator.terminate()
            simulator.communicate()


def _corpora(folder: Path, corpus: Path) -> tuple[Path, Path]:
    files = sorted(corpus.iterdir())
    half, whole = folder / "half", folder / "whole"
    for target, chosen in ((half, files[: len(files) // 2]), (whole, files)):
        target.mkdir()
        for file in chosen:
            shutil.copy(file, target)
    return half, whole


def _prepared(drill: Drill, filesystem: str) -> tuple[str, str, tuple[int, int]]:
    """Make the image with the first index; return its snapshot, that of an uncut update, and their numbers of files."""
    base = drill.folder / "base.img"
    make_image(filesystem, base)
    with mounted(base, drill.folder / "disk") as at:
        before = drill.run(drill.corpora[0], at)[1]["snapshot"]
        first = _n_files(at)
    shutil.copy(base, drill.folder / "uncut.img")
    with mounted(drill.folder / "uncut.img", drill.folder / "disk") as at:
        paid = drill.calls()
        expected = drill.run(drill.corpora[1], at)[1]["snapshot"]
        last = _n_files(at)
    drill.n_calls = drill.calls() - paid
    return before, expected, (first, last)


def _n_files(at: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(at / "index"))


def _during(drill: Drill, method: str, n_files: int) -> dict[str, Any]:
    """Cut a running update once the index has a number of files; leave `cut.img`."""
    image, cut = drill.folder / "disk.img", drill.folder / "cut.img"
    shutil.copy(drill.folder / "base.img", image)
    with mounted(image, drill.folder / "disk", "errors=remount-ro" if method == "abort" else "") as at:
        process = drill.start(at)
        while process.poll() is None and _n_files(at) < n_files:
            time.sleep(0.002)
        phase = _phase(at)
        said = ""
        if method == "copy":
            process.send_signal(signal.SIGSTOP)
            copy_image(image, cut)
        elif method == "shutdown":
            cut_power(at)
        else:
            abort(at)
            said = "".join(process.communicate()[1].strip().splitlines()[-1:])
        process.kill()
        if process.stderr is not None and not process.stderr.closed:
            process.communicate()
        ended = process.returncode
    if method != "copy":
        image.rename(cut)
    if method == "abort":
        check_filesystem(cut)
    line: dict[str, Any] = {"cut": "during", "files": n_files, "phase": phase}
    return line | ({"driver_exit": ended, "driver_said": said} if method == "abort" else {})


def _after(drill: Drill, method: str, before: str, expected: str, after: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Cut some seconds after an update has ended with exit code 0; what it published is served at once then."""
    image, cut = drill.folder / "disk.img", drill.folder / "cut.img"
    if method == "shutdown":
        for wait_s in after:
            shutil.copy(drill.folder / "base.img", image)
            with mounted(image, drill.folder / "disk") as at:
                code = drill.run(drill.corpora[1], at)[0]
                time.sleep(wait_s)
                cut_power(at)
            image.rename(cut)
            line = {"cut": "after", "at_s": wait_s, "exit_before": code}
            yield line | _checked(drill, expected, expected, drill.calls())
        return
    shutil.copy(drill.folder / "base.img", image)
    copies = []
    with mounted(image, drill.folder / "disk") as at:
        code = drill.run(drill.corpora[1], at)[0]
        ended = time.monotonic()
        for wait_s in after:
            time.sleep(max(ended + wait_s - time.monotonic(), 0))
            copies.append(drill.folder / f"cut-{wait_s}.img")
            copy_image(image, copies[-1])
    for wait_s, copied in zip(after, copies, strict=True):
        copied.rename(cut)
        line = {"cut": "after", "at_s": wait_s, "exit_before": code}
        yield line | _checked(drill, expected, expected, drill.calls())


def _checked(drill: Drill, served: str, expected: str, paid: int) -> dict[str, Any]:
    """Mount what was cut, ask the index, and give the command again.

    Args:
        drill: the files.
        served: the snapshot that has to be readable, or the expected one.
        expected: of the command.
        paid: the count of calls at the endpoint if none is paid twice; those in flight at the cut are.
    """
    with mounted(drill.folder / "cut.img", drill.folder / "after") as at:
        status = [sys.executable, "-m", "hirag_dist", "status", "--index", f"{at}/index", "--json"]
        asked = subprocess.run(status, capture_output=True, text=True, check=False)
        found = json.loads(asked.stdout) if asked.stdout.startswith("{") else {}
        code, report, said = drill.run(drill.corpora[1], at)
    (drill.folder / "cut.img").unlink()
    return {
        "readable": found.get("current") in (served, expected) and not found.get("fallback"),
        "status_exit": asked.returncode,
        "exit": code,
        "same_snapshot": report.get("snapshot") == expected,
        "made_again": len(report.get("repaired", ())),
        "paid_twice": drill.calls() - paid,
        "error": said.strip().splitlines()[-1] if code else "",
    }


def _phase(at: Path) -> str:
    """Return the stage that the build record names last."""
    with suppress(OSError, ValueError, IndexError, KeyError):
        record = json.loads((at / "index" / "build.json").read_bytes())
        return str(record["stages"][-1]["stage"]) if record["state"] == "running" else str(record["state"])
    return "before the first stage"


if __name__ == "__main__":
    os.environ |= {"NO_COLOR": "1", "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    main()
