"""Which column could play which role. In: a checked table. Out: role -> column with a reason (name, content)."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from auditcore.datasets.tables import Table, connect, read_table, select_sql
from auditcore.spec import SPLITS

NAMES = {
    "id": "id row_id example_id record_id note_id doc_id uid uuid guid index key",
    "group": "subject_id patient_id person_id user_id author_id speaker_id hadm_id subject patient person group author "
    "speaker",
    "member": "member is_member membership in_training in_train trained_on is_train training_member seen",
    "split": "split fold partition subset",
    "label": "recorded_race race ethnicity recorded_sex sex gender patient_sex age_band age_group religion language "
    "nationality disability insurance sensitive label attribute class category",
    "target": "target summary completion response output answer reference highlights",
    "prompt": "prompt input question instruction dialogue document article context source note",
    "messages": "messages conversations conversation chat",
    "text": "text content body sentence passage message comment review description abstract",
}  # fmt: skip
MEMBER_VALUES = {"0", "1", "true", "false", "yes", "no", "0.0", "1.0"}
MOST_CLASSES = 20
LONG = 20  # mean length in characters from which a column reads like text
SHORT = 64  # longest mean length of an identifier or a class


@dataclass(frozen=True)
class Guess:
    """A column, and why it was taken."""

    column: str
    reason: str


@dataclass(frozen=True)
class _Column:
    name: str
    filled: int
    distinct: int
    length: float  # mean, in characters
    values: tuple[str, ...]  # when there are few
    n_rows: int

    @property
    def unique(self) -> bool:
        return self.filled == self.distinct == self.n_rows and self.n_rows > 1

    @property
    def text(self) -> bool:
        return self.length >= LONG and self.distinct > 1

    @property
    def classes(self) -> bool:
        return 2 <= self.distinct <= MOST_CLASSES and self.distinct * 2 <= self.filled and self.length <= SHORT


def guess_roles(table: Table) -> dict[str, Guess]:
    """Guess each role from column names and from the values of all rows. A role without a fair candidate is left out.

    The user decides: a guess is never used unless a spec or a page passes it on.
    """
    columns = _statistics(table)
    found: dict[str, Guess] = {}
    lists = [name for name, kind in table.columns.items() if kind == "LIST"]
    if named := [name for name in lists if _folded(name) in NAMES["messages"].split()]:
        found["messages"] = Guess(named[0], "its name, and it holds lists")

    def take(role: str, fits: Callable[[_Column], bool], why: Callable[[_Column], str]) -> None:
        free = {c.name: c for c in columns if fits(c) and c.name not in {g.column for g in found.values()}}
        if name := _by_name(role, free):
            found[role] = Guess(name, f"its name, and {why(free[name])}")

    take(
        "split",
        lambda c: c.distinct > 0 and set(c.values) <= set(SPLITS),
        lambda c: f"its values are {_listed(c.values)}",
    )
    if "split" not in found and (splits := [c for c in columns if c.values and set(c.values) <= set(SPLITS)]):
        found["split"] = Guess(splits[0].name, f"all its values are names of splits: {_listed(splits[0].values)}")
    take("member", _memberlike, lambda c: f"its values are {_listed(c.values)}")
    take("id", lambda c: c.unique and c.length <= SHORT, lambda c: f"its {c.n_rows:,} values all differ")
    take("group", lambda c: c.distinct > 1 and c.length <= SHORT, lambda c: f"it has {c.distinct:,} different values")
    if "messages" not in found:
        _guess_texts(columns, found, take)
    take("label", lambda c: c.classes, lambda c: f"it has {c.distinct} different values")
    _guess_rest(columns, found)
    return {role: found[role] for role in NAMES if role in found}


def refused(table: Table, found: dict[str, Guess]) -> list[str]:
    """Columns that have a role's name and not its values: sentences naming column, value and row. found: what is taken.

    Without them a single stray value would leave a role unplayed and nobody told.
    """
    notes = []
    for role, known in (("member", MEMBER_VALUES), ("split", set(SPLITS))):
        column = _by_name(role, table.readable) if role not in found else None
        if column is None or column in {g.column for g in found.values()}:
            continue
        values = read_table(table, [column])[column]
        clean = values.str.strip().str.lower() if role == "member" else values
        strange = values[values.notna() & ~clean.isin(known)]
        if strange.empty:
            continue
        what = "true/false, yes/no or 1/0" if role == "member" else _listed(known)
        notes.append(
            f"column '{column}' has the name of the role {role}, but is not read as one: {len(strange):,} of "
            f"{len(values):,} rows hold something else, first row {int(strange.index[0]) + 1:,}: "
            f"'{str(strange.iloc[0])[:40]}'. It takes {what}; a cell may be empty."
        )
    return notes


def _guess_texts(columns: list[_Column], found: dict[str, Guess], take: Callable) -> None:
    def long(column: _Column) -> str:
        return f"its texts are {column.length:,.0f} characters long on average"

    texts = [c for c in columns if c.text and c.name not in {g.column for g in found.values()}]
    names = [c.name for c in texts]
    if len(texts) > 1 and _by_name("target", names) and _by_name("prompt", names):
        take("target", lambda c: c.text, long)
        take("prompt", lambda c: c.text, long)
        return
    take("text", lambda c: c.text, long)
    if "text" not in found:
        take("prompt", lambda c: c.text, long)
    if texts and not {"text", "prompt"} & found.keys():
        longest = max(texts, key=lambda c: c.length)
        found["text"] = Guess(longest.name, f"it holds the longest texts, {longest.length:,.0f} characters on average")


def _guess_rest(columns: list[_Column], found: dict[str, Guess]) -> None:
    """By content alone: an identifier, then a label."""
    names = [c.name for c in columns]
    taken = {g.column for g in found.values()} | {name for role in NAMES if (name := _by_name(role, names))}
    if "id" not in found and (unique := [c for c in columns if c.unique and c.length < LONG and c.name not in taken]):
        alone = "" if "group" in found else ", so that each row counts as a subject; the role group says whose rows are"
        found["id"] = Guess(unique[0].name, f"its {unique[0].n_rows:,} values all differ{alone}")
        taken.add(unique[0].name)
    if "label" not in found and (few := [c for c in columns if c.classes and c.name not in taken]):
        found["label"] = Guess(few[0].name, f"it has only {few[0].distinct} different values: {_listed(few[0].values)}")


def _memberlike(column: _Column) -> bool:
    return bool(column.values) and {v.strip().lower() for v in column.values} <= MEMBER_VALUES


def _by_name(role: str, columns: Iterable[str]) -> str | None:
    """The name of a column that stands first in the list of the role's names; "Patient ID" reads as "patient_id"."""
    order = {name: k for k, name in enumerate(NAMES[role].split())}
    named = [(order[key], c) for c in columns if (key := _folded(c)) in order]
    return min(named, key=lambda pair: pair[0])[1] if named else None


