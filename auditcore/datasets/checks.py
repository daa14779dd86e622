"""What is in a data set, and what is wrong with it. In: a data spec and a template. Out: findings and small tables.

Counting runs in SQL over the file and over one number per text, so that texts never come into Python one by one; only
token lengths read texts, of at most 10,000 rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from auditcore.datasets import roles
from auditcore.datasets.conversations import parse_messages
from auditcore.datasets.importers import import_notes
from auditcore.datasets.labels import ambiguous, parse_label
from auditcore.datasets.lengths import measure, quantiles, sampled_lengths
from auditcore.datasets.roles import Plan, plan_columns, shared_subjects
from auditcore.datasets.splits import conflicting_subjects
from auditcore.datasets.tables import read_table
from auditcore.errors import DatasetError
from auditcore.spec import SPLITS, DataSpec

Severity = Literal["error", "warning", "info"]
FEW = 10  # subjects of a class below which a warning is given
MANY = 20  # classes above which a column hardly is a label
SHOWN = 20  # duplicate groups listed


@dataclass(frozen=True)
class Finding:
    """One sentence for the reader. An error stops an audit, a warning weakens it."""

    severity: Severity
    text: str


@dataclass(frozen=True)
class Report:
    """tables: columns, splits, classes, members, duplicates, lengths; only those with something in them. No texts."""

    path: str
    n_rows: int
    findings: list[Finding] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def errors(self) -> list[str]:
        """Texts of the findings that stop an audit."""
        return [finding.text for finding in self.findings if finding.severity == "error"]

    def to_text(self) -> str:
        """Findings, gravest first, then the tables: for a terminal."""
        order = {"error": 0, "warning": 1, "info": 2}
        lines = [f"{self.path}: {self.n_rows:,} rows"]
        for finding in sorted(self.findings, key=lambda f: order[f.severity]):
            lines.append(f"  {finding.severity + ':':<9}{finding.text}")
        for name, table in self.tables.items():
            lines += ["", name, table.to_string(index=False, na_rep="-")]
        return "\n".join(lines)


class _Findings(list[Finding]):
    def say(self, severity: Severity, text: str) -> None:
        self.append(Finding(severity, text))


def check(
    data: DataSpec, template: str | None, max_length: int | None, tokenizer_file: str | Path | None = None
) -> Report:
    """Look at the whole file and say what an audit would meet.

    template: None for rows that need no text, since their vectors come from a file; each is then a subject of its own.
    max_length: None where no model reads the text, so that no length matters.
    `tokenizer_file`: a tokenizer.json, to count tokens against max_length (in a sample of at most 10,000 rows); without
    it, words are counted. What makes the file unreadable is raised (DatasetError); what makes a role or a label
    unusable is a finding of severity error.
    """
    plan = plan_columns(data, template)
    out, tables = _Findings(), {"columns": _columns(plan)}
    for note in import_notes(plan.table.path) if plan.table.format == "parquet" else []:
        out.say("info", note)
    n_rows = min(plan.table.n_rows, data.max_rows or plan.table.n_rows)
    if n_rows < plan.table.n_rows:
        out.say("info", f"Only the first {n_rows:,} of {plan.table.n_rows:,} rows are used (max_rows).")
    texts = pd.DataFrame({"code": range(n_rows)}) if template is None else measure(plan, template, n_rows)
    frame, broken = _frame(plan, data, texts["code"], n_rows, out)
    if template is not None:
        _check_texts(plan, texts, n_rows, out)
        if "messages" in plan.roles:
            _check_conversations(plan, n_rows, out)
        tables["duplicates"] = _check_duplicates(frame, texts, plan, out)
    if "split" in plan.roles.keys() - broken:
        tables["splits"] = _check_splits(frame, plan, out)
    if "member" in plan.roles.keys() - broken:
        tables["members"] = _check_members(frame, out)
    tables["classes"] = _check_labels(frame, plan, out)
    if template is not None and max_length is not None:
        tokenizer = None if tokenizer_file is None else Path(tokenizer_file)
        tables["lengths"] = _check_lengths(
            sampled_lengths(plan, template, n_rows, tokenizer), n_rows, max_length, tokenizer is not None, out
        )
    return Report(data.path, n_rows, list(out), {name: table for name, table in tables.items() if len(table)})


def _columns(plan: Plan) -> pd.DataFrame:
    used: dict[str, list[str]] = {}
    for role, column in plan.roles.items():
        used.setdefault(column, []).append(role)
    for label in plan.labels:
        used.setdefault(label, []).append("label")
    for column in plan.metadata:
        used.setdefault(column, []).append("metadata")
    for column in plan.fields.values():
        if not used.get(column):
            used.setdefault(column, []).append("template")
    lines = [(name, kind, ", ".join(used.get(name, []))) for name, kind in plan.table.columns.items()]
    return pd.DataFrame(lines, columns=["column", "type", "role"])


def _frame(plan: Plan, data: DataSpec, codes: pd.Series, n_rows: int, out: _Findings) -> tuple[pd.DataFrame, set[str]]:
    """The frame of a Dataset, and the roles that cannot be read: each is an error, its column stays empty."""
    mapped = [plan.roles[role] for role in ("id", "group", "split", "member") if role in plan.roles]
    names = list(dict.fromkeys([*mapped, *plan.labels]))
    raw = read_table(plan.table, names, limit=n_rows) if names else pd.DataFrame(index=range(n_rows))
    path = plan.table.path

    broken: set[str] = set()

    def attempt(role: str, read: Callable[[], pd.Series], otherwise: pd.Series) -> pd.Series:
        try:
            return read()
        except DatasetError as error:
            out.say("error", str(error).removeprefix(f"{path}: "))
            broken.add(role)
            return otherwise

    def column(role: str) -> pd.Series:
        return raw[plan.roles[role]]

    nothing = roles.missing_text(n_rows)
    unknown = pd.Series(pd.NA, index=range(n_rows), dtype="boolean")
    ids = roles.example_ids(None, n_rows, path)
    if "id" in plan.roles:
        ids = attempt("id", lambda: roles.example_ids(column("id"), n_rows, path), ids)
    group, _ = roles.subjects(column("group") if "group" in plan.roles else None, ids, codes)
    frame = pd.DataFrame({"example_id": ids, "group": group, "split": nothing, "member": unknown})
    if "split" in plan.roles:
        frame["split"] = attempt("split", lambda: roles.parse_split(column("split"), data.split_map, path), nothing)
    if "member" in plan.roles:
        frame["member"] = attempt("member", lambda: roles.parse_member(column("member"), path), unknown)
    for label in plan.labels:
        frame[label] = attempt("label", partial(parse_label, raw[label], path), nothing)
        for warning in ambiguous(raw[label]):
            out.say("warning", warning)
    return frame, broken


def _check_texts(plan: Plan, texts: pd.DataFrame, n_rows: int, out: _Findings) -> None:
    if empty := int(texts["empty"].sum()):
        out.say("warning", f"{empty:,} of {n_rows:,} rows have an empty text (first: row {_first(texts['empty'])}).")
    if "target" in plan.roles and (empty := int(texts["empty_target"].sum())):
        first = _first(texts["empty_target"])
        out.say("warning", f"{empty:,} of {n_rows:,} rows have an empty target (first: row {first}).")
    for label in plan.labels:
        if label in plan.fields.values():
            out.say(
                "warning", f"The template writes the label column '{label}' into the text: nothing is left to infer."
            )


def _check_conversations(plan: Plan, n_rows: int, out: _Findings) -> None:
    """Read every conversation once; the first that cannot be read is an error."""
    column = read_table(plan.table, plan.lists, limit=n_rows, lists=plan.lists)[plan.roles["messages"]]
    try:
        found = parse_messages(column, plan.table.path)
    except DatasetError as error:
        out.say("error", str(error).removeprefix(f"{plan.table.path}: "))
        return
    answers = np.array([sum(message["role"] == "assistant" for message in chat) for chat in found])
    out.say("info", f"{len(found):,} conversations with {int(answers.sum()):,} messages of the assistant, which count.")
    if silent := int((answers == 0).sum()):
        out.say("warning", f"{silent:,} of {n_rows:,} conversations have none: nothing of them is trained or scored.")
    out.say("info", "Lengths are those of what is said; what the chat template adds is not counted here.")


def _check_duplicates(frame: pd.DataFrame, texts: pd.DataFrame, plan: Plan, out: _Findings) -> pd.DataFrame:
    """Rows with equal text, among those that are not empty."""
    rows = frame[["group", "split", "member"]].assign(code=texts["code"], row=np.arange(1, len(frame) + 1))
    rows = rows[~texts["empty"].to_numpy(dtype=bool)]
    repeated = rows[rows["code"].duplicated(keep=False)]
    if repeated.empty:
        out.say("info", "No text occurs twice.")
        return pd.DataFrame()
    groups = repeated.groupby("code", sort=False)
    sizes = groups.size()
    extra = int(sizes.sum()) - len(sizes)
    text = f"{extra:,} of {len(frame):,} rows repeat the text of an earlier row ({len(sizes):,} texts occur repeatedly)"
    if "target" in plan.roles:
        both = pd.DataFrame({"a": texts["code"], "b": texts["code_target"]}).loc[repeated.index].duplicated().sum()
        text += f"; {int(both):,} of them with the same target"
    out.say("warning", text + ".")
    splits, members = groups["split"].nunique(), groups["member"].nunique()
    if across := int((splits > 1).sum()):
        out.say("warning", f"{_texts(across)} in more than one split: what a probe learns there, it meets again.")
    if across := int((members > 1).sum()):
        out.say(
            "warning", f"{_texts(across)} both in member and in non-member rows: no attack can be right about them."
        )
    listed = sizes.sort_values(ascending=False, kind="stable").index[:SHOWN]
    shown = repeated[repeated["code"].isin(listed)].groupby("code", sort=False)
    table = pd.DataFrame({"times": shown.size(), "rows": shown["row"].agg(_some)})
    for role in ("split", "member"):
        if role in plan.roles:
            table[role] = shown[role].agg(lambda values: ", ".join(sorted(values.dropna().astype(str).unique())))
    return table.loc[listed].reset_index(drop=True)


def _check_splits(frame: pd.DataFrame, plan: Plan, out: _Findings) -> pd.DataFrame:
    if missing := int(frame["split"].isna().sum()):
        out.say("warning", f"{missing:,} of {len(frame):,} rows are in no split.")
    shared = shared_subjects(frame)
    # Without a group role, rows with equal text are one subject: that forbids a label audit, nothing else.
    if len(shared) and ("group" in plan.roles or plan.labels):
        subjects = "1 subject is" if len(shared) == 1 else f"{len(shared):,} subjects are"
        names = " and ".join(shared.iloc[0])
        out.say("error", f"{subjects} in more than one split (first: '{shared.index[0]}' in {names}).")
    table = frame.groupby("split").agg(subjects=("group", "nunique"), rows=("group", "size"))
    return table.reindex([s for s in SPLITS if s in table.index]).reset_index()


def _check_members(frame: pd.DataFrame, out: _Findings) -> pd.DataFrame:
    names = frame["member"].map({True: "member", False: "non-member"}).fillna("unknown")
    table = frame.groupby(names).agg(subjects=("group", "nunique"), rows=("group", "size"))
    for name in ("member", "non-member"):
        if name not in table.index:
            out.say("warning", f"No row is a {name}: membership cannot be measured.")
    both = frame[frame["member"].notna()].groupby("group")["member"].nunique()
    if across := int((both > 1).sum()):
        subjects = "1 subject has" if across == 1 else f"{across:,} subjects have"
        out.say("warning", f"{subjects} both member and non-member rows.")
    return table.rename_axis("membership").reset_index()


def _check_labels(frame: pd.DataFrame, plan: Plan, out: _Findings) -> pd.DataFrame:
    """Rows and subjects by label, class and split."""
    parts = []
    for label in plan.labels:
        known = frame[frame[label].notna()]
        if known.empty:
            continue
        if missing := len(frame) - len(known):
            out.say("info", f"{missing:,} of {len(frame):,} rows have no label '{label}' and stay out of its audit.")
        if conflicts := conflicting_subjects(frame, label):
            subjects = "1 subject has" if len(conflicts) == 1 else f"{len(conflicts):,} subjects have"
            out.say(
                "warning",
                f"{subjects} more than one class of '{label}' (first: '{conflicts[0]}'); left out of its audit.",
            )
        by = (
            known.assign(split=known["split"].fillna("none"))
            if "split" in plan.roles
            else known.assign(split="all rows")
        )
        counts = by.groupby([label, "split"]).agg(subjects=("group", "nunique"), rows=("group", "size")).reset_index()
        parts.append(counts.rename(columns={label: "class"}).assign(label=label))
        _check_classes(counts, known, label, out)
    if not parts:
        return pd.DataFrame()
    return pd.concat(parts, ignore_index=True)[["label", "class", "split", "subjects", "rows"]]


def _check_classes(counts: pd.DataFrame, known: pd.DataFrame, label: str, out: _Findings) -> None:
    n = known[label].nunique()
    if n > MANY:
        out.say("warning", f"Column '{label}' has {n:,} classes; is it a label?")
        return
    totals = known.groupby(label)["group"].nunique().sort_values()
    out.say("info", f"'{label}' has {n} classes, from {totals.iloc[0]:,} to {totals.iloc[-1]:,} subjects.")
    wide = counts[counts["split"] != "none"].pivot(index=label, columns="split", values="subjects").fillna(0)
    for split in wide.columns:
        few = wide.index[wide[split] < FEW]
        if len(few):
            where = "" if split == "all rows" else f" in {split}"
            n_few = int(wide.loc[few[0], split])
            subjects = "1 subject" if n_few == 1 else f"{n_few} subjects"
            more = f" (and {len(few) - 1} more classes)" if len(few) > 1 else ""
            out.say("warning", f"Class '{few[0]}' of '{label}' has only {subjects}{where}{more}.")


def _check_lengths(lengths: np.ndarray, n_rows: int, max_length: int, tokens: bool, out: _Findings) -> pd.DataFrame:
    of = _rows(n_rows) if len(lengths) == n_rows else f"a sample of {len(lengths):,} of {n_rows:,} rows"
    over = int((lengths > max_length).sum())
    if not tokens:
        out.say(
            "info", f"No tokenizer: words were counted ({of}), not tokens; truncation at {max_length} is not known."
        )
    elif over:
        share = f"{over:,} of {of} ({over / len(lengths):.1%})"
        out.say("warning", f"{share} are longer than {max_length} tokens and get cut.")
    else:
        out.say("info", f"No text in {of} is longer than {max_length} tokens.")
    return quantiles(lengths, "tokens" if tokens else "words", n_rows)


def _some(rows: pd.Series) -> str:
    return ", ".join(map(str, rows[:5])) + (" ..." if len(rows) > 5 else "")


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n:,} rows"


def _texts(n: int) -> str:
    return "1 text is" if n == 1 else f"{n:,} texts are"


def _first(mask: pd.Series) -> int:
    return int(mask.to_numpy(dtype=bool).argmax()) + 1
