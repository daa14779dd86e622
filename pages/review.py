"""A decision meeting over two or three candidates. In: a run of checkpoints. Out: what they leak, write; a decision."""

import pandas as pd
import streamlit as st

from auditcore import decisions, findings, records, words
from auditcore.cards import Card, points, spread
from auditcore.decisions import Frontier
from auditcore.figures import frontier as frontier_figures
from auditcore.figures import review as figures
from auditcore.figures import tokens as token_figures
from auditcore.figures.tables import table_html
from auditcore.findings import frontier as say
from auditcore.store import Run
from auditcore.votes import Candidate
from auditcore.words import Strong
from pages import _frontier_choice as choice
from pages import _review_decide, _review_paired, _review_votes
from pages import _ui as ui

TITLE = "Review meeting"
CANDIDATES_KEY = "candidates"
MOST = 3


def main() -> None:
    """Draw the page for the run chosen in the sidebar."""
    run = ui.current_run()
    if run is None or run.kind not in decisions.KINDS:
        ui.head(TITLE)
        ui.other_question(run, f"two or three candidates out of {choice.WANTED}", choice.STARTS)
        return
    if not decisions.has_checkpoints(run):
        ui.head(TITLE)
        ui.run_warnings(run)
        ui.empty("No checkpoint has been measured yet.", "The page Checkpoint frontier fills as the run works.")
        return
    with ui.guard():
        _draw(run)


def _draw(run: Run) -> None:
    st.html(token_figures.style())
    head = st.container()
    others, attribute = choice.runs_and_label(run)
    seen = choice.view([run, *others], decisions.declared(run))
    of_runs = choice.names([run, *others])
    chosen = _candidates(run, seen, of_runs)
    with head:
        ui.head(TITLE, _finding(run, seen, chosen))
        ui.run_warnings(run)
        choice.changed_records(run)
    if len(chosen) < 2:
        ui.empty("Choose two or three candidates above.")
        return
    names = [_name(seen, c, of_runs) for c in chosen]
    _cards(run, seen, attribute, chosen, names)
    _pictures(seen, attribute, chosen, names)
    texts = {c: _generations(seen, c) for c in chosen}
    _numbers(run, seen, chosen, names, [texts[c]["example_id"].nunique() for c in chosen])
    _review_votes.draw(run, chosen, names, texts)
    _claim(run)
    _review_decide.draw(run, seen, chosen, names)


# --- who stands for election ---


def _candidates(run: Run, seen: Frontier, of_runs: dict[str, str]) -> list[Candidate]:
    """Two or three checkpoints, in the address; to begin with the rule's choice and what it stands against."""
    there = choice.checkpoints(seen)
    trained = [c for c in there if c[1] > 0]
    asked = [choice.parse(part, run.id) for part in str(st.query_params.get(CANDIDATES_KEY, "")).split(",") if part]
    start = [c for c in dict.fromkeys(asked) if c in there] or _start(seen, trained)
    picked = st.multiselect(
        "Candidates", there, default=start[:MOST], max_selections=MOST, key=f"candidates_{run.id}", width=640,
        format_func=lambda c: words.markdown(_name(seen, c, of_runs)),
    )  # fmt: skip
    if picked:
        st.query_params[CANDIDATES_KEY] = ",".join(choice.address(c, run.id) for c in picked)
    return list(picked)


def _start(seen: Frontier, trained: list[Candidate]) -> list[Candidate]:
    """The rule's choice (or the nearest), the best summaries, and the last checkpoint."""
    found: list[Candidate] = []
    if seen.at is not None:
        found.append((str(seen.at["run_id"]), int(seen.at["step"])))
    by_use = seen.candidates.sort_values("rougeL", ascending=False, na_position="last", kind="stable")
    found += [(str(r), int(s)) for r, s in zip(by_use["run_id"], by_use["step"], strict=True)][:2]
    return list(dict.fromkeys([*found, *trained[-1:]]))[: 2 if len(trained) < MOST else MOST]


def _name(seen: Frontier, candidate: Candidate, of_runs: dict[str, str]) -> str:
    rows = seen.points[(seen.points["run_id"] == candidate[0]) & (seen.points["step"] == candidate[1])]
    return say.checkpoint_name(rows.iloc[0].to_dict(), of_runs[candidate[0]] if len(seen.runs) > 1 else "")


