"""Metadata as an attacker reads it. In: columns of text. Out: features, fitted on the training rows alone.

A column whose known training values are all numbers is one (its missing values take the median, and a flag says so);
with at most `FEW` different numbers each is a category too, since numbers can be names. Every other column is
categories, the most frequent `MOST` and one for the rest; missing is a category. Encoders are scikit-learn's.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

FEW = 30
MOST = 100
MISSING = ""


def fit_columns(train: pd.DataFrame) -> Callable[[pd.DataFrame], np.ndarray]:
    """Return a function: the same columns of any rows -> features float32 [n, f], finite.

    train: text, missing where unknown, [n, columns].
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    numeric = [name for name in train.columns if _is_number(train[name])]
    named = [name for name in train.columns if name not in numeric or train[name].nunique() <= FEW]
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MOST, sparse_output=False)
    parts = [("category", encoder, [f"name {n}" for n in named])] if named else []
    if numeric:
        parts.append(("number", SimpleImputer(strategy="median", add_indicator=True), [f"number {n}" for n in numeric]))

    def read(rows: pd.DataFrame) -> pd.DataFrame:
        names = {f"name {n}": rows[n].astype(object).where(rows[n].notna(), MISSING) for n in named}
        return pd.DataFrame(names | {f"number {n}": _numbers(rows[n]) for n in numeric})

    both = ColumnTransformer(parts).fit(read(train))

    def transform(rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(both.transform(read(rows)), dtype=np.float32)

    return transform


def _numbers(column: pd.Series) -> np.ndarray:
    """Finite numbers as float64, NaN for whatever is none."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.abs(values) < 1e30, values, np.nan)  # features are float32


def _is_number(column: pd.Series) -> bool:
    known = column[column.notna()]
    return len(known) > 0 and bool(np.isfinite(_numbers(known)).all())
