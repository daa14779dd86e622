"""The commands about rows. In: arguments. Out: what a file holds; rows made from a corpus; licensed notes counted."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from auditcore.cli import exported
from auditcore.cli.terminal import say
from auditcore.errors import AuditError, SpecError, did_you_mean
from auditcore.spec import CLINICAL, CORPORA, ROLES, SEQUENCES, UNITS, DataSpec, parse_data


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `check` and `import` to the parser. command: makes a sub-parser from a name, a function and a help text."""
    checks = command("check", check, "check a data file")
    checks.add_argument("data", metavar="DATA")
    checks.add_argument("--role", action="append", default=[], metavar="name=column", help=f"one of {', '.join(ROLES)}")
    checks.add_argument("--model", metavar="SOURCE", help="count tokens with this model's tokenizer")
    checks.add_argument("--template", help='the text of a row, as in "{title}. {description}"')
    checks.add_argument("--max-length", type=int, default=512, metavar="TOKENS")

    imports = command("import", import_, "make rows from a corpus that lies on this machine; look at licensed notes")
    imports.add_argument("name", metavar="CORPUS", help=", ".join([*CORPORA, *CLINICAL]))
    imports.add_argument(
        "path", metavar="PATH", help="CSV, JSON Lines, Parquet or text file, a folder, or hub:owner/name"
    )
    imports.add_argument("--out", metavar="ROWS.parquet", help="required; licensed notes are never copied")
    imports.add_argument("--admissions", metavar="FILE", help="mimic_iv_bhc: MIMIC-IV's admissions.csv.gz")
    imports.add_argument("--notes", metavar="FILE", help="mimic_iv_bhc: MIMIC-IV-Note's discharge.csv.gz")
    imports.add_argument("--race-table", metavar="FILE.yaml", help="an edited copy of the table of recorded race")
    imports.add_argument("--sequences", help="; ".join(f"{k}: {v}" for k, v in SEQUENCES.items()))
    imports.add_argument("--unit", help="; ".join(f"{k}: {v}" for k, v in UNITS.items()))
    imports.add_argument("--length", type=int, help="units in a sequence (default 128)")
    imports.add_argument("--members", type=int, metavar="N", help="default: half of the documents")
    imports.add_argument("--nonmembers", type=int, metavar="N")
    imports.add_argument("--validation", type=int, metavar="N", help="sequences of unknown membership (default 0)")
    imports.add_argument("--per-document", type=int, metavar="N", help="sequences of one document at most")
    imports.add_argument("--split", metavar="WORD", help="of a folder: files whose name holds this word, as in train")
    imports.add_argument("--seed", type=int, metavar="N")
    imports.add_argument("--max-rows", type=int, metavar="N", help="read the first rows only")
    imports.add_argument("--format", choices=("auto", "csv", "tsv", "jsonl", "parquet"), default="auto")
    imports.add_argument("--model", metavar="SOURCE", help="whose tokens are counted, with --unit tokens")
    imports.add_argument("--clean", action="store_true", help="ag_news: undo HTML entities and backslashes")
    imports.add_argument("--keep-spacing", action="store_true", help="words: keep white space as it is written")
    imports.add_argument("--download", action="store_true", help="fetch a hub id; without it nothing is fetched")


def check(arguments: argparse.Namespace) -> int:
    from auditcore.datasets import checks, portrait, roles, tables
    from auditcore.datasets.guess import Guess, refused

    mapped = _roles(arguments.role)
    if Path(arguments.data).suffix.lower() in exported.ARRAYS:
        if mapped:
            raise SpecError(f"{arguments.data}: holds vectors and no columns; roles are those of the file with labels.")
        exported.describe(arguments.data, {})
        return 0
    table = tables.open_table(arguments.data)
    named = dict(mapped)
    guesses = roles.guess_roles(table)
    rest = {role: guess for role, guess in guesses.items() if _free(role, guess.column, named)}
    mapped |= {role: guess.column for role, guess in rest.items()}
    if rest:
        say(f"{'Other roles' if named else 'Roles'} were guessed; set them with --role name=column:")
    for role, guess in rest.items():
        say(f"  {role} = {guess.column} ({guess.reason})")
    taken = guesses | {role: Guess(str(column), "named") for role, column in named.items()}
    for note in refused(table, taken):
        say(f"Warning: {note}")
    tokenizer = None
    if arguments.model:
        from auditcore.lm.load import tokenizer_file

        tokenizer = tokenizer_file(arguments.model)
    vectors = table.format == "parquet" and exported.describe(arguments.data, mapped)
    main = next((role for role in ("messages", "prompt") if role in mapped), "text")
    template = arguments.template or f"{{{main}}}"
    if arguments.template is None and main not in mapped:
        if not vectors:
            raise SpecError(_no_text(table, mapped))
        template = None
    data = DataSpec(path=arguments.data, roles=mapped)
    report = checks.check(data, template, arguments.max_length, tokenizer)
    say(report.to_text())
    if not report.errors and ("label" in mapped or "member" in mapped):
        say(portrait.portrait(data, template, tokenizer).to_text())
    return AuditError.exit_code if report.errors else 0


