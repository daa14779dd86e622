"""A public corpus in; rows as every audit reads them out (id, text, member, group, where they come from), and a report.

Follows the authors' code of arXiv 2601.12104 (sequences of 128 words, drawn at random for members and non-members),
except that documents, not sequences, are drawn: two pieces of one document never stand on two sides.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from auditcore.datasets.corpora import CORPORA, HUB, files_of, read_documents, sha256_of
from auditcore.datasets.sequences import SIDES, Counts, Piece, Span, Spans, build, words
from auditcore.errors import DatasetError, SpecError
from auditcore.spec import CorpusSpec, DataSpec

VERSION = 1  # of what the rows of one corpus and one spec look like; a change makes cached rows anew
ROLES: dict[str, str | list[str]] = {"text": "text", "member": "member", "group": "group", "id": "id"}
NOTES = b"auditcore.notes"  # key in the Parquet file's metadata
SOURCE = b"auditcore.source"
MEMBER = {"members": True, "nonmembers": False, "validation": None}


@dataclass(frozen=True)
class Tokens:
    """How to cut by tokens: where each token of a text stands, and a name of the tokenizer (a hash)."""

    spans: Spans
    name: str


@dataclass(frozen=True)
class Imported:
    """Rows of a corpus. frame: id, text, member (boolean, empty = unknown), group, documents, piece, units."""

    frame: pd.DataFrame
    notes: list[str]
    source: dict[str, Any]  # file name, SHA-256, settings: what is needed to make the same rows again


def import_rows(data: DataSpec, tokens: Tokens | None = None, *, download: bool = False) -> Imported:
    """Make rows from the corpus at data.path as data.corpus says.

    tokens: needed for unit `tokens`. download: a hub id may be fetched. Raises DatasetError (file, column, too few
    documents) and SpecError (no tokenizer).
    """
    how = data.corpus
    if how is None:
        raise SpecError("data.corpus is missing: which corpus is it?")
    if how.unit == "tokens" and tokens is None:
        raise SpecError("corpus.unit: tokens needs a model, whose tokenizer counts them.")
    corpus = CORPORA[how.name]
    files = files_of(data.path, how.split, download=download)
    read = read_documents(how.name, files, format=data.format, clean=how.clean, max_rows=data.max_rows)
    sequences = how.sequences or corpus.sequences
    spans = words if how.unit == "words" or tokens is None else tokens.spans
    where = data.path if data.path.startswith(HUB) else Path(data.path).name
    made, counts = build(read.documents, how, sequences, spans, where)
    notes = [_read_note(corpus.title, where, counts, read.sha256), *read.notes, *_made_notes(how, sequences, counts)]
    if how.unit == "tokens":
        notes += _read_alone(made, how, spans)
    source = {"path": where, "sha256": read.sha256, "settings": _settings(data, tokens), "version": VERSION}
    return Imported(_frame(made, how), notes, source)


def write_rows(imported: Imported, path: Path) -> None:
    """Write rows as Parquet, notes and source in its metadata; the file is there whole or not at all."""
    table = pa.Table.from_pandas(imported.frame, preserve_index=False)
    more = {NOTES: json.dumps(imported.notes).encode(), SOURCE: json.dumps(imported.source, sort_keys=True).encode()}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **more}), temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written ({error.strerror or error}).") from None
    finally:
        temporary.unlink(missing_ok=True)


def rows_in(folder: Path, data: DataSpec, tokens: Tokens | None = None) -> DataSpec:
    """The same data as a plain file with roles: rows made once, kept in `folder` under a hash of all that decides them.

    A data spec without a corpus comes back as it is.
    """
    if data.corpus is None:
        return data
    files = files_of(data.path, data.corpus.split)
    decides = {"settings": _settings(data, tokens), "sha256": _sha256(files), "version": VERSION}
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]
    path = folder / f"{digest}.parquet"
    if not path.is_file():
        write_rows(import_rows(data, tokens), path)
    return DataSpec(path=str(path), roles=dict(ROLES), format="parquet")


def import_notes(path: Path) -> list[str]:
    """What an import counted, from the file it wrote; empty for any other file."""
    try:
        found = json.loads((pq.read_schema(path).metadata or {}).get(NOTES, b"[]"))
    except (OSError, ValueError):  # pyarrow's errors derive from ValueError
        return []
    return [str(note) for note in found] if isinstance(found, list) else []


def _sha256(files: Sequence[Path]) -> str:
    try:
        return sha256_of(files)
    except OSError as error:
        raise DatasetError(f"{files[0]}: cannot be read ({error.strerror or error}).") from None


def _settings(data: DataSpec, tokens: Tokens | None) -> dict[str, Any]:
    assert data.corpus is not None
    chosen = data.corpus.model_dump()
    chosen["sequences"] = chosen["sequences"] or CORPORA[data.corpus.name].sequences
    more = {"tokenizer": tokens.name} if tokens is not None and data.corpus.unit == "tokens" else {}
    return {**chosen, **more, "max_rows": data.max_rows, "format": data.format}


def _frame(made: dict[str, list[Piece]], how: CorpusSpec) -> pd.DataFrame:
    """All pieces in a seeded order that mixes the sides, so that the first rows of the file are a fair sample too."""
    pieces = [(piece, MEMBER[side]) for side in SIDES for piece in made[side]]
    order = np.random.default_rng([how.seed, 1]).permutation(len(pieces))
    mixed = [pieces[i] for i in order]
    return pd.DataFrame(
        {
            "id": pd.array([_id(how.name, piece.text) for piece, _ in mixed], dtype="str"),
            "text": pd.array([piece.text for piece, _ in mixed], dtype="str"),
            "member": pd.array([member for _, member in mixed], dtype="boolean"),
            "group": pd.array([piece.group for piece, _ in mixed], dtype="str"),
            "documents": pd.array(["; ".join(piece.documents) for piece, _ in mixed], dtype="str"),
            "piece": np.array([piece.number for piece, _ in mixed], dtype=np.int64),
            how.unit: np.array([piece.size for piece, _ in mixed], dtype=np.int64),
        }
    )


def _id(name: str, text: str) -> str:
    """A name made of the text: a row has the same one in every import, so that two runs pair what is equal only."""
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


# --- the report ---


def _read_note(title: str, where: str, counts: Counts, sha256: str) -> str:
    out = [f"{n:,} {what}" for n, what in ((counts.empty, "empty"), (counts.repeated, "repeated")) if n]
    left = f"; {' and '.join(out)} ones left out" if out else ""
    return f"{title}: {counts.documents:,} documents in {where} (SHA-256 {sha256[:12]}){left}."


def _made_notes(how: CorpusSpec, sequences: str, counts: Counts) -> list[str]:
    sides = counts.sides
    if sequences == "whole":
        made = f"{sum(sides.values()):,} documents as they are"
    else:
        made = f"{sum(sides.values()):,} sequences of {how.length} {how.unit} ({sequences})"
    chosen = f", {sides['validation']:,} of unknown membership to choose a checkpoint" if sides["validation"] else ""
    notes = [
        f"{made}: {sides['members']:,} members, {sides['nonmembers']:,} non-members{chosen}. Whole documents were "
        f"drawn (seed {how.seed}): no document stands on two sides."
    ]
    if counts.dropped:
        notes.append(
            f"{counts.dropped:,} of {counts.units:,} {how.unit} are in no sequence (ends of documents and remainders)."
        )
    if counts.spare:
        notes.append(f"{counts.spare:,} sequences were left out: a document gives at most {how.per_document:,}.")
    if counts.equal:
        notes.append(f"{counts.equal:,} sequences have the text of an earlier one and were left out.")
    if counts.too_short:
        notes.append(f"{counts.too_short:,} documents have fewer than {how.length} {how.unit} and gave no sequence.")
    if counts.unused:
        notes.append(f"{counts.unused:,} documents were not needed.")
    return notes


def _read_alone(made: dict[str, list[Piece]], how: CorpusSpec, spans: Callable[[str], Sequence[Span]]) -> list[str]:
    """A piece that begins inside a word may be read as other tokens than the document was."""
    lengths = [(piece.size, len(spans(piece.text))) for pieces in made.values() for piece in pieces]
    other = [now for then, now in lengths if now != then]
    if not other:
        return []
    return [f"{len(other):,} of {len(lengths):,} sequences read on their own have another number of tokens "
            f"(at most {max(other):,}); max_length cuts or keeps them as it does any row."]  # fmt: skip
