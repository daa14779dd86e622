"""What nobody can beat on data whose making is known. In: a job's evaluated rows. Out: table `ceilings`, or none."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from auditcore.jobs.context import Context


def write_ceilings(
    context: Context, template: str | None, frame: pd.DataFrame, evaluated: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Write the Bayes ceiling of every attribute and evaluated split; splits written earlier stay.

    Reads labels and facts, never a model or a vector.
    """
    from auditcore.datasets.ceiling import ceilings

    found, run = ceilings(context.spec.data, template, frame, evaluated), context.run
    if found.empty:
        return
    if run.has("ceilings"):
        old = run.read("ceilings")
        again = pd.MultiIndex.from_frame(found[["attribute", "split"]])
        found = pd.concat([old[~pd.MultiIndex.from_frame(old[["attribute", "split"]]).isin(again)], found])
    run.write("ceilings", found)
