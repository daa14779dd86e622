"""Documents in; sequences of one length out, members and non-members never from one document, every loss counted."""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditcore.errors import DatasetError
from auditcore.spec import CorpusSpec

Span = tuple[int, int]
Spans = Callable[[str], Sequence[Span]]  # a text -> where each of its units begins and ends, in characters
SIDES = ("validation", "members", "nonmembers")  # in the order in which documents are given out

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Document:
    """One text of a corpus, with a name that its source gives it."""

    id: str
    text: str


@dataclass(frozen=True)
class Piece:
    """One sequence: its text, the documents it comes from, which of the first one's pieces it is (from 1), its size."""

    text: str
    documents: tuple[str, ...]
    number: int
    size: int

    @property
    def group(self) -> str:
        """The subject: pieces of one document share it. Joined documents stand in one piece only."""
        return self.documents[0]


@dataclass
class Counts:
    """What became of the documents and of their units (words or tokens)."""

    documents: int = 0
    empty: int = 0
    repeated: int = 0  # equal to an earlier document
    too_short: int = 0  # gave no sequence
    unused: int = 0  # not needed, since enough sequences were made
    units: int = 0  # in the documents that were used
    kept: int = 0  # of them in sequences
    spare: int = 0  # sequences above per_document, left out
    equal: int = 0  # sequences with the text of an earlier one, left out
    sides: dict[str, int] = field(default_factory=dict)  # sequences of each side

    @property
    def dropped(self) -> int:
        """Units of used documents that are in no sequence."""
        return self.units - self.kept


def words(text: str) -> list[Span]:
    """Where each run of characters without white space begins and ends."""
    return [match.span() for match in _WORD.finditer(text)]


