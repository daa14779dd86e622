"""What all findings share. In: numbers and names. Out: the words a reader knows them by."""

from typing import Any

import pandas as pd

from auditcore.words import counted, half_up, known, number, percent, percent_interval

ATTACK_NAMES = {
    "ez": "EZ",
    "min_k": "Min-K%",
    "min_k_pp": "Min-K%++",
    "min_k_pp_ref": "Min-K%++ vs. reference",
    "wbc": "WBC",
    "lira": "LiRA",
    "recall": "ReCaLL",
    "neighbourhood": "neighbours",
    "spv": "SPV",
    "bow": "words alone",
}
PARTS = ("lasttok", "meanpool")  # what the artifact concat joins
HEADLINE_FPR = 0.01  # the false positive rate at which membership is judged
TEST_SPLITS = ("bal_test", "bal_val")  # the split that judges; the one that chooses while its rows are not read


def attack_name(attack: str) -> str:
    """Return the name a reader knows: "ez" -> "EZ"."""
    return ATTACK_NAMES.get(attack, attack)


def share(rate: object) -> str:
    """Say a share as a count: 0.846 -> "85 of 100", 0.0019 -> "2 of 1,000"; never a false 0 or 100."""
    if not known(rate):
        return "an unknown share"
    value = float(rate)
    if value in (0.0, 1.0):
        return "all" if value else "none"
    for base in (100, 1000):
        rounded = int(half_up(value * base))
        if 0 < rounded < base:
            return f"{rounded} of {base:,}"
    return "more than 999 of 1,000" if value > 0.5 else "fewer than 1 of 1,000"


def alarms(target_fpr: float) -> str:
    """Say a false-positive rate in words: 0.01 -> "1 row in 100"."""
    for base in (100, 1000, 10_000, 100_000):
        rows = target_fpr * base
        if abs(rows - round(rows)) < 1e-9 and round(rows) >= 1:
            return f"{counted(round(rows), 'row')} in {base:,}"
    return f"{100 * target_fpr:.3g} rows in 100"


def score_number(value: object) -> str:
    """A score or a threshold with the digits it deserves: "4.31", "0.012", "33,057"."""
    if not known(value):
        return number(value)
    size = abs(float(value))
    if size >= 1000:
        return f"{float(value):,.0f}".replace("-", "\u2212")
    return number(value, 1 if size >= 100 else 2 if size >= 0.1 or size == 0 else 4)


def short(rate: object) -> str:
    """Like `share`, without repeating what it is out of."""
    text = share(rate)
    return text.removesuffix(" of 100")


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as plain dicts."""
    return frame.to_dict("records")  # type: ignore[return-value]


def both_sentence(rows: list[dict[Any, Any]]) -> list[str]:
    """What holding both vectors gives at least, where the probe of their concatenation reads less than one alone.

    rows: one model, one label: artifact, accuracy, accuracy_low, accuracy_high. [] where the concatenation reads most.
    """
    told = [r for r in rows if known(r["accuracy"])]
    both = max((r for r in told if r["artifact"] == "concat"), key=lambda r: float(r["accuracy"]), default=None)
    alone = max((r for r in told if r["artifact"] in PARTS), key=lambda r: float(r["accuracy"]), default=None)
    if both is None or alone is None or float(alone["accuracy"]) < float(both["accuracy"]) + 0.0005:
        return []  # as it should be, or no difference that the words would show
    spread = percent_interval(alone["accuracy_low"], alone["accuracy_high"])
    return [
        f"Whoever holds both vectors can use the better one alone: they read at least {percent(alone['accuracy'])} "
        f"({alone['artifact']}, 95 % interval {spread}). That the probes of concat read less, "
        f"{percent(both['accuracy'])}, is their weakness and protects nobody: twice the numbers, from the same rows."
    ]


def p_words(row: Any, permutations: object = None) -> str:
    """A p-value by permutation: "0.031"; "≤ 0.005" where no permutation reached the value, the least it can be.

    permutations: of the run, where the row (of `probe_metrics`) does not hold its own.
    """
    p, made = row["p_value"], row.get("permutations")
    made = made if known(made) else permutations
    floor = known(p) and known(made) and float(p) <= 1 / (float(made) + 1) + 1e-12
    return f"{'≤ ' if floor else ''}{number(p)}"


def baseline(metrics: pd.DataFrame) -> str:
    """The defence a page shows unless asked for another: "none", or the first of a run that audits defences only."""
    names = metrics["defence"].dropna()
    return "none" if names.empty or (names == "none").any() else str(names.iloc[0])


def judging_split(metrics: pd.DataFrame) -> str:
    """The split that judges, or the one that chooses while the test rows are not read."""
    return next((s for s in TEST_SPLITS if (metrics["split"] == s).any()), TEST_SPLITS[0])


def looks_sentence(manifest: dict[str, Any]) -> str:
    """How many other runs had read the same test rows before; "" for the first, or where it is not known.

    manifest: of a run that read them.
    """
    looks = (manifest.get("test_split") or {}).get("earlier_looks") or 0
    if not looks:
        return ""
    return (
        f"{counted(int(looks), 'other run')} had read these test rows before this one: whatever was chosen after such "
        "a look is judged too kindly by them."
    )
