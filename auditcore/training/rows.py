"""Which rows are trained on, and what a checkpoint says it was trained on. In: tables. Out: row positions,
masks and texts.

Imports no torch: plans and audits ask here.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from auditcore.errors import DatasetError, ModelError
from auditcore.spec import FinetuneSpec

TRAINED_ON = "trained_on.parquet"


@dataclass(frozen=True)
class Agreement:
    """A member column held against what a checkpoint was trained on; all masks bool [n], in data order."""

    trained: np.ndarray  # the row's text was trained on
    validation: np.ndarray  # the row's text chose the checkpoint, and was not trained on
    member_not_trained: np.ndarray
    nonmember_trained: np.ndarray
    messages: list[str] = field(default_factory=list)  # disagreements, one sentence each; empty = none

    @property
    def agrees(self) -> bool:
        """No row is called what it is not."""
        return not self.messages

    @property
    def n_validation(self) -> int:
        """Rows that chose the checkpoint: scored, but no evidence for or against it."""
        return int(self.validation.sum())


def text_hashes(texts: Iterable[str]) -> list[str]:
    """SHA-256 of each full rendered text, as hexadecimal digits."""
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def select_rows(
    frame: pd.DataFrame, spec: FinetuneSpec, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the rows to train on and the rows that pick `best`.

    frame: example_id, group, split (text or NA), member (boolean or NA), in data order. Training rows are those with
    member = true where the data says who is a member, else those of spec.train_splits where it has splits, else all.
    Splits named besides the default one are meant: then they choose, and a non-member in them is an error.
    Validation rows follow spec.validation: a share of the training rows' subjects (drawn with `rng`, default from
    spec.seed), the rows of unknown membership, or a split; they are never trained on.

    Returns two sorted int64 arrays of row positions. Raises DatasetError when nothing is left to train on or to
    validate with, or when a row to train on has member = false.
    """
    member = frame["member"].astype("boolean")
    split = frame["split"]
    train, where = _training_mask(member, split, spec)
    validation = np.zeros(len(frame), dtype=bool)
    if spec.validation == "unknown":
        validation = member.isna().to_numpy() & ~train
        if not validation.any():
            raise _nothing("validation: unknown", "every row is a member or a non-member; give a share, as in 0.1")
    elif isinstance(spec.validation, str):
        validation = (split == spec.validation).fillna(False).to_numpy(dtype=bool)
        if not validation.any():
            raise _nothing(f"validation: {spec.validation}", "no row is in that split; give a share, as in 0.1")
    elif spec.validation > 0:
        validation = _share(frame, train, float(spec.validation), rng or np.random.default_rng(spec.seed))
    train &= ~validation
    if not train.any():
        raise _nothing("nothing to train on", f"of {len(frame):,} rows, {where}, and validation took the rest")
    wrong = train & (member == False).fillna(False).to_numpy(dtype=bool)  # noqa: E712 - NA is neither
    if wrong.any():
        raise _called_nonmember(frame, wrong)
    return np.flatnonzero(train), np.flatnonzero(validation)


def trained_on_table(
    example_ids: Sequence[str], hashes: Sequence[str], train_rows: np.ndarray, validation_rows: np.ndarray
) -> pd.DataFrame:
    """Table of a checkpoint's rows: example_id, text_sha256, used ("train" or "validation")."""
    rows = np.concatenate([train_rows, validation_rows]).astype(np.int64)
    used = ["train"] * len(train_rows) + ["validation"] * len(validation_rows)
    return pd.DataFrame(
        {
            "example_id": [str(example_ids[i]) for i in rows],
            "text_sha256": [hashes[i] for i in rows],
            "used": used,
        }
    ).astype("str")


def load_trained_on(checkpoint: Path) -> pd.DataFrame | None:
    """Read what a checkpoint folder was trained on; None when it does not say. Raises ModelError when unreadable."""
    path = Path(checkpoint) / TRAINED_ON
    if not path.is_file():
        return None
    try:
        return pd.read_parquet(path, columns=["example_id", "text_sha256", "used"])
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors derive from ValueError
        raise ModelError(f"{path}: cannot be read ({error}). Remove the file to audit without it.") from None


def agreement(member: pd.Series, hashes: Sequence[str], trained_on: pd.DataFrame) -> Agreement:
    """Hold a member column against what was trained on, by the text itself (row names may differ between files).

    member: boolean or NA [n]; hashes: SHA-256 of the rows' full texts [n]; trained_on: the checkpoint's table.
    """
    used = trained_on["used"].to_numpy(dtype=object)
    known = trained_on["text_sha256"].to_numpy(dtype=object)
    text = pd.Series(list(hashes), dtype=object)
    trained = text.isin(known[used == "train"]).to_numpy(dtype=bool)
    validation = text.isin(known[used == "validation"]).to_numpy(dtype=bool) & ~trained
    said = member.astype("boolean").reset_index(drop=True)
    yes = said.fillna(False).to_numpy(dtype=bool)
    no = (~said).fillna(False).to_numpy(dtype=bool)
    # A member that was held out for validation is not a mistake of the column: it leaves the metrics by itself.
    missing, extra = yes & ~trained & ~validation, no & trained
    messages = []
    if yes.any() and not (trained | validation).any():
        messages.append(
            "None of these texts was trained on: is it another checkpoint, another file or another template?"
        )
    elif missing.any():
        messages.append(f"{missing.sum():,} of {yes.sum():,} rows called member were not trained on{_rows(missing)}.")
    if extra.any():
        messages.append(f"{extra.sum():,} of {no.sum():,} rows called non-member were trained on{_rows(extra)}.")
    return Agreement(trained, validation, missing, extra, messages)


def _training_mask(member: pd.Series, split: pd.Series, spec: FinetuneSpec) -> tuple[np.ndarray, str]:
    named = tuple(spec.train_splits) != ("train",)
    has_split = split.notna().any()
    if ("member" in spec.data.roles or member.notna().any()) and not (named and has_split):
        return member.fillna(False).to_numpy(dtype=bool, copy=True), "none has member = true"
    if has_split:
        wanted = split.isin(spec.train_splits).to_numpy(dtype=bool, copy=True)
        return wanted, f"none is in split {' or '.join(spec.train_splits)}"
    return np.ones(len(split), dtype=bool), "none is there"


def _share(frame: pd.DataFrame, train: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    group = frame["group"].astype("str").where(frame["group"].notna(), frame["example_id"].astype("str"))
    subjects = np.array(sorted(set(group[train])), dtype=object)
    if len(subjects) < 2:
        raise _nothing(
            f"validation: {share}",
            f"{len(subjects)} subject to train on cannot be divided; set validation: 0 or add rows",
        )
    count = min(max(1, round(share * len(subjects))), len(subjects) - 1)
    chosen = set(rng.permutation(subjects)[:count])
    return train & group.isin(chosen).to_numpy(dtype=bool)


def _rows(mask: np.ndarray) -> str:
    first = np.flatnonzero(mask)[:3] + 1
    return f" (data rows {', '.join(f'{row:,}' for row in first)}{', ...' if mask.sum() > 3 else ''})"


def _nothing(what: str, why: str) -> DatasetError:
    return DatasetError(f"{what}: {why}.")


def _called_nonmember(frame: pd.DataFrame, wrong: np.ndarray) -> DatasetError:
    first = frame["example_id"].iloc[int(np.flatnonzero(wrong)[0])]
    return DatasetError(f"{int(wrong.sum()):,} rows to train on have member = false, first '{first}'.")
