"""What defences on vectors achieve. In: `probe_metrics`, `defence_costs`, `defence_effects`. Out: rows and sentences.

A defence stops what it was built against, which is mostly a linear reader: where linear probes fall and another probe
still reads the label, that is said before anything else.
"""

from typing import Any

import pandas as pd

from auditcore.findings import corrected
from auditcore.findings.attackers import certain
from auditcore.findings.common import TEST_SPLITS, records, share, short
from auditcore.findings.vectors import artifact_words
from auditcore.verdict import NOT_RESOLVED, OVER, SYMBOLS, WITHIN, combine
from auditcore.words import Strong, count, counted, interval, known, listed, number, percent, percent_interval, signed

PLACE = ["artifact", "layer", "defence"]
OVERLAP, VARIANCE = "retrieval_overlap_at_10", "variance_kept"


def has_defences(metrics: pd.DataFrame) -> bool:
    """True when the run audits anything beside the vectors as they are."""
    return bool((metrics["defence"].fillna("none") != "none").any())


def defended(metrics: pd.DataFrame, attribute: str, split: str = "bal_test") -> pd.DataFrame:
    """Seed-averaged rows of one attribute and split, every defence.

    With p_adjusted, after Holm's correction over every test of the same defence, as in table `verdicts`; and named, the
    share of subjects named with near certainty, 0 where guessing may have named them.
    """
    every = metrics[(metrics["split"] == split) & metrics["seed"].isna()]
    named = certain(metrics, split)
    share_of = named["confident_share"].reindex(every.index) if len(named) else pd.Series(0.0, every.index)
    rows = _corrected(every.assign(named=share_of.astype(float).fillna(0.0)))
    return rows[rows["attribute"] == attribute]


def _corrected(rows: pd.DataFrame) -> pd.DataFrame:
    parts = [corrected.adjusted(part) for _, part in rows.groupby("defence", sort=False)]
    return pd.concat(parts).loc[rows.index] if parts else corrected.adjusted(rows)


def table_of(metrics: pd.DataFrame, costs: pd.DataFrame | None, attribute: str, split: str) -> pd.DataFrame:
    """What `summarise` says of one attribute; while the test rows judge, the selection rows choose."""
    judge, choose = TEST_SPLITS
    chooses = defended(metrics, attribute, choose) if split == judge else None
    return summarise(defended(metrics, attribute, split), costs, attribute, chooses)