def _finding(run: Run, seen: Frontier, chosen: list[Candidate]) -> list[str]:
    decided = records.latest(run, "decision")
    if decided is not None:
        return [f"{words.when(decided['time'])}: ", *say.record_words(decided)]
    reveal = decisions.revealed(run)
    if reveal is not None and run.has("verdicts"):
        name = say.checkpoint_name(reveal["content"]["chosen"])
        return [*say.reveal_finding(ui.read(run, "verdicts"), name), " Nothing is decided yet."]
    return [
        f"{words.counted(len(chosen), 'candidate')}, judged on the selection rows. ",
        Strong("The test rows are sealed"),
        ": lock the choice on the page Checkpoint frontier before deciding.",
    ]


# --- what they give away, and what they keep ---


def _cards(run: Run, seen: Frontier, attribute: str, chosen: list[Candidate], names: list[str]) -> None:
    artifact = seen.declaration.artifacts[0]
    reveal = decisions.revealed(run)
    cards = []
    for candidate, name in zip(chosen, names, strict=True):
        row = seen.point(*candidate, attribute, artifact)
        if row is None:
            cards.append(Card("not measured", (Strong(name), f" on {artifact}"), words.NONE))
            continue
        word, split = "judged on bal_val only", "bal_val"
        numbers = row
        if (
            reveal is not None
            and (reveal["content"]["chosen"]["run_id"], reveal["content"]["chosen"]["step"]) == candidate
        ):
            word, split = findings.overall(ui.read(run, "verdicts")), "bal_test"
            numbers = _tested(run, candidate[1], attribute, artifact) or row
        size = f"{split} · budget {points(seen.declaration.budget)} points"
        kept, read_on = (numbers, split) if words.known(numbers.get("rougeL")) else (row, "bal_val")
        use = f"ROUGE-L {words.number(kept['rougeL'], 1)} on {read_on}, 95 % interval "
        use += words.interval(kept["rougeL_low"], kept["rougeL_high"], 1)
        what = [
            Strong(name),
            f": {attribute} read from ",
            Strong(artifact),
            f", chance {words.percent(row['chance'], 0)}",
        ]
        cards.append(Card(word, what, words.percent(numbers["accuracy"]), (*spread(numbers), size, use)))
    ui.cards(cards)


def _tested(run: Run, step: int, attribute: str, artifact: str) -> dict | None:
    """The strongest attacker of the revealed checkpoint on the test rows."""
    where = "step = ? and attribute = ? and artifact = ? and split = 'bal_test' and seed is null"
    rows = ui.read(run, "checkpoints", where=where, params=[step, attribute, artifact])
    found = sorted(rows.to_dict("records"), key=lambda r: -abs(float(r["signed_gap"])))
    return {str(k): v for k, v in found[0].items()} if found else None


def _pictures(seen: Frontier, attribute: str, chosen: list[Candidate], names: list[str]) -> None:
    rows = seen.points[seen.points["attribute"] == attribute]
    artifacts = seen.artifacts()
    first = artifacts[0]
    cell = rows[(rows["artifact"] == first) & (rows["step"] > 0)]
    marked = [seen.point(*c, attribute, first) for c in chosen]
    there = [(c, m, n) for c, m, n in zip(chosen, marked, names, strict=True) if m is not None]
    ui.section("Where they stand")
    _legend(names)
    left, right = st.columns(2, gap="large")
    with left:
        caption = _position_words(seen, attribute, first, there)
        ui.chart_title([f"Among all checkpoints, {first}"], caption)
        axes = frontier_figures.ranges(rows, seen.declaration.budget)
        fig = figures.position_figure(
            cell, [m for _, m, _ in there], [n for *_, n in there], seen.declaration.budget, axes
        )
        ui.chart(fig, "positions", f"Candidates on the frontier. {words.plain(caption)}")
    with right:
        ui.chart_title("On each artifact", "95 % intervals over subjects; strongest declared attacker of each.")
        fig = figures.leaks_figure(rows, chosen, names, artifacts, seen.declaration.budget)
        ui.chart(fig, "leaks", f"LeakageGap of {len(chosen)} candidates on {words.listed(artifacts)}")


