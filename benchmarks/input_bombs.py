"""Peak memory of reading small files that hold far more than their size.

Each case is a generated file, read by the stage that a build reads with, in a process of its own that may map 12 GiB.
A JSON line each: the size of the file, peak memory beyond that of the process before it read (VmHWM; of the process
that reads PDFs as well), seconds, documents, and the reasons of what was not read.

    python -m benchmarks.input_bombs [CASE...]
"""

from __future__ import annotations

import argparse
import asyncio
import bz2
import io
import json
import lzma
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from hirag_dist.config.reading import ReadingConfig
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.inputs import read_options, source_table
from hirag_dist.indexing.stages.read import ReadDocuments

MIB = 1 << 20
MAPPED_BYTES = 12 << 30


def compressed(pieces: Iterable[bytes], kind: int = 31) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, kind)  # 31: gzip, 15: as in a PDF
    return b"".join(map(deflate.compress, pieces)) + deflate.flush()


def repeated(piece: bytes, times: int, *, head: bytes = b"", tail: bytes = b"") -> bytes:
    block = piece * max(1, MIB // len(piece))
    n_blocks = len(piece) * times // len(block)
    return compressed([head, *([block] * n_blocks), tail])


def parquet(tables: Iterable[pa.Table], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd", **options)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return bytes(sink.getvalue().to_pybytes())


def pdf(contents: list[bytes], n_pages: int) -> bytes:
    pages = [f"{3 + len(contents) + index % len(contents)} 0 R" for index in range(n_pages)]
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    objects.append(f"<< /Type /Pages /Kids [{' '.join(pages)}] /Count {n_pages} >>".encode())
    streams = [
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(each) + each + b"\nendstream" for each in contents
    ]
    objects += streams
    font = b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    box = b"/MediaBox [0 0 612 792]"
    objects += [
        b"<< /Type /Page /Parent 2 0 R %s /Contents %d 0 R %s >>" % (box, 3 + index, font)
        for index in range(len(contents))
    ]
    body, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n" % number + each + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(body))
    return body + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + trailer


def drawn(n_bytes: int) -> bytes:
    return compressed([b"BT /F1 1 Tf 9 9 Td ", *([b"(a)Tj " * 200_000] * (n_bytes // 1_200_000)), b"ET"], 15)


def one_text(size: int, rows: int, **options: Any) -> bytes:
    value = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    return parquet([pa.table({"text": value})], **options)


def long_lists(n_values: int) -> bytes:
    labels = pa.ListArray.from_arrays(pa.array([0, n_values], pa.int32()), pa.nulls(n_values, pa.string()))
    return parquet([pa.table({"text": ["x"], "labels": labels})])


def zipped(parts: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return file.getvalue()


def workbook(rows: bytes) -> bytes:
    """Return a workbook of one sheet with these rows."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main, package = kind.replace("officeDocument/2006/relationships", "spreadsheetml/2006/main"), "package/2006"
    types = f"{kind.partition('officeDocument')[0]}{package}/content-types"
    relations = f"{kind.partition('officeDocument')[0]}{package}/relationships"
    form = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    book = (
        f'<workbook xmlns="{main}" xmlns:r="{kind}"><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>'
    )
    link = '<Relationships xmlns="%s"><Relationship Id="r1" Type="%s/%s" Target="%s"/></Relationships>'
    return zipped(
        {
            "[Content_Types].xml": (
                f'<Types xmlns="{types}"><Default Extension="xml" ContentType="{form}.worksheet+xml"/>'
                f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
                f'<Override PartName="/xl/workbook.xml" ContentType="{form}.sheet.main+xml"/></Types>'
            ).encode(),
            "_rels/.rels": (link % (relations, kind, "officeDocument", "xl/workbook.xml")).encode(),
            "xl/workbook.xml": book.encode(),
            "xl/_rels/workbook.xml.rels": (link % (relations, kind, "worksheet", "worksheets/sheet1.xml")).encode(),
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>'.encode()
            + rows
            + b"</sheetData></worksheet>",
        }
    )


CASES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "Parquet, one text of 16 MB in 20,000 rows": ("a.parquet", lambda: one_text(16 * MIB, 20_000)),
    "Parquet, a text of 1 GB": ("a.parquet", lambda: parquet([pa.table({"text": ["x" * (1000 * MIB)]})])),
    "Parquet, 30 million empty rows": (
        "a.parquet",
        lambda: parquet(pa.table({"text": pa.nulls(10_000_000, pa.string())}) for _ in range(3)),
    ),
    "Parquet, a list of 300 million labels": ("a.parquet", lambda: long_lists(300_000_000)),
    "PDF, a page of 1.4 GB": ("a.pdf", lambda: pdf([drawn(1_400_000_000)], 1)),
    "PDF, a million pages": ("a.pdf", lambda: pdf([drawn(1_200_000)], 1_000_000)),
    "text.gz of 4 GB": ("a.txt.gz", lambda: repeated(b"All work and no play. ", 190_000_000)),
    "text.bz2 of 1 GB": ("a.txt.bz2", lambda: bz2.compress(b"x" * (1000 * MIB))),
    "text.xz of 1 GB": ("a.txt.xz", lambda: lzma.compress(b"x" * (1000 * MIB), preset=1)),
    "text.zst of 4 GB": (
        "a.txt.zst",
        lambda: b"".join([bytes(pa.Codec("zstd", 9).compress(b"x" * (1000 * MIB), asbytes=True))] * 4),
    ),
    "text.gz, 256 MB of line ends": ("a.txt.gz", lambda: repeated(b"\n", 255 * MIB, head=b"x\xff")),
    "text, 64 MB of line ends": ("a.txt", lambda: b"x\xff" + b"\n" * (63 * MIB)),
    "JSONL.gz, 4,000 texts of 1 MB": (
        "a.jsonl.gz",
        lambda: repeated(b'{"text": "' + b"x" * (MIB - 13) + b'"}\n', 4000),
    ),
    "JSONL.gz, 30 million lines": ("a.jsonl.gz", lambda: repeated(b'{"text": null}\n', 30_000_000)),
    "JSON.gz, 250 MB of objects": ("a.json.gz", lambda: repeated(b"{},", 87_000_000, head=b"[", tail=b"{}]")),
    "JSON, 60 MB of objects": ("a.json", lambda: b"[" + b'{"a":1},' * 7_500_000 + b"{}]"),
    "JSON, 60 million levels": ("a.json", lambda: b"[" * 60_000_000),
    "HTML.gz, 250 MB of elements": ("a.html.gz", lambda: repeated(b"<p>a", 62_000_000)),
    "HTML, 40 MB of elements": ("a.html", lambda: b"<p>a" * 10_000_000),
    "HTML, 40 MB of attributes": (
        "a.html",
        lambda: b"<p " + b"".join(b"a%d " % number for number in range(5_000_000)) + b">a",
    ),
    "CSV.gz, a field of 4 GB": ("a.csv.gz", lambda: repeated(b"x", 4000 * MIB, head=b'text\n"', tail=b'"\n')),
    "CSV, a row of 60 million lines": ("a.csv", lambda: b'text\n"' + b"x\n" * 60_000_000),
    "CSV, 30 million columns": ("a.csv", lambda: b"text," + b"a," * 30_000_000 + b"\nx\n"),
    "docx, 4 GB unpacked": ("a.docx", lambda: zipped({f"word/{at}.xml": bytes(MIB * 256) for at in range(16)})),
    "docx, 240 MB of paragraphs": (
        "a.docx",
        lambda: zipped({"word/document.xml": b"<w:p/>" * (40 * MIB), "[Content_Types].xml": b"<Types/>"}),
    ),
    "xlsx, 3 million rows": ("a.xlsx", lambda: workbook(b"<row><c><v>1</v></c><c><v>2</v></c></row>" * 3_000_000)),
    "xlsx, rows 16,384 cells wide": ("a.xlsx", lambda: workbook(b'<row><c r="XFD1"><v>1</v></c></row>' * 100_000)),
    "epub, a chapter of 200 MB of elements": (
        "a.epub",
        lambda: zipped(
            {
                "META-INF/container.xml": b'<c><rootfile full-path="a.opf"/></c>',
                "a.opf": b'<p><item id="a" href="a.html" media-type="text/html"/><itemref idref="a"/></p>',
                "a.html": b"<p>a" * (50 * MIB),
            }
        ),
    ),
    "eml, 100,000 parts": (
        "a.eml",
        lambda: (
            b"Subject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
            + b"--b\nContent-Type: text/plain\n\nx\n" * 100_000
            + b"--b--\n"
        ),
    ),
    "eml, 10,000 levels": (
        "a.eml",
        lambda: b"Subject: x\nMIME-Version: 1.0\n" + b"Content-Type: message/rfc822\n\n" * 10_000 + b"\nx",
    ),
    "Markdown, front matter of 20 MB": ("a.md", lambda: b"---\na: [" + b"b," * 10_000_000 + b"]\n---\nx"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="parts of names of cases; all without")
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        print(json.dumps(read(options.file)))
        return
    for name, (file, make) in CASES.items():
        if not options.cases or any(part in name for part in options.cases):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, file)
                path.write_bytes(make())
                print(json.dumps(measured(name, path)), flush=True)


def measured(name: str, path: Path) -> dict[str, Any]:
    row = {"benchmark": "input_bombs", "case": name, "file_bytes": path.stat().st_size}
    command = [sys.executable, "-m", "benchmarks.input_bombs", "--file", str(path)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
    except subprocess.TimeoutExpired:
        return row | {"failed": "more than 400 s"}
    if ended.returncode:
        return row | {"failed": (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:200]}
    return row | cast(dict[str, Any], json.loads(ended.stdout))


def read(path: str) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (MAPPED_BYTES, MAPPED_BYTES))
    before, started = peak_mb("/proc/self/status"), time.perf_counter()
    stage = ReadDocuments(read_options(ReadingConfig()))
    tables = asyncio.run(stage.run({"sources": source_table([path])}, cast(Services, None)))
    peak = peak_mb("/proc/self/status") - before
    reasons = Counter(tables["rejects"]["reason"].to_pylist())
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    for child in Path("/proc/self/task").glob("*/children"):
        children = max([children, *(peak_mb(f"/proc/{pid}/status") for pid in child.read_text().split())])
    return {
        "peak_mb": peak,
        "child_peak_mb": children,
        "seconds": round(time.perf_counter() - started, 1),
        "documents": tables["documents"].num_rows,
        "rejects": tables["rejects"].num_rows,
        "reasons": [reason for reason, _ in reasons.most_common(2)],
    }


def peak_mb(status: str) -> int:
    line = next(each for each in Path(status).read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    main()
