"""The command line. In: arguments. Out: words on stdout, one clear message on stderr, and an exit code.

0 done; 2 an input the user can mend; 3 a verdict is over budget (--fail-over-budget); 4 a verdict is not within
budget (--require-within-budget); 130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import pandas as pd

from auditcore import decisions, findings, records, store, summary
from auditcore.errors import AuditError, RunError, SpecError, did_you_mean
from auditcore.findings import frontier as frontier_words
from auditcore.spec import (
    CLINICAL,
    CORPORA,
    PROBES,
    ROLES,
    SEQUENCES,
    UNITS,
    AnySpec,
    DataSpec,
    dump_spec,
    load_spec,
    parse_data,
    parse_spec,
)
from auditcore.words import Sentence, harmless

FORMATS = ("html", "parquet", "csv", "duckdb")
MOST_LINES = 40  # of verdicts in a terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never lets a traceback of a known error through."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments) or 0)
    except AuditError as error:
        _say(f"Error: {error}", sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        _say("Interrupted; what was finished is kept.", sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head`
        sys.stderr.close()
        return 0


def _say(text: str, to: TextIO | None = None) -> None:
    """Print at once. Names and classes come from a file: a terminal must not obey what they hold."""
    print(harmless(text), file=to, flush=True)


def _run(arguments: argparse.Namespace) -> int:
    return _audit(load_spec(arguments.spec), arguments)


def _vectors(arguments: argparse.Namespace) -> int:
    """An audit of vectors the user has, without a spec file."""
    rows = arguments.rows or arguments.file
    if Path(rows).suffix.lower() in (".npy", ".safetensors"):
        raise SpecError(f"{rows}: holds no labels; name the file that does with --rows, in the order of the vectors.")
    given = {"group": arguments.group, "split": arguments.split, "id": arguments.id, "prompt": arguments.text}
    given["metadata"] = arguments.metadata.split(",") if arguments.metadata else None
    roles = {"label": arguments.label.split(","), **{k: v for k, v in given.items() if v is not None}}
    chosen = {"probes": arguments.probe, "budget": arguments.budget, "seed": arguments.seed}
    raw = {
        "kind": "vectors",
        "vectors": {"path": arguments.file, "column": arguments.column},
        "data": {"path": rows, "roles": roles},
        **{k: v for k, v in chosen.items() if v is not None},
    }
    return _audit(parse_spec(raw, "vectors"), arguments)


def _audit(spec: AnySpec, arguments: argparse.Namespace) -> int:
    from auditcore import jobs

    if arguments.dry_run:
        _say(jobs.plan(spec).to_text())
        return 0
    run = _resumable(arguments, dump_spec(spec)) if arguments.resume else None
    if run is None:
        run = store.create_run(dump_spec(spec), Path(arguments.out) if arguments.out else None)
    if run.status != "done":
        jobs.execute(run, echo=_say)
    elif arguments.resume:
        jobs.require_unchanged(run)
    _show_run(run)
    return _gate(run, arguments)


def _resumable(arguments: argparse.Namespace, spec: dict) -> store.Run | None:
    """The run to continue: the one in --out, else the newest unfinished one of the same spec; None to start anew."""
    from auditcore import jobs

    if arguments.out:
        if not (Path(arguments.out) / store.MANIFEST).exists():
            return None
        run = store.open_run(arguments.out)
        if run.manifest["spec"] != spec:
            raise SpecError(f"{arguments.out}: was started with another spec; use another folder.")
    else:
        runs = store.list_runs()
        unfinished = runs[~runs["status"].isin(["done", "broken", *store.ACTIVE]) & ~runs["readonly"]]
        same = [r for r in map(store.Run, map(Path, unfinished["path"])) if r.manifest["spec"] == spec]
        if not same:
            return None
        run = same[0]
    if run.status != "done":
        jobs.prepare_resume(run)
        _say(f"Continuing run {run.id}.")
    return run


def _gate(run: store.Run, arguments: argparse.Namespace) -> int:
    verdicts = set(run.read("verdicts", ["verdict"])["verdict"]) if run.has("verdicts") else set()
    if arguments.fail_over_budget and "over budget" in verdicts:
        _say("Over budget.", sys.stderr)
        return 3
    if arguments.require_within_budget and verdicts != {"within budget"}:
        _say("Not every verdict is within budget.", sys.stderr)
        return 4
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from auditcore.datasets import checks, portrait, roles, tables

    mapped = _roles(arguments.role)
    table = tables.open_table(arguments.data)
    if not mapped:
        guesses = roles.guess_roles(table)
        mapped = {role: guess.column for role, guess in guesses.items()}
        _say("Roles were guessed; set them with --role name=column:")
        for role, guess in guesses.items():
            _say(f"  {role} = {guess.column} ({guess.reason})")
    tokenizer = None
    if arguments.model:
        from auditcore.lm.load import tokenizer_file

        tokenizer = tokenizer_file(arguments.model)
    main = next((role for role in ("messages", "prompt") if role in mapped), "text")
    template = arguments.template or f"{{{main}}}"
    data = DataSpec(path=arguments.data, roles=mapped)
    report = checks.check(data, template, arguments.max_length, tokenizer)
    _say(report.to_text())
    if not report.errors and ("label" in mapped or "member" in mapped):
        _say(portrait.portrait(data, template, tokenizer).to_text())
    return 0


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


def _import(arguments: argparse.Namespace) -> None:
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
        _say(note)
    _say(
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
        _say(note)
    _say(f"{len(made.frame):,} rows. In a spec:")
    pairs = ", ".join(f"{k}: {v}" for k, v in clinical.items())
    _say(f"  data: {{path: {arguments.path}, clinical: {{{pairs}}}}}")


def _list(_: argparse.Namespace) -> None:
    runs = store.list_runs()
    if runs.empty:
        _say(f"No runs in {store.home()}. Start one with: python -m auditcore demo")
        return
    _say(runs[["run_id", "kind", "status", "created", "model"]].fillna("").to_string(index=False))


def _show(arguments: argparse.Namespace) -> None:
    _show_run(store.open_run(arguments.run))


def _show_run(run: store.Run) -> None:
    manifest = run.manifest
    _say(f"\nRun {run.id} ({run.kind}): {run.status}")
    if manifest.get("message"):
        _say(manifest["message"])
    for warning in manifest.get("warnings", []):
        _say(f"Warning: {warning}")
    for note in manifest.get("data", {}).get("notes", []):
        _say(f"Note: {note}")
    if run.has("verdicts"):
        verdicts = run.read("verdicts")
        shown = short_verdicts(verdicts)
        _say(verdict_table(shown))
        if len(shown) < len(verdicts):
            _say(f"Of {len(verdicts):,} lines the strongest of each label, artifact and defence; export has them all.")
    for sentence in _findings(run):
        _say(f"\n{''.join(sentence)}")
    for problem in records.problems(run):
        _say(f"Warning: {problem}")
    lines = summary.record_lines(run)
    if lines:
        _say("\nOn record:")
        for time, sentence in lines:
            _say(f"  {time}  {''.join(sentence)}")
    claim = manifest.get("claim", {})
    if claim:
        _say(f"\n{claim.get('audited', '')}\n{claim.get('not_audited', '')}")
    _say(f"\nRun folder: {run.path}")


def _findings(run: store.Run) -> list[Sentence]:
    """What was found, and which rates so few non-members cannot show."""
    found = [summary.finding(run), *summary.giveaway_sentences(run), *summary.vector_sentences(run)]
    if run.kind == "membership" and run.has("attack_metrics"):
        found += findings.unresolved_notes(run.read("attack_metrics"))
    if (counted := summary.subjects(run)) is not None:
        found.append(findings.subjects_finding(*counted))
    found += summary.checkpoint_sentences(run)
    found += summary.baseline_findings(run) + summary.defence_findings(run) + summary.text_findings(run)
    return [sentence for sentence in found if sentence]


def short_verdicts(verdicts: pd.DataFrame, most: int = MOST_LINES) -> pd.DataFrame:
    """Lines for a terminal: all, or where they are many the strongest of each place and those over all attackers."""
    if len(verdicts) <= most:
        return verdicts
    ranked = verdicts.sort_values("value", ascending=False, kind="stable", na_position="last")
    keep = ranked.drop_duplicates(["attribute", "artifact", "defence"]).index
    return verdicts[verdicts.index.isin(keep) | (verdicts["attacker"] == "all")]


def verdict_table(verdicts: pd.DataFrame) -> str:
    """Lay out the verdicts table for a terminal."""

    def signed(value: float) -> str:
        return f"{value:+.3f}" if value == value else "-"

    together = verdicts["kind"].map({"vectors": "all artifacts"}).fillna("training rows")
    shown = pd.DataFrame(
        {
            "attribute": verdicts["attribute"].fillna(""),
            "measured": verdicts["artifact"].fillna(together),
            "layer": [None if pd.isna(v) else str(int(v)) for v in verdicts["layer"]],  # None where lines differ
            "defence": verdicts["defence"] if (verdicts["defence"].fillna("none") != "none").any() else None,
            "attacker": verdicts["attacker"],
            "split": verdicts["split"],
            "above chance": [signed(v) for v in verdicts["value"].astype(float)],
            "90 % interval": [
                f"{signed(low)} to {signed(high)}"
                for low, high in zip(verdicts["low"].astype(float), verdicts["high"].astype(float), strict=True)
            ],
            "budget": verdicts["budget"],
            "subjects": verdicts["n_subjects"].astype(object),
            "verdict": verdicts["verdict"],
        }
    )
    empty = [c for c in shown.columns if shown[c].isna().all() or (shown[c] == "").all()]
    return shown.drop(columns=empty).fillna("").to_string(index=False)


def _cancel(arguments: argparse.Namespace) -> None:
    from auditcore import jobs

    run = store.open_run(arguments.run)
    jobs.cancel(run)
    _say(f"Run {run.id}: {run.status}")


def _reveal(arguments: argparse.Namespace) -> int:
    """Declare, lock, read the test rows of the chosen checkpoint once, and tell what they said."""
    from auditcore import jobs
    from auditcore.jobs import lock

    run = store.open_run(arguments.run)
    others = [store.open_run(name) for name in arguments.also]
    if not decisions.has_checkpoints(run):
        raise RunError(f"Run {run.id} ({run.kind}) has no measured checkpoints; only runs of checkpoints are revealed.")
    declaration = decisions.merge(
        decisions.declared(run),
        budget=arguments.budget,
        attributes=_names(arguments.attribute),
        artifacts=_names(arguments.artifact),
        attackers=_names(arguments.attacker),
        select_on=arguments.select_on,
    )
    seen = decisions.view([run, *others], declaration)
    _say("Declared: " + frontier_words.declaration_words(declaration.record()) + ".")
    _say("".join(frontier_words.selection_sentence(seen.selection, declaration)))
    if arguments.dry_run:
        _say("Nothing was recorded and no test row was read (--dry-run).")
        return 0
    if run.readonly:
        _show_run(run)
        return _gate(run, arguments)
    found = lock.lock(run, declaration, arguments.by or records.me(), others)
    if found.run is None:
        _say("No checkpoint meets the budget; the declaration is on record and the test rows stay sealed.")
        return 3 if arguments.fail_over_budget else 4 if arguments.require_within_budget else 0
    if lock.pending(found.run):
        if found.run.status in store.ACTIVE:
            raise RunError(f"Run {found.run.id} is being worked on; its test rows are read there.")
        jobs.execute(found.run, echo=_say)
    _show_run(found.run)
    return _gate(found.run, arguments)


def _names(value: str | None) -> tuple[str, ...] | None:
    """Names separated by commas, or None where the option was not given."""
    return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())


def _classify(arguments: argparse.Namespace) -> None:
    from auditcore.jobs.classify import classify

    result = classify(store.open_run(arguments.run), arguments.text, arguments.attack, arguments.fpr)
    _say(result.to_string(index=False))


def _export(arguments: argparse.Namespace) -> None:
    from auditcore.report import export

    run = store.open_run(arguments.run)
    out = Path(arguments.out) if arguments.out else Path(f"{run.id}.{arguments.format}")
    _say(f"Wrote {export(run, arguments.format, out)}")


def _demo(arguments: argparse.Namespace) -> int:
    from auditcore.demo import demo

    for run in demo(echo=_say):
        _show_run(run)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m auditcore", description="What does a language model give away?")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function, words: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=words, description=words)
        sub.set_defaults(command=function)
        return sub

    run = command("run", _run, "run an audit described by a YAML or JSON file")
    run.add_argument("spec", metavar="SPEC.yaml")
    vectors = command("vectors", _vectors, "audit vectors you have already, without a model and without a spec file")
    vectors.add_argument("file", metavar="FILE", help="Parquet (a column of lists), npy or safetensors")
    vectors.add_argument("--label", required=True, metavar="COLUMN", help="sensitive label; several with commas")
    vectors.add_argument("--rows", metavar="DATA", help="CSV, JSON Lines or Parquet with the labels (default: FILE)")
    vectors.add_argument("--column", metavar="NAME", help="column or tensor that holds the vectors")
    vectors.add_argument("--id", metavar="COLUMN", help="name of each row, by which a Parquet FILE is joined to DATA")
    vectors.add_argument("--group", metavar="COLUMN", help="subject of each row")
    vectors.add_argument("--split", metavar="COLUMN", help="bal_train, bal_val or bal_test (default: drawn here)")
    vectors.add_argument("--text", metavar="COLUMN", help="the text a vector was made from, read as a baseline")
    vectors.add_argument("--metadata", metavar="COLUMN,...", help="what a vector's recipient holds anyway: a baseline")
    vectors.add_argument("--probe", action="append", choices=PROBES, help="attacker; default linear and mlp")
    vectors.add_argument("--budget", type=float, metavar="GAP", help="accepted gap above chance (default 0.025)")
    vectors.add_argument("--seed", type=int)
    for audit in (run, vectors):
        audit.add_argument("--out", metavar="DIR", help="run folder (default: a new one in AUDIT_HOME or ./runs)")
        audit.add_argument("--resume", action="store_true", help="continue an unfinished run of the same spec")
        audit.add_argument("--dry-run", action="store_true", help="rows, tokens, time, disk and power; nothing is run")
        audit.add_argument("--fail-over-budget", action="store_true", help="exit 3 when a verdict is over budget")
        audit.add_argument(
            "--require-within-budget", action="store_true", help="exit 4 unless all verdicts are within budget"
        )

    check = command("check", _check, "check a data file")
    check.add_argument("data", metavar="DATA")
    check.add_argument("--role", action="append", default=[], metavar="name=column", help=f"one of {', '.join(ROLES)}")
    check.add_argument("--model", metavar="SOURCE", help="count tokens with this model's tokenizer")
    check.add_argument("--template", help='the text of a row, as in "{title}. {description}"')
    check.add_argument("--max-length", type=int, default=512, metavar="TOKENS")

    imports = command("import", _import, "make rows from a corpus that lies on this machine; look at licensed notes")
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

    command("list", _list, "list the runs")
    for name, function, words in (("show", _show, "show a run's verdicts"), ("cancel", _cancel, "stop a working run")):
        command(name, function, words).add_argument("run", metavar="RUN")

    classify = command("classify", _classify, "was this text trained on? with a finished membership run's threshold")
    classify.add_argument("run", metavar="RUN")
    classify.add_argument("text", metavar="TEXT|FILE", help="a text, a .txt file, or a table with the run's columns")
    classify.add_argument("--attack", default="ez")
    classify.add_argument("--fpr", type=float, default=0.01, help="share of non-members falsely accused (default 0.01)")

    reveal = command("reveal", _reveal, "lock the choice of a checkpoint, then read its test rows once")
    reveal.add_argument("run", metavar="RUN")
    reveal.add_argument("--also", action="append", default=[], metavar="RUN", help="choose among this run's too")
    reveal.add_argument("--budget", type=float, help="above chance (default: the run's)")
    reveal.add_argument("--attribute", metavar="NAME,...", help="sensitive labels that count (default: all)")
    reveal.add_argument("--artifact", metavar="NAME,...", help="artifacts that count (default: those targeted)")
    reveal.add_argument("--attacker", metavar="NAME,...", help="probes that count (default: all)")
    reveal.add_argument("--select-on", choices=tuple(frontier_words.RULES), help="default: point, the paper's rule")
    reveal.add_argument("--by", metavar="NAME", help="who declares (default: the user of this machine)")
    reveal.add_argument("--dry-run", action="store_true", help="what would be chosen; nothing is recorded")
    reveal.add_argument("--fail-over-budget", action="store_true", help="exit 3 over budget, or when none meets it")
    reveal.add_argument("--require-within-budget", action="store_true", help="exit 4 unless within budget")

    export = command("export", _export, "write a run as one file")
    export.add_argument("run", metavar="RUN")
    export.add_argument("--format", choices=FORMATS, required=True)
    export.add_argument("--out", metavar="FILE")

    command("demo", _demo, "a small audit of both kinds on the bundled model and data, under 5 minutes")
    return parser


__all__ = ["FORMATS", "RunError", "main", "verdict_table"]
