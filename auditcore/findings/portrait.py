"""What a data set looks like, in words. In: tables of `datasets.portrait`. Out: sentences."""

import numpy as np
import pandas as pd

from auditcore.words import Strong, count, counted, percent


def words_sentence(words: pd.DataFrame, attribute: str, compared: int) -> list[str]:
    """Say how many words give the attribute away, and the strongest. words: of one attribute."""
    if not compared:
        return [f"No word is used by enough subjects to compare classes of {attribute}."]
    marked = words[words["marked"]]
    if marked.empty:
        return [f"None of {count(compared)} words tells classes of {attribute} apart beyond chance."]
    best = marked.sort_values("z", ascending=False, kind="stable").iloc[0]
    return [
        f"Of {count(compared)} words, ",
        Strong(f"at least {counted(len(marked), 'is a proxy', 'are proxies')}"),
        f" of {attribute}, before any model reads them: “{best['word']}” is used by {percent(best['share'], 0)} of "
        f"{best['class']} subjects and by {percent(best['share_rest'], 0)} of the others.",
    ]


def balance_sentence(balance: pd.DataFrame, attribute: str) -> list[str]:
    """Say which class is rarest where. balance: of one attribute."""
    known = balance[balance["class"] != "no label"]
    if known.empty:
        return [f"No row has a label for {attribute}."]
    rare = known.sort_values("subjects", kind="stable").iloc[0]
    n = counted(int(rare["subjects"]), "subject")
    classes = known["class"].nunique()
    return [f"{counted(classes, 'class', 'classes')} of {attribute}; the smallest cell is {rare['class']} in "
            f"{rare['split']}, ", Strong(n), "."]  # fmt: skip


def length_sentence(lengths: np.ndarray, unit: str, limit: int | None, n_rows: int | None = None) -> list[str]:
    """Median, 95th percentile, how many rows are cut, and of how many rows this is a sample."""
    if not len(lengths):
        return ["No row has a text."]
    middle, high = np.quantile(lengths, [0.5, 0.95], method="higher")
    said = [f"Half of the rows have at most {count(middle)} {unit}, 95 of 100 at most {count(high)}."]
    over = 0.0 if limit is None else float(np.mean(lengths > limit))
    if over:
        said += [" ", Strong(f"{percent(over)} are longer than {count(limit)} and lose their end.")]
    if n_rows is not None and n_rows > len(lengths):
        said.append(f" Measured on an even sample of {count(len(lengths))} of {count(n_rows)} rows.")
    return said
