"""Choose the rows of the membership study. In: data/notes.parquet. Out: data/notes_membership.parquet.

One note a subject: members from `train`, non-members from `defence_fit` (one distribution), and a few more `train`
subjects whose membership is left empty, which choose the best checkpoint.
"""

from pathlib import Path

import pandas as pd

DATA = Path(__file__).resolve().parent.parent / "data"
MEMBERS, NONMEMBERS, VALIDATION = 400, 750, 50


def rows(notes: pd.DataFrame) -> pd.DataFrame:
    """The study's rows: example_id, subject_id, member, prompt, target."""
    one = notes.drop_duplicates("subject_id")
    train, held_out = one[one["split"] == "train"], one[one["split"] == "defence_fit"]
    parts = [
        train.iloc[:MEMBERS].assign(member=True),
        held_out.iloc[:NONMEMBERS].assign(member=False),
        train.iloc[MEMBERS : MEMBERS + VALIDATION].assign(member=None),
    ]
    columns = ["example_id", "subject_id", "member", "prompt", "target"]
    chosen = pd.concat([part.astype({"member": "boolean"}) for part in parts], ignore_index=True)
    return chosen[columns]


if __name__ == "__main__":
    rows(pd.read_parquet(DATA / "notes.parquet")).to_parquet(
        DATA / "notes_membership.parquet", index=False, compression="zstd"
    )