def _folded(name: str) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def _listed(values: Iterable[str]) -> str:
    shown = sorted(values)
    return ", ".join(shown[:5]) + (" ..." if len(shown) > 5 else "")


def _statistics(table: Table) -> list[_Column]:
    """Fill, number of different values, mean length and the few values of each readable column, in SQL."""
    names = table.readable
    if not names:
        return []
    sql, parameters = select_sql(table, names)
    parts = ", ".join(
        f"count(v{k}), count(DISTINCT hash(v{k})) FILTER (v{k} IS NOT NULL), coalesce(avg(length(v{k})), 0)"
        for k in range(len(names))
    )
    with connect(table.path) as con:
        found = con.execute(f"SELECT {parts} FROM ({sql})", parameters).fetchone() or ()
        few = [k for k in range(len(names)) if 0 < found[3 * k + 1] <= MOST_CLASSES and found[3 * k + 2] <= SHORT]
        lists = ", ".join(f"list(DISTINCT v{k}) FILTER (v{k} IS NOT NULL)" for k in few)
        values = con.execute(f"SELECT {lists} FROM ({sql})", parameters).fetchone() or () if few else ()
    shown = dict(zip(few, values, strict=True))
    return [
        _Column(name, found[3 * k], found[3 * k + 1], found[3 * k + 2], tuple(shown.get(k, ())), table.n_rows)
        for k, name in enumerate(names)
    ]