def summarise(
    rows: pd.DataFrame, costs: pd.DataFrame | None, attribute: str, chooses: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per artifact, layer and defence, in the order of the run.

    rows: what `defended` returns; costs: table `defence_costs` or None; chooses: what `defended` returns of other rows,
    on which the best defence is chosen. Columns: artifact, layer, defence, probe (the strongest), accuracy, signed_gap,
    signed_low90, signed_high90, chance, verdict (over all probes, after Holm's correction), named (the most that one
    probe names with near certainty), gap_chosen (the largest LeakageGap on `chooses`), linear_only (the other probes
    that still read it), overlap, overlap_low, overlap_high, variance, removed, width, n_fit, n_subjects_fit. Costs of
    "none" are 1; unknown ones are missing.
    """
    rows = rows if "p_adjusted" in rows else _corrected(rows)
    largest: Any = {} if chooses is None else chooses["signed_gap"].abs().groupby([chooses[k] for k in PLACE]).max()
    lines = []
    for place, some in rows.groupby(PLACE, sort=False):
        artifact, layer, defence = place
        best = some.sort_values("signed_gap", ascending=False, kind="stable").iloc[0]
        before = rows[(rows["artifact"] == artifact) & (rows["layer"] == layer) & (rows["defence"] == "none")]
        keep = ("probe", "accuracy", "signed_gap", "signed_low90", "signed_high90", "chance", "n_subjects")
        words = [v if v in SYMBOLS else NOT_RESOLVED for v in some["verdict"]]
        lines.append(
            {
                "artifact": artifact,
                "layer": int(best["layer"]),
                "defence": defence,
                **{name: best[name] for name in keep},
                "verdict": combine(words, some["p_adjusted"].tolist()),
                "named": some["named"].max() if "named" in some else 0.0,
                "gap_chosen": largest.get(place, float("nan")),
                "linear_only": [] if defence == "none" else linear_only(before, some),
                **_cost(costs, attribute, artifact, layer, defence),
            }
        )
    return pd.DataFrame(lines)


def linear_only(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Probes over budget behind a defence that the linear probe, over budget before, no longer is; [] otherwise."""

    def is_over(rows: pd.DataFrame, probe: str) -> bool:
        return bool((rows.loc[rows["probe"] == probe, "verdict"] == OVER).any())

    if not is_over(before, "linear") or is_over(after, "linear") or not (after["probe"] == "linear").any():
        return []
    return [str(p) for p in after["probe"] if p != "linear" and is_over(after, str(p))]


def _cost(costs: pd.DataFrame | None, attribute: str, artifact: object, layer: object, defence: object) -> dict:
    empty = dict.fromkeys(("overlap", "overlap_low", "overlap_high", "variance", "removed", "width", "n_fit"))
    empty["n_subjects_fit"] = None
    if defence == "none":
        return {**empty, "overlap": 1.0, "variance": 1.0, "removed": 0}
    if costs is None or costs.empty:
        return empty
    place = (costs["attribute"] == attribute) & (costs["artifact"] == artifact) & (costs["layer"] == layer)
    mine = costs[place & (costs["defence"] == defence)].set_index("measure")
    if mine.empty:
        return empty
    overlap = mine.loc[OVERLAP] if OVERLAP in mine.index else {"value": None, "low": None, "high": None}
    first = mine.iloc[0]
    return {
        "overlap": overlap["value"],
        "overlap_low": overlap["low"],
        "overlap_high": overlap["high"],
        "variance": mine.loc[VARIANCE, "value"] if VARIANCE in mine.index else None,
        **{name: first[name] for name in ("removed", "width", "n_fit", "n_subjects_fit")},
    }


def best_defence(table: pd.DataFrame, artifact: str, layer: int, budget: float) -> dict | None:
    """The cheapest defence of `summarise` whose attackers all keep to the budget, else the one that leaves least.

    Chosen by the estimate on the selection rows (`gap_chosen`), as a checkpoint is, so that what the test rows say of
    it is not the luckiest of several; on the test rows where no others were read. The cost is measured without labels.
    The key `choice` says how it was chosen, "" where there was nothing to choose from; `apart` whether on other rows.
    """
    mine = table[(table["artifact"] == artifact) & (table["layer"] == layer) & (table["defence"] != "none")]
    if mine.empty:
        return None
    apart = bool(mine["gap_chosen"].map(known).all())
    gap = mine["gap_chosen"] if apart else mine["signed_gap"].abs()
    meet = mine[gap <= budget].sort_values("overlap", ascending=False, kind="stable")
    best = records(meet if len(meet) else mine.loc[gap.sort_values(kind="stable").index])[0]
    how = "on the selection rows" if apart else "on the very rows it is judged on, which flatters it"
    choice = f"chosen among {counted(len(mine), 'defence')} {how}" if len(mine) > 1 else ""
    return {**best, "choice": choice, "apart": apart}


def defences_finding(table: pd.DataFrame | None, attribute: str, budget: float) -> list[str]:
    """The page's sentence, from `summarise` (None: nothing measured): best defence of the leakiest artifact."""
    if table is None or table.empty:
        return ["Nothing has been measured yet: this run has no finished probe."]
    if not (table["defence"] != "none").any():
        return ["This run audits the vectors as they are: no defence was asked for."]
    several = table["layer"].nunique() > 1
    plain = table[table["defence"] == "none"].sort_values("signed_gap", ascending=False, kind="stable")
    lead = records(plain if len(plain) else table.sort_values("signed_gap", ascending=False, kind="stable"))[0]
    best = best_defence(table, lead["artifact"], lead["layer"], budget)
    if best is None:
        return [f"No defence of {lead['artifact']} has been measured yet."]
    parts = ["Behind ", Strong(str(best["defence"])), f", an attacker holding {artifact_words(lead, several)} "]
    parts += [f"names {attribute} correctly for ", Strong(f"{share(best['accuracy'])} subjects")]
    undefended = f", {short(lead['accuracy'])} without it" if lead["defence"] == "none" else ""
    parts.append(f"{undefended}; guessing gives {short(lead['chance'])}. ")
    if known(best["overlap"]):
        parts.append(f"It keeps {percent(best['overlap'], 0)} of nearest neighbours. ")
    parts += _verdict_words(table, best, budget)
    return [*parts, *linear_only_sentence(table)]


def _verdict_words(table: pd.DataFrame, best: dict, budget: float) -> list[str]:
    there = "; on the test rows it is " if best["apart"] else ": it is "
    head = f"It was {best['choice']}{there}" if best["choice"] else "That is "
    if best["verdict"] == WITHIN:
        return [head, Strong(f"within the budget of {budget:g}"), "."]
    tried = table[table["defence"] != "none"]
    within = int((tried["verdict"] == WITHIN).sum())
    words = f"over the budget of {budget:g}" if best["verdict"] == OVER else f"not resolved at a budget of {budget:g}"
    rest = f"{within or 'none'} {'are' if within > 1 else 'is'} within it"
    return [head, Strong(words), f"; of {counted(len(tried), 'defended artifact')} {rest}."]


FALLS_MORE = (
    "Linear falls more: the strongest attacker behind the defence is another one, over budget, and the linear probe "
    "lost accuracy, more than that one did (95 % interval of the difference above 0: rows paired, subjects resampled, "
    "no correction for several defences)."
)


def mark(line: dict[Any, Any]) -> str:
    """What a glance must see of one row of `summarise`; "" where linear and other attackers fall alike.

    falls_more: where it was tested (see FALLS_MORE), the attacker that reads on and by how much less it lost.
    """
    if line["linear_only"]:
        return "only linear falls"
    return "linear falls more" if isinstance(line.get("falls_more"), dict) else ""


def marks(table: pd.DataFrame) -> dict[str, str]:
    """Defence -> `mark` of one artifact and layer."""
    return {str(line["defence"]): mark(line) for line in records(table)}


def linear_only_sentence(table: pd.DataFrame) -> list[str]:
    """Where a defence stops the linear probe only, or more than the others; [] where there is no such place."""
    marked = table[table["linear_only"].map(len) > 0]
    if marked.empty:
        return _falls_more_sentence(table)
    behind = listed(list(dict.fromkeys(str(d) for d in marked["defence"])))
    probes = list(dict.fromkeys(p for probes in marked["linear_only"] for p in probes))
    held = listed(list(dict.fromkeys(str(a) for a in marked["artifact"])))
    does, reads = ("does", "reads") if len(probes) == 1 else ("do", "read")
    return [
        " ",
        Strong(f"Linear falls, {listed(probes)} {does} not"),
        f": behind {behind} the linear probe is no longer over budget on {held}, and {listed(probes)} still {reads} "
        "the label.",
        *_falls_more_sentence(table),
    ]


def _falls_more_sentence(table: pd.DataFrame) -> list[str]:
    found = [line for line in records(table) if mark(line) == "linear falls more"]
    if not found:
        return []
    worst = max(found, key=lambda line: float(line["falls_more"]["change"]))
    by = worst["falls_more"]
    change, low, high = (number(100 * by[name], 1) for name in ("change", "low", "high"))
    rest = f" So it is in {counted(len(found) - 1, 'more place', 'more places')}." if len(found) > 1 else ""
    return [
        " ",
        Strong(f"Linear falls more than {by['probe']}"),
        f": behind {worst['defence']} on {worst['artifact']} it loses {change} points more (95 % interval {low} to "
        f"{high}, {counted(int(by['n_subjects']), 'subject')}, paired by row), and {by['probe']} reads most.{rest}",
    ]


def cost_sentence(row: dict, budget: float) -> list[str]:
    """Caption of the picture of leakage against cost. row: of `best_defence`."""
    chosen = f", {row['choice']}," if row["choice"] else ""
    if row["verdict"] == WITHIN:
        return [f"{row['defence']}{chosen} is within the budget of {budget:g} and keeps ", Strong(_kept(row)), "."]
    ends = interval(row["signed_low90"], row["signed_high90"])
    left = f" leaves {number(row['signed_gap'])} (90 % interval {ends}), not within {budget:g}, and keeps "
    return [f"{row['defence']}{chosen}{left}", Strong(_kept(row)), "."]


def _kept(row: dict) -> str:
    if not known(row["overlap"]):
        return "an unknown share of neighbours (too few rows)"
    spread = percent_interval(row["overlap_low"], row["overlap_high"], 0)
    return f"{percent(row['overlap'], 0)} of the ten nearest neighbours (95 % interval {spread})"


def change_sentence(effect: dict) -> list[str]:
    """One attacker's paired change in words."""
    points = [signed(100 * float(effect[name]), 1) for name in ("change", "low", "high")]
    n = counted(int(effect["n_subjects"]), "subject")
    who = f"{effect['artifact']}, {effect['probe']} behind {effect['defence']}: "
    spread = f" points of accuracy (95 % interval {points[1]} to {points[2]}, {n}, paired by row)."
    return [who, Strong(points[0]), spread]


def fit_sentence(table: pd.DataFrame) -> str:
    """How many rows the defences were fitted on, and what they removed."""
    fitted = table[table["n_fit"].fillna(0) > 0]  # directives, noise and truncation learn from no row
    if fitted.empty:
        return ""
    rows, subjects = fitted["n_fit"].max(), fitted["n_subjects_fit"].max()
    removed = fitted[fitted["defence"].isin(["pca", "pca_vectors", "inlp", "leace"])]
    text = f"Fitted on {count(rows)} rows of {count(subjects)} subjects that no probe sees"
    if len(removed):
        most, width = int(removed["removed"].max()), int(removed["width"].max())
        text += f"; erasers remove {most} of {count(width)} directions"
        if rows < width:
            text += ". Fewer rows than directions: an eraser then knows little about other rows"
    return f"{text}."
