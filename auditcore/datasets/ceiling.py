"""The best anybody can do on rows whose making is known. In: a data spec, evaluated rows. Out: Bayes accuracies.

Only the generator of the bundled notes says how likely each fact is under each label, and only its rows hold the facts
in columns fact_*. Of any other data nothing is known: no row comes out.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from auditcore.datasets.synthetic_bayes import bayes_posterior
from auditcore.datasets.synthetic_facts import ATTRIBUTES, FACT_COLUMNS
from auditcore.datasets.tables import open_table, read_table
from auditcore.errors import DatasetError
from auditcore.spec import DataSpec, parse_template

COLUMNS = ["attribute", "split", "ceiling", "standard_error", "hits", "n_eval", "n_subjects", "n_classes"]
TEXTS = ("prompt", "target", *FACT_COLUMNS)  # what a row's text may hold for the ceiling to be one


def ceilings(
    data: DataSpec, template: str | None, frame: pd.DataFrame, evaluated: Mapping[str, Mapping[str, np.ndarray]]
) -> pd.DataFrame:
    """Return Bayes-optimal accuracy per attribute and evaluated split: one row each, none where it is not known.

    template: what a model reads, None for vectors from a file (they count as made from the notes); frame: rows with
    example_id, group and labels; evaluated: attribute -> split -> class-balanced positions in `frame`. ceiling: mean of
    the largest posterior (classes equally likely), standard_error: of the share of hits of a guesser who knows all
    tables, were the labels drawn anew; hits: the share it reaches on these labels. No attacker who holds the notes
    alone expects more than the ceiling.
    """
    wanted = {a: splits for a, splits in evaluated.items() if a in ATTRIBUTES}
    if not wanted or not _notes_alone(data, template):
        return pd.DataFrame(columns=COLUMNS)
    facts = _facts(data)
    if facts is None:
        return pd.DataFrame(columns=COLUMNS)
    lines = []
    for attribute, splits in wanted.items():
        for split, positions in splits.items():
            rows = frame.iloc[positions]
            if split not in ("bal_val", "bal_test") or rows.empty:
                continue
            classes = [str(c) for c in rows[attribute].unique()]
            try:
                posterior = bayes_posterior(attribute, facts.loc[rows["example_id"]])
                some = posterior[classes].to_numpy()
            except (DatasetError, KeyError):  # facts or classes that the generator does not know: other data
                return pd.DataFrame(columns=COLUMNS)
            some = some / some.sum(axis=1, keepdims=True)
            best = some.max(axis=1)
            named = np.array(classes, dtype=object)[some.argmax(axis=1)]
            hits = pd.Series(named == rows[attribute].to_numpy(dtype=object)).groupby(rows[attribute].to_numpy()).mean()
            error = float(np.sqrt((best * (1 - best)).sum()) / len(best))
            sizes = (len(rows), rows["group"].nunique(), len(classes))
            lines.append((attribute, split, float(best.mean()), error, float(hits.mean()), *sizes))
    return pd.DataFrame(lines, columns=COLUMNS)


def _notes_alone(data: DataSpec, template: str | None) -> bool:
    """False where a model reads a column that may tell more than the note."""
    if template is None:
        return True
    named = [name for _, name in parse_template(template) if name is not None]
    return all((data.column(name) or name) in TEXTS for name in named)


def _facts(data: DataSpec) -> pd.DataFrame | None:
    """The facts each note shows, by example_id; None where the file has none."""
    if data.clinical is not None or data.corpus is not None:
        return None
    table = open_table(data.path, data.format)
    if not set(FACT_COLUMNS) <= set(table.columns):
        return None
    name = data.column("id")
    frame = read_table(table, [*FACT_COLUMNS, *([name] if name else [])], limit=data.max_rows)
    ids = frame[name] if name else pd.Series(range(1, len(frame) + 1))
    return frame[list(FACT_COLUMNS)].set_axis(pd.Index(ids.astype(str)), axis=0)
