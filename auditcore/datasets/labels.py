"""Cells as text, and labels. In: a column of text as it stands in the file. Out: values, missing where nothing is told.

Tools write a missing value as a word (a NaN of pandas becomes the text 'nan'): read as a class, it would be one that
any attacker may find.
"""

import re
from collections.abc import Container
from decimal import Decimal
from pathlib import Path

import pandas as pd

from auditcore.errors import DatasetError

MISSING = ("NaN", "nan", "-nan", "<NA>", "null", "NULL")  # what pandas, numpy, DuckDB, JSON and SQL write
AMBIGUOUS = ("NA", "N/A", "n/a", "None")  # missing, or a group (Native American) or an answer (smoking: None)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
CODE = re.compile(r"[+-]?0[0-9]")  # 007 is a name made of digits


def filled(column: pd.Series, named: Container[str] = ()) -> pd.Series:
    """Values without blanks around them, missing where nothing is left or a word for a missing value stands.

    named: values that a user gave a meaning: no such word is missing.
    """
    values = column.str.strip()
    return values.mask(values.isin(["", *[word for word in MISSING if word not in named]]))


def parse_label(column: pd.Series, path: Path) -> pd.Series:
    """Label as text without blanks around it, missing where it is empty or written as missing.

    Where every value is a number, equal numbers are one class: 1 and 1.0 are '1'. Raises DatasetError when there is one
    class.
    """
    label = filled(column)
    classes = label.dropna().unique()
    if len(classes) and all(NUMBER.fullmatch(c) and not CODE.match(c) for c in classes):
        label = label.map({c: _number(c) for c in classes})
        classes = label.dropna().unique()
    if len(classes) < 2:
        what = f"one class ('{classes[0]}')" if len(classes) else "no values"
        raise DatasetError(
            f"{path}: the label column '{column.name}' has {what} in {len(label):,} rows; two or more are needed."
        )
    return label.astype("str")


def written_missing(column: pd.Series) -> str:
    """How many values are words for a missing one, as " (3 are written 'nan')"; "" when none is."""
    counts = column.str.strip().value_counts()
    told = [
        f"{counts[word]:,} {'is' if counts[word] == 1 else 'are'} written '{word}'" for word in _in(counts, MISSING)
    ]
    return f" ({', '.join(told)})" if told else ""


def ambiguous(column: pd.Series) -> list[str]:
    """A sentence for each class that may mean a missing value."""
    counts = column.str.strip().value_counts()
    return [
        f"'{word}' is taken as a label of {counts[word]:,} {'row' if counts[word] == 1 else 'rows'} in column "
        f"'{column.name}'; if it means missing, leave those cells empty."
        for word in _in(counts, AMBIGUOUS)
    ]


def _in(counts: pd.Series, words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word in counts.index]


def _number(text: str) -> str:
    """Every digit is kept: long numbers are told apart to the last one."""
    plain = f"{Decimal(text):f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain
