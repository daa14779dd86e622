"""Several labels in one run. In: its metrics. Out: the matrix label by artifact, and what is corrected for."""

import pandas as pd
import streamlit as st

from auditcore.figures import attributes as figures
from auditcore.findings import attributes as say
from auditcore.findings import corrected
from pages import _ui as ui


def draw(metrics: pd.DataFrame, split: str, ceilings: pd.DataFrame | None) -> None:
    """Draw the section, where more than one label was audited."""
    found = corrected.every_test(metrics, split)
    if found["attribute"].nunique() < 2:
        return
    ui.section("Every label, every vector", say.attributes_finding(found))
    st.html(figures.attribute_matrix(found, ceilings))
    ui.quiet(say.family_sentence(found))
    layers = " At several layers the one that tells most is shown." if found["layer"].nunique() > 1 else ""
    ui.quiet(
        "LeakageGap: named correctly minus guessing, 90 % interval over subjects. Gaps of labels with different "
        f"numbers of classes start from different guessing and are not comparable.{layers}"
    )
    ui.download_csv(found, "every_test.csv", "every_test_csv", "Download every test as CSV")
