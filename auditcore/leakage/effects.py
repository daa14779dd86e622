"""What a defence changes for each attacker. In: table `predictions`. Out: differences in accuracy, paired by row.

The same rows are judged before and after: rows are paired, correctness averaged over seeds, subjects resampled within
their class (`paired`), conditional on the fitted probes and on the fitted defence.
"""

from typing import Any

import numpy as np
import pandas as pd

from auditcore.leakage.paired import paired

WHERE: list[Any] = ["attribute", "artifact", "layer", "defence", "probe", "split"]
COLUMNS = [*WHERE, "accuracy_none", "accuracy", "change", "low", "high", "n_subjects"]


def effects(predictions: pd.DataFrame, groups: pd.Series, n_boot: int, seed: int) -> pd.DataFrame:
    """Return one row per defended attacker and split: accuracy - accuracy without the defence, 95 % interval.

    predictions: as `gap.evaluate` returns, with the rows of defence "none"; groups: example_id -> subject. Rows that
    only one of the two judged are left out. An attacker without its "none" has no row.
    """
    keys = [*WHERE, "example_id"]
    rows_judged = predictions.assign(right=predictions["actual"] == predictions["predicted"]).groupby(keys, sort=False)
    judged = pd.DataFrame({"right": rows_judged["right"].mean(), "actual": rows_judged["actual"].first()})
    cells: dict[Any, pd.DataFrame] = {}
    for at, part in judged.groupby(level=list(range(len(WHERE))), sort=False):
        cells[at] = part.droplevel(WHERE)
    rows = []
    for where, after in cells.items():
        place = dict(zip(WHERE, where, strict=True))
        before = cells.get(tuple({**place, "defence": "none"}[name] for name in WHERE))
        if place["defence"] == "none" or before is None:
            continue
        both = after.join(before["right"].rename("right_none"), how="inner")
        codes = np.unique(both["actual"], return_inverse=True)[1]
        subjects = groups.loc[both.index].to_numpy(dtype=str)
        found = paired(both["right_none"].to_numpy(), both["right"].to_numpy(), codes, subjects, n_boot, seed)
        rows.append((*where, found.first, found.second, found.change, found.low, found.high, found.n_subjects))
    return pd.DataFrame(rows, columns=COLUMNS)
