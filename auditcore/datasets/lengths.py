"""Numbers about texts, made in SQL or by a tokenizer. In: a plan and a template. Out: codes, empty flags, lengths."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from auditcore.datasets.conversations import said
from auditcore.datasets.roles import Plan
from auditcore.datasets.tables import connect, select_sql
from auditcore.errors import DatasetError
from auditcore.spec import parse_template

SAMPLE = 10_000  # rows whose tokens are counted: a share of them is known to within 1 %


def _rendered(plan: Plan, template: str) -> tuple[str, list[object]]:
    """SQL giving the rendered template t, the joined values v and the target g of each row, with its parameters."""
    columns = list(dict.fromkeys([*plan.fields.values(), *([plan.roles["target"]] if "target" in plan.roles else [])]))
    at = {column: f"coalesce(v{k}, '')" for k, column in enumerate(columns)}
    pieces, literals = [], []
    for literal, name in parse_template(template):
        if literal:
            pieces.append("?")
            literals.append(literal)
        if name is not None:
            pieces.append(at[plan.fields[name]])
    values = " || ".join(dict.fromkeys(at[column] for column in plan.fields.values()))
    target = at[plan.roles["target"]] if "target" in plan.roles else "''"
    sql, parameters = select_sql(plan.table, columns, plan.lists)
    return f"SELECT {' || '.join(pieces)} AS t, {values} AS v, {target} AS g FROM ({sql})", [*literals, *parameters]


def measure(plan: Plan, template: str, n_rows: int) -> pd.DataFrame:
    """One line per row: code (64 bits of the MD5 of the text), code_target, empty, empty_target."""
    sql, parameters = _rendered(plan, template)
    with connect(plan.table.path) as con:
        return con.execute(
            "SELECT md5_number_upper(t) AS code, md5_number_upper(g) AS code_target, "
            f"NOT regexp_matches(v, '\\S') AS empty, NOT regexp_matches(g, '\\S') AS empty_target FROM ({sql}) LIMIT ?",
            [*parameters, n_rows],
        ).df()


def sampled_lengths(plan: Plan, template: str, n_rows: int, tokenizer_file: Path | None) -> np.ndarray:
    """Tokens (words without a tokenizer) of at most SAMPLE evenly spaced rows, int64.

    Special tokens are counted, and a target as it is encoded: " " + target + eos. Raises DatasetError when the
    tokenizer file cannot be read.
    """
    tokenizer = None if tokenizer_file is None else _tokenizer(tokenizer_file)
    sql, parameters = _rendered(plan, template)
    k = min(SAMPLE, n_rows)
    gap = "" if template[-1:].isspace() else " "
    lengths: list[int] = []
    with connect(plan.table.path) as con:
        # k of n rows, the same ones every time.
        query = con.execute(
            f"SELECT t, g FROM (SELECT t, g, row_number() OVER () AS n FROM ({sql}) LIMIT ?) "
            "WHERE (n * ?) // ? <> ((n - 1) * ?) // ?",
            [*parameters, n_rows, k, n_rows, k, n_rows],
        )
        while batch := query.fetchmany(512):
            if plan.lists:
                batch = [(said(t), g) for t, g in batch]
            lengths += _sizes(batch, tokenizer, gap if "target" in plan.roles else None)
    return np.array(lengths, dtype=np.int64)


def lengths_of(prompts: list[str], targets: list[str] | None, tokenizer_file: Path | None) -> np.ndarray:
    """The same, of texts in memory: prompts rendered by their template, and what is to be written behind them."""
    tokenizer = None if tokenizer_file is None else _tokenizer(tokenizer_file)
    n, gap = len(prompts), "" if prompts and prompts[0][-1:].isspace() else " "
    picked = np.linspace(0, n - 1, min(SAMPLE, n)).astype(int)
    batch = [(prompts[i], "" if targets is None else targets[i]) for i in picked]
    return np.array(_sizes(batch, tokenizer, None if targets is None else gap), dtype=np.int64)


def _sizes(batch: list[tuple[str, str]], tokenizer: Any, gap: str | None) -> list[int]:
    """Lengths of (text, target) pairs; gap: what stands between the two, None where there is no target."""
    if tokenizer is None:
        return [len(t.split()) + len(g.split()) for t, g in batch]
    sizes = np.array([len(e.ids) for e in tokenizer.encode_batch_fast([t for t, _ in batch])])
    if gap is not None:
        targets = tokenizer.encode_batch_fast([gap + g for _, g in batch], add_special_tokens=False)
        sizes = sizes + [len(e.ids) + 1 for e in targets]
    return [int(size) for size in sizes]


def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise DatasetError(f"{path}: not a usable tokenizer.json ({error}).") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def quantiles(lengths: np.ndarray, unit: str, n_rows: int) -> pd.DataFrame:
    cuts = {"shortest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "longest": 1.0}
    values = np.quantile(lengths, list(cuts.values()), method="nearest").astype(int)
    return pd.DataFrame({"of": list(cuts), unit: values, "rows counted": len(lengths), "rows": n_rows})
