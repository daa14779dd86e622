"""Shape of a text file, byte by byte. In: a path. Out: column names and row count, or one error naming row and column.

DuckDB's CSV reader drops the rest of a file after a quote that is never closed, and accepts a stray delimiter at the
end of a row, both without an error. So the shape of a delimited file (RFC 4180: quotes doubled inside quoted values,
none inside bare ones) is checked here first, in numpy over blocks; the reader's row count must then agree.
"""

import codecs
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from auditcore.errors import DatasetError

BLOCK = 8 << 20
LONGEST_ROW = 64 << 20  # bytes; the reader is given the same limit
QUOTE, LF, CR, NUL = 34, 10, 13, 0
BOM = codecs.BOM_UTF8
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
}


@dataclass(frozen=True)
class Layout:
    """Shape of a delimited file: column names, data rows (blank lines left out)."""

    columns: tuple[str, ...]
    n_rows: int


def sha256(path: Path) -> str:
    """Hash of the file as it lies on disk (compressed or not), in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_gzip(path: Path) -> bool:
    """Tell by the first two bytes, not by the name."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the decompressed content without its byte order mark. Raises DatasetError on a broken or foreign file."""
    with gzip.open(path, "rb") if is_gzip(path) else path.open("rb") as file:
        first = True
        while True:
            try:
                block = file.read(BLOCK)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise DatasetError(f"{path}: the gzip file is broken or cut short ({error}).") from None
            if first:
                _refuse_foreign(path, block)
                block, first = block.removeprefix(BOM), False
                if not block:
                    raise DatasetError(f"{path}: the file is empty.")
            if not block:
                return
            yield block


def _refuse_foreign(path: Path, block: bytes) -> None:
    for magic, what in _MAGIC.items():
        if block.startswith(magic):
            raise DatasetError(f"{path}: this is {what}, not a text table; name its format, or save it as CSV.")
    if block.startswith(_UTF16):
        raise DatasetError(f"{path}: the text is UTF-16; save it as UTF-8.")


