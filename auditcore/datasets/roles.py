"""Column -> role. In: a data spec and a template. Out: a frame of roles and the texts, or an error naming the row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.datasets.clinical import read_clinical
from auditcore.datasets.conversations import Message, as_text, parse_messages
from auditcore.datasets.guess import Guess, guess_roles
from auditcore.datasets.importers import import_notes
from auditcore.datasets.labels import ambiguous, filled, parse_label, written_missing
from auditcore.datasets.tables import Table, column_index, open_table, read_table
from auditcore.errors import DatasetError, did_you_mean
from auditcore.spec import ROLES, SPLITS, DataSpec, parse_template

__all__ = ["Dataset", "Guess", "Plan", "guess_roles", "load_dataset", "plan_columns", "require_disjoint_splits"]

MEMBER = {"1": True, "true": True, "yes": True, "1.0": True, "0": False, "false": False, "no": False, "0.0": False}
RESERVED = ("example_id", "group", "split", "member", "n_tokens", "truncated")  # columns of the table `examples`


@dataclass(frozen=True)
class Dataset:
    """Rows with their roles, in data order.

    frame: index 0..n-1; example_id (str), group (str), split (str or missing), member (boolean or missing), and one
    column per label (str or missing). fields: each name in the template -> n texts ("" where empty). target: n texts
    or None. notes: what was counted on the way, as sentences for a page.
    """

    frame: pd.DataFrame
    fields: dict[str, list[str]]
    target: list[str] | None
    template: str
    labels: tuple[str, ...]
    path: str
    sha256: str
    notes: list[str]
    messages: list[list[Message]] | None = None  # conversations; fields then hold each of them as one text
    metadata: pd.DataFrame | None = None  # what the recipient holds: text, missing where empty; stored in no table

    def texts(self) -> list[str]:
        """The template rendered for every row, followed by the target (after a blank, as the model reads it)."""
        if not self.fields:  # no text was asked for
            return self.frame["example_id"].tolist()
        prompts = render(self.template, self.fields, len(self.frame))
        if self.target is None:
            return prompts
        gap = "" if self.template[-1:].isspace() else " "
        return [prompt + gap + target for prompt, target in zip(prompts, self.target, strict=True)]

    def select(self, positions: np.ndarray, frame: pd.DataFrame | None = None) -> "Dataset":
        """The rows at `positions`, in that order; `frame` first replaces the roles of all rows (splits made here)."""
        kept = (self.frame if frame is None else frame).iloc[positions].reset_index(drop=True)
        fields = {name: [texts[i] for i in positions] for name, texts in self.fields.items()}
        target = None if self.target is None else [self.target[i] for i in positions]
        messages = None if self.messages is None else [self.messages[i] for i in positions]
        held = None if self.metadata is None else self.metadata.iloc[positions].reset_index(drop=True)
        return replace(self, frame=kept, fields=fields, target=target, messages=messages, metadata=held)


@dataclass(frozen=True)
class Plan:
    """Which column is read for what; every column exists and can be read as text."""

    table: Table
    fields: dict[str, str]  # name in the template -> column
    roles: dict[str, str]  # role -> column, label and metadata excepted
    labels: tuple[str, ...]
    metadata: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """All columns that are needed, once each."""
        return list(dict.fromkeys([*self.fields.values(), *self.roles.values(), *self.labels, *self.metadata]))

    @property
    def lists(self) -> tuple[str, ...]:
        """Columns that may be lists: the conversations."""
        return (self.roles["messages"],) if "messages" in self.roles else ()


def plan_columns(data: DataSpec, template: str | None) -> Plan:
    """Open the file and find the columns. Raises DatasetError for a bad file or a missing column ("did you mean")."""
    return _plan(open_table(data.path, data.format), data, template)


def _plan(table: Table, data: DataSpec, template: str | None) -> Plan:
    for role, column in data.roles.items():
        for name in [column] if isinstance(column, str) else column:
            if name not in table.columns:
                hint = did_you_mean(name, table.columns)
                raise DatasetError(f"{table.path}: there is no column '{name}' for the role {role}.{hint}")
            column_index(table, name, lists=role == "messages")
    one_each = {k: v for k, v in data.roles.items() if k not in ("label", "metadata")}
    roles = {role: column for role, column in one_each.items() if isinstance(column, str)}
    _check_labels(table, data.labels)
    if data.split_map and "split" not in roles:
        raise DatasetError(f"{table.path}: split_map is given, but no column plays the role split.")
    pieces = parse_template(template) if template is not None else []
    fields = {name: _field(table, data, name) for _, name in pieces if name is not None}
    return Plan(table, fields, roles, data.labels, data.metadata)


def _check_labels(table: Table, labels: tuple[str, ...]) -> None:
    folded: dict[str, str] = {}
    for label in labels:
        if label.lower() in RESERVED:
            raise DatasetError(f"{table.path}: a label column may not be called '{label}'; rename the column.")
        if label.lower() in folded:
            raise DatasetError(f"{table.path}: label columns '{folded[label.lower()]}' and '{label}' have one name.")
        folded[label.lower()] = label


def _field(table: Table, data: DataSpec, name: str) -> str:
    mapped = data.roles.get(name)
    column = mapped if isinstance(mapped, str) else name
    if column not in table.columns:
        what = (
            f"role {name}, which is not mapped" if name in ROLES else f"'{name}', which is neither a role nor a column"
        )
        raise DatasetError(
            f"{table.path}: the template names {what}.{did_you_mean(name, [*data.roles, *table.columns])}"
        )
    column_index(table, column, lists=name == "messages")
    return column


def load_dataset(data: DataSpec, template: str | None) -> Dataset:
    """Read the rows a spec names, check every role, and count what a page must show.

    template: None for rows that need no text, since their vectors come from a file.
    Raises DatasetError: bad file, missing column, unknown member or split value, duplicate or missing id, a label with
    one class, one subject in two splits (when both roles are mapped).
    """
    if data.clinical is not None:
        made = read_clinical(data)
        columns = dict.fromkeys(made.frame.columns, "VARCHAR")
        plan = _plan(Table(Path(data.path), "csv", columns, len(made.frame), made.sha256), data, template)
        raw, notes = made.frame[plan.columns], list(made.notes)
    else:
        plan = plan_columns(data, template)
        raw = read_table(plan.table, plan.columns, limit=data.max_rows, lists=plan.lists)
        notes = import_notes(plan.table.path) if plan.table.format == "parquet" else []
    if len(raw) < plan.table.n_rows:
        notes.append(f"Only the first {len(raw):,} of {plan.table.n_rows:,} rows are used (max_rows).")
    fields = {name: _texts(raw[column]) for name, column in plan.fields.items()}
    messages = None
    if "messages" in plan.roles:
        messages = parse_messages(raw[plan.roles["messages"]], plan.table.path)
        fields["messages"] = [as_text(conversation) for conversation in messages]
    target = _texts(raw[plan.roles["target"]]) if "target" in plan.roles else None
    prompts = render(template, fields, len(raw)) if template is not None else [str(i) for i in range(len(raw))]
    frame, found = build_frame(plan, data, raw, prompts)
    notes += found + _text_notes(fields, target)
    if {"split", "group"} <= plan.roles.keys():
        require_disjoint_splits(frame, str(plan.table.path))
    held = pd.DataFrame({name: filled(raw[name]) for name in plan.metadata}) if plan.metadata else None
    source = (plan.labels, data.path, plan.table.sha256)
    return Dataset(frame, fields, target, template or "", *source, notes, messages, held)


def render(template: str, fields: dict[str, list[str]], n: int) -> list[str]:
    """Fill the template for n rows."""
    parts: list[list[str]] = []
    for literal, name in parse_template(template):
        if literal:
            parts.append([literal] * n)
        if name is not None:
            parts.append(fields[name])

    return list(parts[0]) if len(parts) == 1 else ["".join(row) for row in zip(*parts, strict=True)]


def build_frame(plan: Plan, data: DataSpec, raw: pd.DataFrame, prompts: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Turn the role columns into the frame of a Dataset. Returns it with its notes."""
    path, n, roles, notes = plan.table.path, len(raw), plan.roles, []
    ids = example_ids(raw[roles["id"]] if "id" in roles else None, n, path)
    groups, found = subjects(raw[roles["group"]] if "group" in roles else None, ids, prompts)
    notes += found
    split, member = missing_text(n), pd.Series(pd.NA, index=range(n), dtype="boolean")
    if "split" in roles:
        split = parse_split(raw[roles["split"]], data.split_map, path)
        notes += _counted(split.isna(), f"have no split ('{roles['split']}' is empty) and stay out of every split")
    if "member" in roles:
        member = parse_member(raw[roles["member"]], path)
        notes += _counted(member.isna(), f"have unknown membership ('{roles['member']}' is empty)")
    frame = pd.DataFrame({"example_id": ids, "group": groups, "split": split, "member": member})
    for label in plan.labels:
        frame[label] = parse_label(raw[label], path)
        notes += _counted(frame[label].isna(), f"have no label '{label}'{written_missing(raw[label])}")
        notes += ambiguous(raw[label])
    return frame, notes


