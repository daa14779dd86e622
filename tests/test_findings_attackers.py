"""Words on giveaways and code lengths: said when an average hides them, and only when guessing cannot explain them."""

import numpy as np
import pandas as pd

from auditcore import cli, findings, summary
from auditcore.report.page import html_report
from auditcore.words import plain
from tests.fake_runs import vectors_run

ROW = {
    "attribute": "race", "artifact": "lasttok", "layer": 3, "defence": "none", "probe": "mlp", "seed": pd.NA,
    "split": "bal_test", "verdict": "within budget", "confident_share": 0.021, "confident_low": 0.017,
    "confident_high": 0.028, "confident_precision": 0.94, "confident_p": 1e-12,
}  # fmt: skip


def rows(*changes: dict) -> pd.DataFrame:
    return pd.DataFrame([{**ROW, **change} for change in changes])


def test_giveaways_behind_an_average_within_budget_are_said_with_their_interval():
    text = plain(findings.giveaway_sentence(rows({}, {"probe": "linear", "confident_share": 0.0, "confident_p": 1.0})))
    assert text == (
        "An average that is not over the budget hides certain giveaways: 2.1\u202f% of subjects (1.7 to 2.8\u202f%, "
        "95 % interval) have their race named with near certainty from lasttok by mlp, 94\u202f% of them rightly."
    )


def test_what_guessing_explains_or_an_open_leak_shows_anyway_is_not_said():
    assert findings.giveaway_sentence(rows({"confident_p": 0.03}, {"probe": "knn", "confident_p": 0.2})) == []
    assert findings.giveaway_sentence(rows({"verdict": "over budget"})) == []
    assert findings.giveaway_sentence(rows({"seed": 1})) == []
    assert findings.giveaway_sentence(rows({}), attribute="sex") == []
    assert findings.giveaway_sentence(rows({}).drop(columns=["confident_p"])) == []  # an older run
    assert findings.giveaway_sentence(rows({"split": "bal_val"})) == []


def test_giveaways_behind_a_defence_are_said_with_its_name_even_in_a_run_without_the_plain_vectors():
    open_leak = {"verdict": "over budget", "confident_share": 0.3}
    found = plain(findings.giveaway_sentence(rows(open_leak, {"defence": "leace", "n_subjects": 900})))
    assert "2.1\u202f% of subjects (1.7 to 2.8\u202f%, 95 % interval, of 900)" in found
    assert "from lasttok behind leace by mlp" in found
    pca = {"defence": "pca", "confident_share": 0.01}
    alone = plain(findings.giveaway_sentence(rows({"defence": "leace"}, pca, {"defence": "pca", "probe": "knn"})))
    assert "behind leace by mlp" in alone
    assert alone.endswith("; 2 more attackers name some too (behind pca).")
    # One correction over everything that was looked at: what is 0.03 among many is luck.
    luck = {"defence": "leace", "confident_p": 0.03}
    assert findings.giveaway_sentence(rows(open_leak, luck, {"defence": "pca", "confident_p": 0.5})) == []


def test_several_attackers_are_counted():
    found = plain(findings.giveaway_sentence(rows({}, {"probe": "knn", "confident_share": 0.03}, {"probe": "gbt"})))
    assert "by knn" in found
    assert "2 more attackers" in found


def test_code_length_in_words():
    assert findings.code_length_words({"mdl_bits": 1.5, "mdl_compression": 4 / 3}) == "1.50 bits a row, 2.00 uncoded"
    assert findings.code_length_words({"mdl_bits": np.nan, "mdl_compression": np.nan}) == "not measured"
    assert findings.code_length_words({}) == "not measured"


def test_page_command_line_and_report_all_say_it(tmp_path, capsys):
    run = vectors_run(tmp_path / "run", rows=400, gap=0.3)
    metrics = run.read("probe_metrics")
    run.write(
        "probe_metrics", metrics.assign(verdict=metrics["verdict"].where(metrics["verdict"].isna(), "not resolved"))
    )
    sentence = plain(summary.giveaway_sentences(run)[0])
    assert cli.main(["show", str(run.path)]) == 0
    assert sentence in capsys.readouterr().out
    assert "hides certain giveaways" in html_report(run)
    assert "code length, bits a row" in html_report(run)


def test_how_a_null_band_was_made_is_said_by_attacker():
    rows = pd.DataFrame(
        {
            "probe": ["linear", "mlp", "gbt", "linear"],
            "permutations": [199] * 4,
            "null_refits": [199, 199, 20, 199],
            "null_rows": [2000, 2000, 2000, 2002],
            "n_train": [2500] * 4,
        }
    )
    text = findings.null_sentence(rows)
    assert text.startswith("Null band: 199 permutations of the labels by subject")
    assert "linear and mlp refitted for each on 2,000 of 2,500 training rows" in text
    assert "gbt refitted 20 times on 2,000 of 2,500 training rows" in text
    whole = findings.null_sentence(rows.assign(null_refits=199, null_rows=2500))
    assert whole.endswith("linear, mlp and gbt refitted for each on all 2,500 training rows.")
    assert findings.null_sentence(rows.drop(columns="null_refits")) == ""
    assert findings.null_sentence(rows.assign(null_refits=None)) == ""


def test_near_certainty_says_its_rule_its_interval_and_how_often_it_was_right() -> None:
    row = {"confident_share": 0.099, "confident_precision": 0.87, "n_subjects": 1050}
    text = plain(findings.confident_sentence(row))
    assert "9.9\u202f% of subjects (8.2 to 11.9\u202f%, 95 % interval, of 1,050 subjects)" in text
    assert "threshold on other subjects, above which 9 of 10 of its names are right" in text
    assert "On these subjects 87\u202f% of them were (79 to 92\u202f%, 95 % interval)" in text
    kept = plain(findings.confident_sentence({**row, "confident_low": 0.08, "confident_high": 0.12}))
    assert "(8.0 to 12.0\u202f%" in kept
    nobody = plain(findings.confident_sentence({**row, "confident_share": 0.0, "confident_precision": float("nan")}))
    assert "0.0\u202f% of subjects (0.0 to 0.4\u202f%" in nobody
    assert "On these subjects" not in nobody
    assert nobody.endswith("An average can hide such giveaways.")  # a run that does not say what it could have missed


def test_near_certainty_says_whose_label_counts_by_class_and_what_an_empty_result_may_have_missed() -> None:
    row = {"confident_share": 0.02, "confident_precision": 0.9, "n_subjects": 350, "confident_least": 10 / 325}
    assert plain(findings.confident_sentence(row)).endswith("By class, only who is named so rightly:")
    nobody = {**row, "confident_share": 0.0, "confident_precision": float("nan")}
    told = "; fewer than in 3.1\u202f% of subjects would more likely than not have been missed."
    assert plain(findings.confident_sentence(nobody)).endswith(told)
    few = plain(findings.confident_sentence({**nobody, "confident_least": 1.0}))
    assert few.endswith("hide such giveaways; so few subjects show none.")


def test_a_p_value_at_the_floor_of_its_permutations_is_a_bound() -> None:
    assert findings.p_words({"p_value": 0.005, "permutations": 199}) == "≤ 0.005"
    assert findings.p_words({"p_value": 0.005}, 199) == "≤ 0.005"
    assert findings.p_words({"p_value": 0.01, "permutations": 199}) == "0.010"
    assert findings.p_words({"p_value": 0.005}) == "0.005"
    assert findings.p_words({"p_value": float("nan"), "permutations": 199}) == "–"
