"""The command line. In: arguments. Out: words on stdout, one clear message on stderr, and an exit code.

0 done; 2 an input the user can mend; 3 a verdict is over budget (--fail-over-budget); 4 a verdict is not within
budget (--require-within-budget); 130 interrupted.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from auditcore import decisions, findings, records, store, summary
from auditcore.cli import exported
from auditcore.cli.rows import add as add_rows
from auditcore.cli.terminal import say, short_verdicts, verdict_table
from auditcore.errors import AuditError, RunError, SpecError
from auditcore.findings import frontier as frontier_words
from auditcore.spec import AnySpec, dump_spec, load_spec
from auditcore.words import Sentence

FORMATS = ("html", "parquet", "csv", "duckdb")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never lets a traceback of a known error through."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command is not _run:
            _require_one_process()
        return int(arguments.command(arguments) or 0)
    except AuditError as error:
        say(f"Error: {error}", sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        say("Interrupted; what was finished is kept.", sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # a folder that cannot be written, a disk that is full
        say(f"Error: {error.filename or 'a file'}: {error.strerror or error}.", sys.stderr)
        return 2


def _require_one_process() -> None:
    from auditcore.jobs import together

    if together.several():
        raise RunError("Several processes were started together; they train kind surfacelora, all else takes one.")


def _run(arguments: argparse.Namespace) -> int:
    return _audit(load_spec(arguments.spec), arguments)


def _vectors(arguments: argparse.Namespace) -> int:
    """An audit of vectors the user has, without a spec file."""
    return _audit(exported.spec_of(arguments), arguments)


def _audit(spec: AnySpec, arguments: argparse.Namespace) -> int:
    from auditcore import jobs
    from auditcore.jobs import together

    if arguments.dry_run:
        say(jobs.plan(spec).to_text())
        return 0
    together.require_one(spec)
    if together.number() > 0:
        together.follow(spec)
        return 0
    run = _resumable(arguments, dump_spec(spec)) if arguments.resume else None
    if run is None:
        run = store.create_run(dump_spec(spec), Path(arguments.out) if arguments.out else None)
    if run.status != "done":
        jobs.execute(run, echo=say)
    else:
        together.dismiss(spec)
        if arguments.resume:
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
        say(f"Continuing run {run.id}.")
    return run


def _gate(run: store.Run, arguments: argparse.Namespace) -> int:
    verdicts = set(run.read("verdicts", ["verdict"])["verdict"]) if run.has("verdicts") else set()
    # One of many attackers may be over budget by chance: the run is only where the corrected verdict says so.
    if arguments.fail_over_budget and summary.run_verdict(run) == "over budget":
        say("Over budget.", sys.stderr)
        return 3
    if arguments.require_within_budget and verdicts != {"within budget"}:
        say("Not every verdict is within budget.", sys.stderr)
        return 4
    return 0


def _list(_: argparse.Namespace) -> None:
    runs = store.list_runs()
    if runs.empty:
        say(f"No runs in {store.home()}. Start one with: python -m auditcore demo")
        return
    say(runs[["run_id", "kind", "status", "created", "model"]].fillna("").to_string(index=False))


def _show(arguments: argparse.Namespace) -> None:
    _show_run(store.open_run(arguments.run))


def _show_run(run: store.Run) -> None:
    manifest = run.manifest
    say(f"\nRun {run.id} ({run.kind}): {run.status}")
    if manifest.get("message"):
        say(manifest["message"])
    for warning in summary.warnings(run):
        say(f"Warning: {warning}")
    for note in manifest.get("data", {}).get("notes", []):
        say(f"Note: {note}")
    if run.has("verdicts"):
        verdicts = run.read("verdicts")
        shown = short_verdicts(verdicts)
        say(verdict_table(shown))
        if len(shown) < len(verdicts):
            say(f"Of {len(verdicts):,} lines the strongest of each label, artifact and defence; export has them all.")
    for sentence in _findings(run):
        say(f"\n{''.join(sentence)}")
    for problem in records.problems(run):
        say(f"Warning: {problem}")
    lines = summary.record_lines(run)
    if lines:
        say("\nOn record:")
        for time, sentence in lines:
            say(f"  {time}  {''.join(sentence)}")
    claim = manifest.get("claim", {})
    if claim:
        say(f"\n{claim.get('audited', '')}\n{claim.get('not_audited', '')}")
    say(f"\nRun folder: {run.path}")


def _findings(run: store.Run) -> list[Sentence]:
    """What was found, and which rates so few non-members cannot show."""
    found = [summary.finding(run), *summary.giveaway_sentences(run), *summary.vector_sentences(run)]
    if run.kind == "membership" and run.has("attack_metrics"):
        found += findings.unresolved_notes(run.read("attack_metrics"))
    if run.has("blind"):
        found.append(findings.blind_sentence(run.read("blind")))
    if (counted := summary.subjects(run)) is not None:
        found.append(findings.subjects_finding(*counted))
    found += summary.checkpoint_sentences(run)
    found += summary.baseline_findings(run) + summary.curve_findings(run)
    found += summary.defence_findings(run) + summary.text_findings(run)
    return [sentence for sentence in found if sentence]


def _cancel(arguments: argparse.Namespace) -> None:
    from auditcore import jobs

    run = store.open_run(arguments.run)
    jobs.cancel(run)
    say(f"Run {run.id}: {run.status}")


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
    say("Declared: " + frontier_words.declaration_words(declaration.record()) + ".")
    say("".join(frontier_words.selection_sentence(seen.selection, declaration)))
    if arguments.dry_run:
        say("Nothing was recorded and no test row was read (--dry-run).")
        return 0
    if run.readonly:
        _show_run(run)
        return _gate(run, arguments)
    found = lock.lock(run, declaration, arguments.by or records.me(), others)
    if found.run is None:
        say("No checkpoint meets the budget; the declaration is on record and the test rows stay sealed.")
        return 3 if arguments.fail_over_budget else 4 if arguments.require_within_budget else 0
    if lock.pending(found.run):
        if found.run.status in store.ACTIVE:
            raise RunError(f"Run {found.run.id} is being worked on; its test rows are read there.")
        jobs.execute(found.run, echo=say)
    _show_run(found.run)
    return _gate(found.run, arguments)


def _names(value: str | None) -> tuple[str, ...] | None:
    """Names separated by commas, or None where the option was not given."""
    return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())


def _classify(arguments: argparse.Namespace) -> None:
    from auditcore.jobs.classify import classify

    result = classify(store.open_run(arguments.run), arguments.text, arguments.attack, arguments.fpr)
    say(result.to_string(index=False))


def _export(arguments: argparse.Namespace) -> None:
    from auditcore.report import export
    from auditcore.report.files import SUFFIXES

    run = store.open_run(arguments.run)
    out = Path(arguments.out) if arguments.out else Path(f"{run.id}{SUFFIXES[arguments.format]}")
    say(f"Wrote {export(run, arguments.format, out).absolute()}")


def _demo(arguments: argparse.Namespace) -> int:
    from auditcore.demo import demo

    for run in demo(echo=say):
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
    exported.add(vectors)
    for audit in (run, vectors):
        audit.add_argument("--out", metavar="DIR", help="run folder (default: a new one in AUDIT_HOME or ./runs)")
        audit.add_argument("--resume", action="store_true", help="continue an unfinished run of the same spec")
        audit.add_argument("--dry-run", action="store_true", help="rows, tokens, time, disk and power; nothing is run")
        audit.add_argument("--fail-over-budget", action="store_true", help="exit 3 when a verdict is over budget")
        audit.add_argument(
            "--require-within-budget", action="store_true", help="exit 4 unless all verdicts are within budget"
        )

    add_rows(command)
    command("list", _list, "list the runs")
    for name, function, words in (("show", _show, "show a run's verdicts"), ("cancel", _cancel, "stop a working run")):
        command(name, function, words).add_argument("run", metavar="RUN")

    classify = command("classify", _classify, "was this text trained on? with a finished membership run's threshold")
    classify.add_argument("run", metavar="RUN")
    classify.add_argument("text", metavar="TEXT|FILE", help="a text, a .txt file, or a table with the run's columns")
    default = "default: the run's strongest at that rate that can judge a new text (recall, lira and spv cannot)"
    classify.add_argument("--attack", help=default)
    accused = "share of non-members falsely accused, as a fraction (default 0.01, which is 1 percent)"
    classify.add_argument("--fpr", type=float, default=0.01, help=accused)

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
    export.add_argument(
        "--format",
        choices=FORMATS,
        required=True,
        help="html: the report; csv, parquet: a zip with one file per table; duckdb: one database",
    )
    export.add_argument(
        "--out",
        metavar="FILE",
        help="where to write it, ending in .html, .zip (csv, parquet) or .duckdb (default: RUN.html, RUN.csv.zip, "
        "RUN.parquet.zip or RUN.duckdb in the working directory)",
    )

    command("demo", _demo, "a small audit of both kinds on the bundled model and data, under 5 minutes")
    return parser


__all__ = ["FORMATS", "main"]
