"""What the numbers say. In: tables of a run. Out: sentences in plain words, for pages, reports and the command line.

A sentence is a list of strings, some of them `words.Strong`; `words.plain` joins it, `words.sentence_html` escapes it.
Names that come from the user (attributes, classes, columns) stand in it as written: escape when drawing.
"""

import pandas as pd

from auditcore.claims import claim
from auditcore.findings.attackers import code_length_words, giveaway_sentence, giveaways
from auditcore.findings.common import (
    HEADLINE_FPR,
    TEST_SPLITS,
    alarms,
    attack_name,
    baseline,
    both_sentence,
    judging_split,
    looks_sentence,
    p_words,
    score_number,
    share,
)
from auditcore.findings.compare import comparison_finding, settings_finding
from auditcore.findings.costs import attack_costs
from auditcore.findings.groups import Subjects, shared_subjects, subjects, subjects_finding
from auditcore.findings.membership import (
    blind_sentence,
    excess_sentence,
    finest_fpr,
    membership_finding,
    no_difference,
    points,
    roc_sentence,
    scores_sentence,
    strongest_attack,
    tie_reasons,
    unresolved_notes,
)
from auditcore.findings.rows import (
    FORCED,
    called,
    row_sentence,
    score_words,
    scores_title,
    status_words,
    threshold_at,
    tokens_under_both,
)
from auditcore.findings.sweep import at_rate, checkpoints_finding, finest_rate, matched_finding
from auditcore.findings.vectors import (
    POINT_RULE,
    accuracy_sentence,
    artifact_verdicts,
    artifact_words,
    confident_by_class,
    confident_interval,
    confident_sentence,
    confusion_sentence,
    gap_sentence,
    leakiest,
    null_sentence,
    pooled,
    power_sentence,
    projection_sentence,
    strongest,
    together,
    vectors_finding,
)
from auditcore.membership.ties import reason as tie_reason
from auditcore.verdict import MEANINGS, combine

__all__ = [
    "FORCED",
    "HEADLINE_FPR",
    "MEANINGS",
    "POINT_RULE",
    "TEST_SPLITS",
    "Subjects",
    "accuracy_sentence",
    "alarms",
    "artifact_verdicts",
    "artifact_words",
    "at_rate",
    "attack_costs",
    "attack_name",
    "baseline",
    "blind_sentence",
    "both_sentence",
    "called",
    "checkpoints_finding",
    "claim",
    "code_length_words",
    "comparison_finding",
    "confident_by_class",
    "confident_interval",
    "confident_sentence",
    "confusion_sentence",
    "excess_sentence",
    "finest_fpr",
    "finest_rate",
    "gap_sentence",
    "giveaway_sentence",
    "giveaways",
    "judging_split",
    "leakiest",
    "looks_sentence",
    "matched_finding",
    "membership_finding",
    "no_difference",
    "null_sentence",
    "overall",
    "p_words",
    "points",
    "pooled",
    "power_sentence",
    "projection_sentence",
    "roc_sentence",
    "row_sentence",
    "score_number",
    "score_words",
    "scores_sentence",
    "scores_title",
    "settings_finding",
    "share",
    "shared_subjects",
    "status_words",
    "strongest",
    "strongest_attack",
    "subjects",
    "subjects_finding",
    "threshold_at",
    "tie_reason",
    "tie_reasons",
    "together",
    "tokens_under_both",
    "unresolved_notes",
    "vectors_finding",
]


def overall(verdicts: pd.DataFrame) -> str:
    """Return the run's verdict from the table `verdicts`: its own combined line, else the rule without over-claiming.

    The combined line is the one whose attacker is `all`. Without it nothing is called over budget that Holm's
    correction might take back, unless there is one attacker only.
    """
    if verdicts.empty:
        return "not resolved"
    combined = verdicts[verdicts["attacker"] == "all"]
    if len(combined):
        return combine(combined["verdict"].tolist(), [0.0] * len(combined))
    each = verdicts["verdict"].tolist()
    return combine(each) if len(each) == 1 else combine(each, [None] * len(each))