def example_ids(column: pd.Series | None, n: int, path: Path) -> pd.Series:
    """The id of each row as text; without a column the data row, from 1. Raises DatasetError: empty or used twice."""
    if column is None:
        return pd.Series(np.arange(1, n + 1).astype(str), dtype="str")
    if column.isna().any():
        raise DatasetError(f"{path}: row {_row(column.isna())}, column '{column.name}' (id) is empty.")
    twice = column.duplicated()
    if twice.any():
        value = column[twice.to_numpy().argmax()]
        first = _row(column == value)
        raise DatasetError(
            f"{path}: rows {first} and {_row(twice)} have the same id '{value}' (column '{column.name}')."
        )
    return column.astype("str")


def subjects(column: pd.Series | None, ids: pd.Series, prompts: list[str] | pd.Series) -> tuple[pd.Series, list[str]]:
    """The subject of each row. Rows without one are subjects of their own, named by the first row with equal text.

    `prompts`: the texts, or one number for each different text.
    """
    codes, _ = pd.factorize(prompts if isinstance(prompts, pd.Series) else np.asarray(prompts, dtype=object))
    _, first = np.unique(codes, return_index=True)
    own = ids.iloc[first[codes]].reset_index(drop=True) if len(ids) else ids
    if column is None:
        n, shared = len(own), len(own) - len(first)
        text = f"{shared:,} of {n:,} rows repeat the text of an earlier row and count as the same subject."
        return own.astype("str"), [text] if shared else []
    known = filled(column)
    unknown = known.isna()
    # A made-up name must not meet a real subject.
    own = own.where(~own.isin(set(known.dropna())), own + " (no subject)")
    return known.where(~unknown, own).astype("str"), _counted(unknown, "name no subject and count as their own subject")