class Utf8:
    """Finds the first byte of a stream of blocks that no UTF-8 text can hold."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._seen = 0

    def feed(self, block: bytes, final: bool = False) -> tuple[int, str] | None:
        """Return the offset of the first bad byte in the whole stream and a sentence about it, or None."""
        held = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(block, final)
        except UnicodeDecodeError as error:
            byte = f"byte 0x{error.object[error.start]:02x}"
            return self._seen - held + error.start, f"is not UTF-8 text ({byte}); save the file as UTF-8"
        self._seen += len(block)
        return None


def check_lines(path: Path) -> None:
    """Check a line-based text file (JSON Lines) for encoding and NUL bytes; the error names the line."""
    utf8, lines, base = Utf8(), 0, 0
    for block in blocks(path):
        nul = block.find(b"\0")
        found = [(base + nul, "holds a NUL byte")] if nul >= 0 else []
        if bad := utf8.feed(block):
            found.append(bad)
        if found:
            offset, what = min(found)
            raise DatasetError(f"{path}: line {lines + block[: max(0, offset - base)].count(LF) + 1} {what}.")
        lines, base = lines + block.count(LF), base + len(block)
    if bad := utf8.feed(b"", final=True):
        raise DatasetError(f"{path}: line {lines + 1} {bad[1]}.")


def scan_delimited(path: Path, delimiter: str) -> Layout:
    """Check the whole file and return its layout. Raises DatasetError naming row (1 = first data row) and column."""
    scan, pending = _Scan(path, ord(delimiter)), b""
    # The last byte of a block waits for the next block: a quote is judged by the byte that follows it.
    for block in blocks(path):
        buffer = pending + block
        scan.feed(buffer[:-1], buffer[-1])
        pending = buffer[-1:]
    scan.feed(pending, ord(delimiter), final=True)
    return scan.finish()


class _Scan:
    """State between blocks: where we are, and what the first line said."""

    def __init__(self, path: Path, delimiter: int) -> None:
        self.path, self.delimiter = path, delimiter
        self.special = np.zeros(256, dtype=bool)
        self.special[[QUOTE, delimiter, LF, CR, NUL]] = True
        self.utf8 = Utf8()
        self.inside = 0  # 1 inside a quoted value
        self.before = delimiter  # the byte before this block; at both edges of the file a quote may stand
        self.base = 0  # offset of this block
        self.lines = 0  # line feeds so far, quoted ones too
        self.record_start = 0  # offset of the record that is open
        self.width = 0  # delimiters in it so far
        self.rows = 0  # data rows finished
        self.ending = 0  # 1 "\n", 2 "\r\n", 3 "\r"
        self.header: tuple[str, ...] = ()
        self.head = b""  # bytes of the first line until it is complete
        self.opened = (0, 0, 0)  # row, column, line of the quoted value that is open

    def feed(self, block: bytes, following: int, final: bool = False) -> None:
        """Check one block; `following` is the byte after it."""
        padded = np.frombuffer(bytes([self.before]) + block + bytes([following]), dtype=np.uint8)
        at = np.flatnonzero(self.special[padded[1:-1]])
        kind, before, after = padded[at + 1], padded[at], padded[at + 2]
        quote = kind == QUOTE
        inside = np.bitwise_xor.accumulate(quote.astype(np.uint8)) ^ np.uint8(self.inside)
        bare = ~quote & (inside == 0)
        # "\r\n" ends a record once, at its "\n".
        ends = bare & ((kind == LF) | ((kind == CR) & (after != LF)))
        part = _Part(block, at, kind, before, after, quote, inside, bare & (kind == self.delimiter), ends)
        if not self.header:
            self.head += block
        if not self.header and ends.any():
            first = int(at[np.argmax(ends)]) + 1
            self.header = self._columns(self.head[: len(self.head) - len(block) + first])
            self.ending = int(part.endings()[0])
        self._check(part, final)
        self._advance(part)

    def _check(self, part: "_Part", final: bool) -> None:
        """Raise for the first thing in the block that is wrong."""
        found: list[tuple[int, str]] = []
        bad = self.utf8.feed(part.block)
        if bad is None and final:
            bad = self.utf8.feed(b"", final=True)
        if bad is not None:
            found.append((bad[0] - self.base, bad[1]))
        closing = part.quote & (part.inside == 0) & ~self._may_touch(part.after)
        opening = part.quote & (part.inside == 1) & ~self._may_touch(part.before)
        texts = {
            "holds a NUL byte": part.kind == NUL,
            "is a quoted value with a quote inside that is not doubled, or without its closing quote": closing,
            "holds a quote inside a value that is not quoted; put the value in quotes and double the quote": opening,
        }
        found += [(int(part.at[np.argmax(mask)]), text) for text, mask in texts.items() if mask.any()]
        if found:
            offset, text = min(found)
            offset = max(0, offset)  # a letter may begin in the block before
            self._check_rows(part, offset)
            raise self._error(part, offset, text)
        self._check_rows(part, len(part.block))

    def _may_touch(self, neighbour: np.ndarray) -> np.ndarray:
        return (neighbour == self.delimiter) | (neighbour == LF) | (neighbour == CR) | (neighbour == QUOTE)

    def _check_rows(self, part: "_Part", limit: int) -> None:
        """Check the records that end before `limit`: number of values, line ending, length."""
        rows = part.records(self, limit)
        if self.header:
            wrong = (rows.width + 1 != len(self.header)) & ~rows.blank
            if wrong.any():
                k = int(np.argmax(wrong))
                raise self._row_error(
                    part, rows, k, f"has {_count(rows.width[k] + 1, 'value')}, the header has {len(self.header)}"
                )
        other = rows.ending != self.ending
        if other.any():
            text = "ends in another kind of line break than the first line; save the file with one kind"
            raise self._row_error(part, rows, int(np.argmax(other)), text)
        long = np.append(rows.stop - rows.start, self.base + len(part.block) - rows.next_start) > LONGEST_ROW
        if long.any():
            text = f"is longer than {LONGEST_ROW >> 20} MB: a quote may be missing"
            raise self._row_error(part, rows, int(np.argmax(long)), text)

    def _advance(self, part: "_Part") -> None:
        rows = part.records(self, len(part.block))
        if part.inside.size and part.inside[-1]:
            self.opened = self._opened(part, len(part.block))
        if self.header:
            counted = int((~rows.blank).sum())
            self.rows += counted - (1 if self.record_start == 0 and len(rows.width) else 0)
        self.width, self.record_start = rows.open_width, rows.next_start
        self.inside = int(part.inside[-1]) if part.inside.size else self.inside
        self.lines += part.block.count(b"\n")
        self.base += len(part.block)
        self.before = part.block[-1] if part.block else self.before

    def finish(self) -> Layout:
        """Close the last record."""
        if self.inside:
            row, column, line = self.opened
            raise DatasetError(
                f"{self.path}: {self._place(row, column, line)} opens a quoted value that is never closed."
            )
        if not self.header:
            self.header = self._columns(self.head)
        elif self.record_start < self.base:
            if self.width + 1 != len(self.header):
                what = (
                    f"has {_count(self.width + 1, 'value')}, the header has {len(self.header)}; is the file cut short?"
                )
                raise DatasetError(f"{self.path}: row {self.rows + 1} (line {self.lines + 1}) {what}")
            self.rows += 1
        if not self.rows:
            raise DatasetError(f"{self.path}: the file has a header and no rows.")
        return Layout(self.header, self.rows)

    def _columns(self, line: bytes) -> tuple[str, ...]:
        """Names of the header line. An unnamed column (an exported index) is called column_N."""
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x}"
            raise DatasetError(f"{self.path}: the header is not UTF-8 text ({byte}); save the file as UTF-8.") from None
        if not text.strip():
            raise DatasetError(f"{self.path}: the first line is blank; it must hold the column names.")
        mark = re.escape(chr(self.delimiter))
        values = re.findall(rf'(?:^|{mark})("(?:[^"]|"")*"|[^{mark}]*)', text)
        names = [v[1:-1].replace('""', '"') if v.startswith('"') and len(v) > 1 else v for v in values]
        names = [name.strip() or f"column_{k}" for k, name in enumerate(names, 1)]
        for k, name in enumerate(names):
            if name in names[:k]:
                first = names.index(name) + 1
                raise DatasetError(f"{self.path}: columns {first} and {k + 1} of the header are both named '{name}'.")
        others = [d for d in ";\t|," if d != chr(self.delimiter) and d in names[0]]
        if len(names) == 1 and others:
            shown = {"\t": "tabs (format: tsv)", ",": "commas (format: csv)"}.get(others[0], f"'{others[0]}'")
            fix = "name that format" if others[0] in "\t," else "save it with commas or tabs"
            raise DatasetError(f"{self.path}: the header is one single column that looks separated by {shown}; {fix}.")
        return tuple(names)

    def _opened(self, part: "_Part", limit: int) -> tuple[int, int, int]:
        """Row, column and line of the quoted value that is open at `limit` (offset in the block)."""
        starts = part.quote & (part.inside == 1) & (part.before != QUOTE) & (part.at < limit)
        if not starts.any():
            return self.opened
        return self._locate(part, int(part.at[np.flatnonzero(starts)[-1]]))

    def _locate(self, part: "_Part", offset: int) -> tuple[int, int, int]:
        """Data row (0 = header), column (0 = first) and line (1 = first) of an offset in the block."""
        rows = part.records(self, offset)
        counted = self.rows + int((~rows.blank).sum())
        # The header counts as a record, not as a row: before it is complete the row is 0.
        row = counted + 1 if self.record_start else counted
        return row, rows.open_width, self.lines + part.block[:offset].count(b"\n") + 1

    def _error(self, part: "_Part", offset: int, text: str) -> DatasetError:
        inside = part.inside[part.at < offset]
        quoted = bool(inside[-1]) if inside.size else bool(self.inside)
        place = self._opened(part, offset) if quoted else self._locate(part, offset)
        return DatasetError(f"{self.path}: {self._place(*place)} {text}.")

    def _row_error(self, part: "_Part", rows: "_Records", k: int, text: str) -> DatasetError:
        row, _, line = self._locate(part, int(rows.start[k] if k < len(rows.start) else rows.next_start) - self.base)
        return DatasetError(f"{self.path}: {'the header' if row == 0 else f'row {row}'} (line {line}) {text}.")

    def _place(self, row: int, column: int, line: int) -> str:
        name = f"column '{self.header[column]}'" if column < len(self.header) else f"column {column + 1}"
        return f"{'the header' if row == 0 else f'row {row}'}, {name} (line {line})"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class _Records:
    """Records that end in a block: offsets in the file, number of delimiters; and the record left open."""

    start: np.ndarray
    stop: np.ndarray
    width: np.ndarray
    ending: np.ndarray
    blank: np.ndarray
    open_width: int
    next_start: int


@dataclass(frozen=True)
class _Part:
    """The special bytes of one block: offsets, neighbours, and whether each is quoted."""

    block: bytes
    at: np.ndarray
    kind: np.ndarray
    before: np.ndarray
    after: np.ndarray
    quote: np.ndarray
    inside: np.ndarray
    delimiters: np.ndarray
    ends: np.ndarray

    def endings(self) -> np.ndarray:
        """Kind of each line break: 1 "\\n", 2 "\\r\\n", 3 "\\r"."""
        feed = self.kind[self.ends] == LF
        return np.where(feed, np.where(self.before[self.ends] == CR, 2, 1), 3)

    def records(self, scan: _Scan, limit: int) -> _Records:
        """Return the records that end before offset `limit` of the block."""
        ends = self.ends & (self.at < limit)
        seen = np.cumsum(self.delimiters & (self.at < limit))
        total = int(seen[-1]) if seen.size else 0
        upto = seen[ends]
        width = np.diff(upto, prepend=0)
        if width.size:
            width[0] += scan.width
        stop = self.at[ends] + scan.base
        start = np.concatenate(([scan.record_start], stop[:-1] + 1)).astype(np.int64)[: len(stop)]
        ending = self.endings()[: len(stop)]
        length = stop - start - (ending == 2)
        blank = (length == 0) & (len(scan.header) > 1)
        open_width = total - int(upto[-1]) if upto.size else scan.width + total
        next_start = int(stop[-1]) + 1 if stop.size else scan.record_start
        return _Records(start, stop, width, ending, blank, open_width, next_start)