def _free(role: str, column: str, named: dict[str, str | list[str]]) -> bool:
    """Whether a guess may stand beside the roles a user named: another role, another column, no second text."""
    used = {c for value in named.values() for c in ([value] if isinstance(value, str) else value)}
    texts = ("messages", "prompt", "text")
    second = (role in texts and any(t in named for t in texts)) or (role == "target" and "text" in named)
    return role not in named and column not in used and not second


def _no_text(table: Any, mapped: dict[str, str | list[str]]) -> str:
    """Which columns there are, and how one of them is named as the text of a row."""
    used = {c for value in mapped.values() for c in ([value] if isinstance(value, str) else value)}
    free = next((name for name in table.readable if name not in used), "COLUMN")
    columns = ", ".join(list(table.columns)[:20]) + (", ..." if len(table.columns) > 20 else "")
    return (
        f"{table.path}: no column is named, or looks like, the text of a row. Its columns: {columns}. Name one, as in "
        f"--role text={free} (or prompt=, messages=), or put a text together: --template '{{{free}}} ...'."
    )


def _roles(pairs: Sequence[str]) -> dict[str, str | list[str]]:
    roles: dict[str, str | list[str]] = {}
    for pair in pairs:
        role, separator, column = pair.partition("=")
        if not separator or not column:
            raise SpecError(f"--role {pair}: write it as name=column, as in --role text=note.")
        if role not in ROLES:
            raise SpecError(f"--role {pair}: '{role}' is not a role.{did_you_mean(role, ROLES)}")
        columns = column.split(",")
        roles[role] = columns if len(columns) > 1 else column
    return roles


def import_(arguments: argparse.Namespace) -> None:
    from auditcore.datasets import importers

    if arguments.name in CLINICAL:
        _clinical(arguments)
        return
    if arguments.out is None:
        raise SpecError("--out ROWS.parquet is missing: where shall the rows go?")
    out = Path(arguments.out)
    if out.suffix.lower() != ".parquet":
        raise SpecError(f"--out {out}: rows are written as Parquet; call the file {out.with_suffix('.parquet')}.")
    fields = (
        "name",
        "sequences",
        "unit",
        "length",
        "members",
        "nonmembers",
        "validation",
        "per_document",
        "split",
        "seed",
    )
    chosen = {k: v for k in fields if (v := getattr(arguments, k)) is not None}
    chosen |= {"clean": arguments.clean, "keep_spacing": arguments.keep_spacing}
    data = parse_data(
        {"path": arguments.path, "corpus": chosen, "max_rows": arguments.max_rows, "format": arguments.format}
    )
    tokens = None
    if data.corpus is not None and data.corpus.unit == "tokens" and arguments.model:
        from auditcore.jobs.corpus import tokens_of

        tokens = tokens_of(arguments.model)
    imported = importers.import_rows(data, tokens, download=arguments.download)
    importers.write_rows(imported, out)
    for note in imported.notes:
        say(note)
    say(
        f"Wrote {out}. In a spec:\n  data: {{path: {out}, roles: {{text: text, member: member, group: group, id: id}}}}"
    )


def _clinical(arguments: argparse.Namespace) -> None:
    """Read licensed notes and say what the joins found. No row is written: a run reads them from where they lie."""
    from auditcore.datasets.clinical import read_clinical

    if arguments.out is not None:
        raise SpecError(
            f"{arguments.name}: licensed notes are not copied; leave --out out and name the folder in a spec."
        )
    how = {k: v for k in ("admissions", "notes", "race_table", "seed") if (v := getattr(arguments, k)) is not None}
    clinical = {"source": arguments.name, **how}
    made = read_clinical(parse_data({"path": arguments.path, "clinical": clinical, "max_rows": arguments.max_rows}))
    for note in made.notes:
        say(note)
    say(f"{len(made.frame):,} rows. In a spec:")
    pairs = ", ".join(f"{k}: {v}" for k, v in clinical.items())
    say(f"  data: {{path: {arguments.path}, clinical: {{{pairs}}}}}")