def _position_words(
    seen: Frontier, attribute: str, artifact: str, there: list[tuple[Candidate, dict, str]]
) -> list[str]:
    """The best summaries against the worst, row by row: what more they keep, and what more they give away."""
    ranked = sorted((t for t in there if words.known(t[1]["rougeL"])), key=lambda t: -float(t[1]["rougeL"]))
    if len(ranked) < 2:
        return ["Too few candidates with a ROUGE-L."]
    best, other = ranked[0], ranked[-1]
    use, leak = _review_paired.words_of(seen, attribute, artifact, best[0], other[0])
    use = use or f"{words.signed(float(best[1]['rougeL']) - float(other[1]['rougeL']), 1)} points, not paired"
    if not leak:
        apart = float(best[1]["accuracy"]) - float(other[1]["accuracy"])
        leak = f"{words.signed(100 * apart, 1)} percentage points, not paired"
    name = best[2][:1].upper() + best[2][1:]
    return [f"{name} against {other[2]}: ROUGE-L {use}; named by the strongest attacker {leak}."]


def _legend(names: list[str]) -> None:
    marks = "●■◆"
    parts = [
        f'<span style="white-space:nowrap;margin-right:1.25rem"><i class="ac-mark" style="color:{figures.HUES[i]}">'
        f"{marks[i]}</i> {words.escape(name)}</span>"
        for i, name in enumerate(names)
    ]
    ui.html(f'<p class="ac-quiet" style="max-width:none">{"".join(parts)}</p>')


def _numbers(run: Run, seen: Frontier, chosen: list[Candidate], names: list[str], summaries: list[int]) -> None:
    """ROUGE and remembered rows, one column per candidate. summaries: how many stand behind the ROUGE of each."""
    records = seen.points.drop_duplicates(["run_id", "step"]).to_dict("records")
    by_name = {(str(r["run_id"]), int(r["step"])): r for r in records}
    rows = [by_name[c] for c in chosen]
    lines = []
    for n in ("1", "2", "L"):
        ends = [words.interval(r[f"rouge{n}_low"], r[f"rouge{n}_high"], 1) for r in rows]
        shown = [words.number(r[f"rouge{n}"], 1) for r in rows]
        lines.append(
            (
                f"ROUGE-{n}<small>95 % interval</small>",
                [f"{v}<small>{e}</small>" for v, e in zip(shown, ends, strict=True)],
            )
        )
    if any(summaries):
        lines.append(("summaries of bal_val", [words.count(n) for n in summaries]))
    found = [r["ez_tpr_at_1pct"] for r in rows]
    if any(words.known(v) for v in found):
        lines.append(("rows found by EZ at 1 % false accusations", [words.percent(v) for v in found]))
    head = '<tr><th scope="col"></th>' + "".join(f'<th scope="col" class="num">{words.escape(n)}</th>' for n in names)
    body = "".join(
        f'<tr><th scope="row">{label}</th>' + "".join(f'<td class="num">{c}</td>' for c in cells) + "</tr>"
        for label, cells in lines
    )
    ui.html(table_html(head + "</tr>", body))
    if not any(words.known(v) for v in found):
        ui.quiet(f"Remembered rows were not measured: {_why_not_remembered(run)}.")


def _why_not_remembered(run: Run) -> str:
    spec = run.manifest["spec"]
    if "member" not in spec["data"]["roles"]:
        return "this run's spec names no column of its data as member (which rows were trained on)"
    return (
        f"the data has a member column, but this run asked for none (membership_rows: {spec.get('membership_rows', 0)})"
    )


def _generations(seen: Frontier, candidate: Candidate) -> pd.DataFrame:
    run = next(r for r in seen.runs if r.id == candidate[0])
    if not run.has("generations"):
        return pd.DataFrame(columns=["example_id", "reference", "generated"])
    columns = ["example_id", "reference", "generated"]
    return ui.read(run, "generations", columns, where="step = ?", params=[candidate[1]], order_by="example_id")


def _claim(run: Run) -> None:
    claim = run.manifest.get("claim") or {}
    ui.section("What may be said")
    if decisions.revealed(run) is None or not claim.get("audited"):
        ui.text("Nothing outside this room: the test rows were not read, and what chose a checkpoint cannot praise it.")
        return
    body = "".join(f'<p class="ac-text ac-half">{words.escape(claim[k])}</p>' for k in ("audited", "not_audited"))
    ui.html(body)


main()