def build(
    documents: Sequence[Document], how: CorpusSpec, sequences: str, spans: Spans, where: str = "corpus"
) -> tuple[dict[str, list[Piece]], Counts]:
    """Draw whole documents for each side (seeded), then make sequences inside it.

    Returns the pieces of each side of SIDES and the counts. A side with a number asked for takes documents until it has
    that many sequences; the others share what is left, half and half. Empty documents and repetitions (equal but for
    white space) are left out first, and so is every sequence whose text is that of an earlier one: no text stands on
    two sides.
    Raises DatasetError when a side does not get what it was asked for.
    """
    counts = Counts(documents=len(documents))
    usable = _distinct(documents, counts)
    order = iter(np.random.default_rng(how.seed).permutation(len(usable)).tolist())
    queue = (usable[i] for i in order)
    make = MAKERS[sequences]
    wanted = {side: getattr(how, side) for side in SIDES}
    made: dict[str, list[Piece]] = {}
    seen: set[bytes] = set()
    for side in (s for s in SIDES if wanted[s] is not None):
        made[side] = _take(make(queue, how, spans, counts), wanted[side], seen, counts)
        if len(made[side]) < wanted[side]:
            raise DatasetError(_too_few(where, how, side, made))
    rest = [side for side in SIDES if side not in made]
    left = list(queue)
    for number, side in enumerate(rest):
        share = left[number * len(left) // len(rest) : (number + 1) * len(left) // len(rest)]
        made[side] = _take(make(iter(share), how, spans, counts), None, seen, counts)
        if not made[side]:
            raise DatasetError(_too_few(where, how, side, made))
    counts.unused = 0 if rest else len(left)
    counts.sides = {side: len(made[side]) for side in SIDES}
    counts.kept = sum(piece.size for pieces in made.values() for piece in pieces)
    return made, counts


def _distinct(documents: Sequence[Document], counts: Counts) -> list[Document]:
    seen: set[bytes] = set()
    usable = []
    for document in documents:
        folded = " ".join(document.text.split())
        if not folded:
            counts.empty += 1
        elif _seen(folded, seen):
            counts.repeated += 1
        else:
            usable.append(document)
    return usable


def _seen(text: str, seen: set[bytes]) -> bool:
    """Whether this text was there before; remembered by its hash, since a corpus may fill much of the memory."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if digest in seen:
        return True
    seen.add(digest)
    return False


def _take(pieces: Iterator[Piece], wanted: int | None, seen: set[bytes], counts: Counts) -> list[Piece]:
    """As many new sequences as are wanted (None: all)."""
    taken: list[Piece] = []
    while wanted is None or len(taken) < wanted:
        piece = next(pieces, None)
        if piece is None:
            break
        if _seen(piece.text, seen):
            counts.equal += 1
            continue
        taken.append(piece)
    return taken


def _too_few(where: str, how: CorpusSpec, side: str, made: dict[str, list[Piece]]) -> str:
    asked, total = getattr(how, side), sum(map(len, made.values()))
    of = f"of {how.length} {how.unit}"
    if asked is None:
        what = f"the documents that are left give no sequence {of} for the {side}"
    else:
        before = f" after those before them ({total - len(made[side]):,})" if total > len(made[side]) else ""
        what = f"{asked:,} {side} were asked for, but the corpus gives only {len(made[side]):,} sequences {of}{before}"
    return f"{where}: {what}. Ask for fewer, or shorten corpus.length."


# --- one function per kind of sequences; documents are used up one after another ---


def _text(document: Document, spans: Sequence[Span], how: CorpusSpec) -> str:
    if how.unit == "words" and not how.keep_spacing:
        return " ".join(document.text[start:end] for start, end in spans)
    return document.text[spans[0][0] : spans[-1][1]] if spans else ""


def _whole(queue: Iterator[Document], how: CorpusSpec, spans: Spans, counts: Counts) -> Iterator[Piece]:
    for document in queue:
        size = len(spans(document.text))
        counts.units += size
        yield Piece(document.text, (document.id,), 1, size)


def _cut(queue: Iterator[Document], how: CorpusSpec, spans: Spans, counts: Counts) -> Iterator[Piece]:
    for document in queue:
        units = _apart(spans(document.text))
        counts.units += len(units)
        counts.too_short += len(units) < how.length
        numbers = _some(document, len(units) // how.length, how)
        counts.spare += len(units) // how.length - len(numbers)
        for number in numbers:
            inside = units[number * how.length : (number + 1) * how.length]
            yield Piece(_text(document, inside, how), (document.id,), number + 1, how.length)


def _some(document: Document, n: int, how: CorpusSpec) -> list[int]:
    """Which of its n pieces a document gives: all, or `per_document` of them, wherever they stand."""
    if how.per_document is None or n <= how.per_document:
        return list(range(n))
    rng = np.random.default_rng([how.seed, zlib.crc32(document.id.encode())])  # by its name: whatever came before it
    return sorted(rng.choice(n, how.per_document, replace=False).tolist())


def _last(queue: Iterator[Document], how: CorpusSpec, spans: Spans, counts: Counts) -> Iterator[Piece]:
    for document in queue:
        units = _apart(spans(document.text))
        counts.units += len(units)
        if len(units) < how.length:
            counts.too_short += 1
            continue
        yield Piece(_text(document, units[-how.length :], how), (document.id,), 1, how.length)


def _joined(queue: Iterator[Document], how: CorpusSpec, spans: Spans, counts: Counts) -> Iterator[Piece]:
    # The joined text is cut, not its parts: so the gap counts as the tokens it is.
    gap = " " if how.unit == "words" and not how.keep_spacing else "\n"
    texts: list[str] = []
    names: list[str] = []
    size = 0
    for document in queue:
        units = spans(document.text)
        if not units:
            continue
        texts.append(document.text.strip())
        names.append(document.id)
        size += len(units)
        if size < how.length:
            continue
        whole = Document(names[0], gap.join(texts))
        units = _apart(spans(whole.text))
        if len(units) < how.length:  # two tokens became one where the documents meet
            size = len(units)
            continue
        counts.units += len(units)
        yield Piece(_text(whole, units[: how.length], how), tuple(names), 1, how.length)
        texts, names, size = [], [], 0
    counts.units += size


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Spans that do not overlap: tokens that share a character give it to the first of them."""
    apart, end = [], 0
    for start, stop in spans:
        apart.append((max(start, end), max(stop, end)))
        end = max(stop, end)
    return apart


MAKERS = {"whole": _whole, "joined": _joined, "cut": _cut, "last": _last}
