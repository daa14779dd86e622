"""What a data set looks like before it is audited. In: a data spec and a template. Out: counts, lengths, telling words.

Words are compared, class against the rest, by the share of subjects whose text holds them: the signed root of the
likelihood ratio (Dunning 1993), which is right for words that one side never uses. Subjects are counted, not tokens, so
that neither a long text nor many rows count twice. A word beyond the Bonferroni bound over all words and classes is
marked: it is a proxy of the label, which any vector of the text may carry.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd

from auditcore.datasets.lengths import lengths_of, sampled_lengths
from auditcore.datasets.roles import Dataset, load_dataset, plan_columns, render
from auditcore.errors import DatasetError
from auditcore.spec import SPLITS, DataSpec

FEWEST = 10  # subjects that use a word; rarer ones say nothing about a class, and could name a person
SHOWN = 6  # words per class
CLASSES = 12  # of an attribute with more, the most frequent are compared
ALPHA = 0.05
WORD = re.compile(r"[^\W\d_](?:[\w'’-]*[^\W_])?")
NO_SPLIT = "no split"
Deal = Callable[[pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True)
class Portrait:
    """Tables for a page.

    splits: split, subjects, rows; balance: attribute, split, class, subjects, rows; lengths: int64 [sample], in `unit`;
    words: attribute, class, word, z, share (of the class's subjects that use it), share_rest, subjects, marked;
    compared: attribute -> words compared; notes: what was left out; n_rows: of which lengths may be a sample; dealt:
    a sentence on the splits, where they are not the data's own.
    """

    splits: pd.DataFrame
    balance: pd.DataFrame
    lengths: np.ndarray
    unit: str
    words: pd.DataFrame
    compared: dict[str, int]
    notes: list[str]
    n_rows: int = 0
    dealt: str = ""

    def to_text(self) -> str:
        """Splits and the strongest words, for a terminal."""
        lines = ["", "splits", self.splits.to_string(index=False)] if len(self.splits) > 1 else []
        marked = self.words[self.words["marked"]]
        if self.compared:
            lines += ["", "words that tell classes apart" if len(marked) else "no single word tells classes apart"]
        for (attribute, name), some in marked.groupby(["attribute", "class"], sort=False):
            told = ", ".join(f"{w} ({a:.0%}, {b:.0%} elsewhere)" for w, a, b in _triples(some.head(5)))
            lines.append(f"  {attribute} {name}: {told}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def _triples(rows: pd.DataFrame) -> list[tuple[str, float, float]]:
    return list(zip(rows["word"], rows["share"], rows["share_rest"], strict=True))


def portrait(
    data: DataSpec, template: str | None, tokenizer_file: Path | None = None, deal: Deal | None = None
) -> Portrait:
    """Read the rows and count. The label, or else the member role, is what words are compared by.

    template: None for rows without a text: classes and splits are counted then. tokenizer_file: lengths are in tokens
    with it, in words without. deal: how an audit fills the split of a frame whose data brings none (`splits`). Raises
    DatasetError like the audit would.
    """
    dataset = load_dataset(data, template)
    frame, dealt = _dealt(dataset.frame, deal)
    frame = frame.assign(split=frame["split"].astype("object").fillna(NO_SPLIT))
    attributes = list(dataset.labels)
    if not attributes and frame["member"].notna().any():
        frame = frame.assign(member=frame["member"].map({True: "member", False: "non-member"}).astype("object"))
        attributes = ["member"]
    lengths = np.zeros(0, dtype=np.int64)
    if template is not None and data.clinical is not None:  # joined in memory: no one file holds the rows
        lengths = lengths_of(render(template, dataset.fields, len(frame)), dataset.target, tokenizer_file)
    elif template is not None:
        lengths = sampled_lengths(plan_columns(data, template), template, len(frame), tokenizer_file)
    held = _words_of_subjects(dataset, frame)
    words, compared, notes = [], {}, []
    for attribute in attributes:
        table, n, left_out = telling_words(held, frame, attribute)
        words.append(table.assign(attribute=attribute))
        compared[attribute] = n
        notes += left_out
    columns = ["attribute", "class", "word", "z", "share", "share_rest", "subjects", "marked"]
    nothing = pd.DataFrame(columns=columns).astype({"marked": bool})
    found = pd.concat(words, ignore_index=True)[columns] if words else nothing
    unit = "words" if tokenizer_file is None else "tokens"
    return Portrait(
        _splits(frame), _balance(frame, attributes), lengths, unit, found, compared, notes, len(frame), dealt
    )


def _dealt(frame: pd.DataFrame, deal: Deal | None) -> tuple[pd.DataFrame, str]:
    """The frame with the splits that an audit will make, and words for them; as it is where the data brings some."""
    if deal is None or frame["split"].notna().any():
        return frame, ""
    try:
        made = deal(frame)
    except DatasetError as error:
        return frame, f"The data has no split, and none can be dealt: {error}"
    table = _splits(made[made["split"].notna()])
    counts = ", ".join(f"{name} {n:,}" for name, n in zip(table["split"], table["subjects"], strict=True))
    return made, f"The data has no split: the audit will deal subjects at random, by label: {counts} subjects."


def telling_words(
    held: dict[str, set[str]], frame: pd.DataFrame, attribute: str
) -> tuple[pd.DataFrame, int, list[str]]:
    """Words of each class, most telling first; how many words were compared; what was left out.

    held: subject -> words of its texts; frame: columns group and `attribute`. A subject whose rows name two classes is
    left out. Columns: class, word, z, share, share_rest, subjects, marked.
    """
    known = frame.loc[frame[attribute].notna(), ["group", attribute]].drop_duplicates()
    single = known[~known["group"].duplicated(keep=False)].set_index("group")[attribute].astype(str)
    notes = []
    if two := known["group"][known["group"].duplicated()].nunique():
        notes.append(f"{attribute}: {two:,} subjects name two classes and are left out of the comparison of words.")
    sizes = single.value_counts()
    if len(sizes) > CLASSES:
        notes.append(f"{attribute}: words are compared for the {CLASSES} most frequent of {len(sizes):,} classes.")
    by_class = {str(name): Counter[str]() for name in sizes.index}
    for subject, name in single.items():
        by_class[str(name)].update(held[str(subject)])
    total: Counter[str] = sum(by_class.values(), Counter())
    vocabulary = sorted(word for word, n in total.items() if n >= FEWEST)
    columns = ["class", "word", "z", "share", "share_rest", "subjects", "marked"]
    if len(sizes) < 2 or not vocabulary:
        return pd.DataFrame(columns=columns).astype({"marked": bool}), 0, notes
    names = sorted(str(name) for name in sizes.index[:CLASSES])
    everywhere = np.array([total[word] for word in vocabulary], dtype=np.float64)
    bound = NormalDist().inv_cdf(1 - ALPHA / (2 * len(vocabulary) * len(names)))
    rows = []
    for name in names:
        here = np.array([by_class[name][word] for word in vocabulary], dtype=np.float64)
        n, rest = float(sizes[name]), float(len(single) - sizes[name])
        z = likelihood_z(here, n, everywhere - here, rest)
        for at in np.argsort(-z, kind="stable")[:SHOWN]:
            if z[at] > 0:
                share, other = here[at] / n, (everywhere[at] - here[at]) / rest
                rows.append((name, vocabulary[at], z[at], share, other, int(everywhere[at]), bool(z[at] >= bound)))
    return pd.DataFrame(rows, columns=columns).astype({"marked": bool}), len(vocabulary), notes


def likelihood_z(here: np.ndarray, n_here: float, there: np.ndarray, n_there: float) -> np.ndarray:
    """Signed root of the likelihood ratio of two shares against a common one, float64 [words]; positive: more here.

    here, there: subjects of each group that use the word; n_here, n_there: subjects of each group.
    """

    def likelihood(used: np.ndarray, n: float, share: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            yes = np.where(used > 0, used * np.log(share), 0.0)
            no = np.where(used < n, (n - used) * np.log1p(-share), 0.0)
        return yes + no

    common = (here + there) / (n_here + n_there)
    apart = likelihood(here, n_here, here / n_here) + likelihood(there, n_there, there / n_there)
    alike = likelihood(here, n_here, common) + likelihood(there, n_there, common)
    return np.sign(here / n_here - there / n_there) * np.sqrt(2 * np.maximum(apart - alike, 0.0))


def _words_of_subjects(dataset: Dataset, frame: pd.DataFrame) -> dict[str, set[str]]:
    held: dict[str, set[str]] = {str(group): set() for group in frame["group"].unique()}
    for texts in dataset.fields.values():
        for group, text in zip(frame["group"], texts, strict=True):
            held[str(group)].update(WORD.findall(text.casefold()))
    return held


def _splits(frame: pd.DataFrame) -> pd.DataFrame:
    counted = frame.groupby("split", sort=False).agg(subjects=("group", "nunique"), rows=("group", "size"))
    order = [s for s in (*SPLITS, NO_SPLIT) if s in counted.index]
    return counted.loc[order].reset_index()


def _balance(frame: pd.DataFrame, attributes: list[str]) -> pd.DataFrame:
    parts = []
    for attribute in attributes:
        named = frame.assign(**{"class": frame[attribute].astype("object").fillna("no label").astype(str)})
        counted = named.groupby(["split", "class"]).agg(subjects=("group", "nunique"), rows=("group", "size"))
        parts.append(counted.reset_index().assign(attribute=attribute))
    columns = ["attribute", "split", "class", "subjects", "rows"]
    found = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    place = {name: i for i, name in enumerate((*SPLITS, NO_SPLIT))}
    order = found.assign(place=found["split"].map(place)).sort_values(["attribute", "place", "class"]).index
    return found.loc[order].reset_index(drop=True)