def parse_split(column: pd.Series, split_map: Mapping[str, str], path: Path) -> pd.Series:
    """Split of each row, missing where empty. Raises DatasetError for a value that is no split and is not mapped."""
    values = filled(column, named=split_map)
    known = {**{name: name for name in SPLITS}, **split_map}
    split = values.map(known)
    bad = values.notna() & split.isna()
    if bad.any():
        value = values[bad].iloc[0]
        raise DatasetError(
            f"{path}: row {_row(bad)}, column '{column.name}': '{value}' is not a split (map it with data.split_map)."
            f"{did_you_mean(value, known)}"
        )
    return split.astype("str")


def parse_member(column: pd.Series, path: Path) -> pd.Series:
    """Membership as boolean, missing where empty. Takes 0/1, true/false, yes/no in any case; else DatasetError."""
    values = filled(column)
    member = values.str.lower().map(MEMBER)
    bad = values.notna() & member.isna()
    if bad.any():
        raise DatasetError(
            f"{path}: row {_row(bad)}, column '{column.name}': '{values[bad].iloc[0]}' says nothing about membership; "
            "use 1 or 0, true or false, yes or no, or leave it empty (unknown)."
        )
    return member.astype("boolean")


def require_disjoint_splits(frame: pd.DataFrame, path: str = "data") -> None:
    """Raise DatasetError naming the first subject that is in two splits: a probe would meet its test subjects."""
    shared = shared_subjects(frame)
    if shared.empty:
        return
    subject = shared.index[0]
    rows = frame.index[(frame["group"] == subject) & frame["split"].notna()] + 1
    names = " and ".join(shared.iloc[0])
    raise DatasetError(
        f"{path}: subject '{subject}' is in the splits {names} (rows {', '.join(map(str, rows[:4]))}); "
        f"{_subjects(len(shared))} in two or more splits. Give every row of a subject the same split."
    )


def shared_subjects(frame: pd.DataFrame) -> pd.Series:
    """Subjects that stand in more than one split -> their splits, in the order of the data."""
    pairs = frame.loc[frame["split"].notna(), ["group", "split"]].drop_duplicates()
    pairs = pairs[pairs["group"].duplicated(keep=False)]
    return pairs.groupby("group", sort=False)["split"].agg(tuple)


def missing_text(n: int) -> pd.Series:
    """A text column of n missing values."""
    return pd.Series(pd.NA, index=range(n), dtype="str")


def _subjects(n: int) -> str:
    return "1 subject is" if n == 1 else f"{n:,} subjects are"


def _texts(column: pd.Series) -> list[str]:
    return column.fillna("").tolist()


def _text_notes(fields: dict[str, list[str]], target: list[str] | None) -> list[str]:
    empty = np.array([not any(row) for row in zip(*(map(str.strip, texts) for texts in fields.values()), strict=True)])
    notes = _counted(pd.Series(empty), "have an empty text")
    if target is not None:
        notes += _counted(pd.Series([not text.strip() for text in target]), "have an empty target")
    return notes


def _counted(mask: pd.Series, what: str) -> list[str]:
    n = int(mask.sum())
    return [f"{n:,} of {len(mask):,} rows {what}."] if n else []


def _row(mask: pd.Series) -> int:
    """Data row (from 1) of the first True."""
    return int(mask.to_numpy(dtype=bool).argmax()) + 1
