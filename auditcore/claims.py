"""The two halves of a claim. In: a run's manifest and its verdict lines. Out: what was audited, and what was not.

A statement about a mitigation or a model is made with both halves or not at all.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from auditcore.spec import ARTIFACTS, ATTACKS, DEFENCES, PROBES
from auditcore.words import counted, interval, known, listed, shorten, signed

MOST_LINES = 24  # in one sentence


def claim(manifest: dict[str, Any], verdicts: pd.DataFrame, reasons: Mapping[str, str] | None = None) -> dict[str, str]:
    """Build the claim statement: {"audited": one sentence, "not_audited": one sentence}.

    manifest: content of run.json (spec, fingerprints, data, counts as far as known); verdicts: the run's table;
    reasons: attack -> why tied scores leave it without a verdict (of a membership run). Raises KeyError when the
    manifest has no spec.
    """
    kind = manifest["spec"]["kind"]
    if len(verdicts) and reasons:
        verdicts = verdicts.assign(reason=verdicts["attacker"].map(reasons))
    build = {
        "membership": _membership,
        "vectors": _vectors,
        "sweep": _sweep,
        "surfacelora": _checkpoint,
        "frontier": _checkpoint,
    }.get(kind)
    if build is None:
        return {"audited": "Nothing: fine-tuning makes a model and audits none.", "not_audited": "Everything."}
    audited, not_audited = build(manifest, verdicts)
    return {"audited": audited, "not_audited": not_audited}


def _membership(manifest: dict[str, Any], verdicts: pd.DataFrame) -> tuple[str, str]:
    spec, counts = manifest["spec"], manifest.get("counts") or {}
    model = spec["model"]
    rows = ", ".join(
        counted(int(counts[key]), one)
        for key, one in (("members", "member"), ("nonmembers", "non-member"))
        if known(counts.get(key))
    )
    trained = _trained(manifest)
    # An adapter's base is a reference without being named in the spec.
    compared = model.get("reference") or trained or (manifest.get("fingerprints") or {}).get("reference")
    against = f" against its reference {_print(manifest, 'reference', model.get('reference'))}{trained}"
    reference = against if compared else ""
    audited = (
        "Whether a row was trained on, told from the token log-probabilities of "
        f"{_print(manifest, 'model', model['source'])}{reference} "
        f"({_template(manifest)}, at most {spec['max_length']} tokens), on {_data(manifest)}"
        f"{': ' + rows if rows else ''}, by the attacks "
        f"{listed(spec['attacks'])}: {_lines(verdicts, 'excess of found over falsely accused at 1 % false positives')}."
    )
    missing = [a for a in ATTACKS if a not in spec["attacks"]]
    not_audited = (
        "Not audited: "
        + (f"the attacks {listed(missing)}; " if missing else "")
        + f"attackers with {_shadows(spec)}, gradients or other access than log-probabilities; what the model can be "
        "made to recite; error rates for one person (the rates pool all rows); rows of unknown membership; text beyond "
        "the maximum length; any other checkpoint, template or data."
    )
    return audited, not_audited


def _sweep(manifest: dict[str, Any], verdicts: pd.DataFrame) -> tuple[str, str]:
    spec, counts = manifest["spec"], manifest.get("counts") or {}
    rows = ", ".join(
        counted(int(counts[key]), one)
        for key, one in (("members", "member"), ("nonmembers", "non-member"))
        if known(counts.get(key))
    )
    methods = listed(list(dict.fromkeys(variant["method"] for variant in spec["variants"])))
    audited = (
        "Whether a row was trained on, told from the token log-probabilities of every checkpoint of "
        f"{counted(len(spec['variants']), 'fine-tuning recipe')} ({methods}) that start from "
        f"{_print(manifest, 'model', spec['model']['source'])}, on {_data(manifest)}{': ' + rows if rows else ''}, by "
        f"the attacks {listed(spec['attacks'])}."
    )
    not_audited = (
        "Not audited: other recipes, models and data; one seed per recipe was trained, so intervals hold for these "
        "checkpoints and say nothing about another training; no checkpoint was cleared or refused."
    )
    return audited, not_audited


def _trained(manifest: dict[str, Any]) -> str:
    """What a membership audit's reference was fine-tuned on; "" where it is the model before fine-tuning as it is."""
    how = manifest["spec"].get("reference") or {}
    rows = counted(int((manifest.get("counts") or {}).get("reference_rows") or 0), "known non-member")
    what = {"sft": f" fine-tuned on {rows}", "distillation": " fine-tuned on texts that the model wrote"}
    return what.get(how.get("kind", "base"), "")


def _shadows(spec: dict[str, Any]) -> str:
    count = (spec.get("shadows") or {}).get("count")
    return f"more or other shadow models than {count}" if "lira" in spec["attacks"] and count else "shadow models"


def _vectors(manifest: dict[str, Any], verdicts: pd.DataFrame) -> tuple[str, str]:
    spec = manifest["spec"]
    label = spec["data"]["roles"].get("label", [])
    labels = [label] if isinstance(label, str) else list(label)
    if spec.get("model"):
        layers = sorted({int(v) for v in verdicts["layer"].dropna()}) if len(verdicts) else spec["layers"]
        last_k = f"last_k_mean (last {spec.get('last_k')} tokens)"
        artifacts = [last_k if a == "last_k_mean" else a for a in spec["artifacts"]]
        depth = "every layer" if layers == "all" else f"layer {listed([str(v) for v in layers])}"
        what = f"{listed(artifacts)} at {depth}"
        origin = (
            f" of {_print(manifest, 'model', spec['model']['source'])} "
            f"(template {_print(manifest, 'template', spec.get('template'))})"
        )
    else:
        what, origin = "the given vectors", f" ({shorten(spec['vectors']['path'])})"
    subjects = f", {counted(int(verdicts['n_subjects'].max()), 'test subject')}" if _any(verdicts, "n_subjects") else ""
    probes, seeds = listed(spec["probes"]), counted(len(spec["seeds"]), "seed")
    declared = verdicts["defence"].dropna().unique() if _any(verdicts, "defence") else spec.get("defences", [])
    defences = [str(d) for d in declared if d != "none"]
    erased = any(not d.startswith("prompt:") for d in defences)
    fitted = " (erasers fitted on other subjects, for the label read)" if erased else ""
    behind = f" as they are and behind {listed(defences)}{fitted}"
    label_words = "Sensitive labels" if len(labels) > 1 else "Sensitive label"
    audited = (
        f"{label_words} {listed(labels)}, read from {what}{origin}{behind if defences else ''}, on {_data(manifest)}"
        f"{subjects}, by the probes {probes} ({seeds}): {_lines(verdicts, 'LeakageGap')}."
        f"{_written(manifest)}"
    )
    left = [a for a in ARTIFACTS if a not in spec["artifacts"]] if spec.get("model") else []
    probes_left = [p for p in PROBES if p not in spec["probes"]]
    untried = [d for d in DEFENCES if d not in (*spec.get("defences", []), "none")] if defences else []
    not_audited = (
        "Not audited: "
        + (f"the artifacts {listed(left)}; " if left else "")
        + (f"the probes {listed(probes_left)}; " if probes_left else "")
        + (f"the defences {listed(untried)}; " if untried else "")
        + ("what a defence fitted for one label leaves of another; " if defences else "")
        + "other layers, checkpoints, templates and attributes; "
        + ("" if manifest.get("generated") else "the generated text; ")
        + "attackers stronger than these "
        f"probes, fitted on more rows{' (extrapolated, not measured)' if spec.get('curve') else ''} or holding other "
        "data about the same people; populations unlike this one."
    )
    return audited, not_audited


def _written(manifest: dict[str, Any]) -> str:
    """What readers of the generated text found, after the sentence on vectors; "" when nothing was generated."""
    found = manifest.get("generated")
    if not found:
        return ""
    phrases = []
    for line in found["readings"]:
        behind = f" behind {line['defence']}" if line["defence"] != "none" else ""
        ends = interval(line["signed_low90"], line["signed_high90"])
        gap = f"{signed(line['signed_gap'])} (90 % interval {ends})"
        phrases.append(f"{line['attribute']} in the generated text by {line['attacker']}{behind} {gap}")
    rows = counted(found["rows"], "test row")
    return (
        f" Also what it writes from {rows} was read too, cross-validated by subject: {'; '.join(phrases) or 'nothing'}."
    )


def _checkpoint(manifest: dict[str, Any], verdicts: pd.DataFrame) -> tuple[str, str]:
    """Claim of one checkpoint that was chosen, locked and then judged on the test rows."""
    spec, locked = manifest["spec"], manifest.get("locked")
    if not locked:
        nothing = "Nothing yet: no checkpoint was locked, so its test rows were not read."
        return nothing, "Not audited: everything; what chose a checkpoint (bal_val) cannot praise it."
    declared, chosen = locked["declaration"], locked["chosen"]
    layers = sorted({int(v) for v in verdicts["layer"].dropna()}) if len(verdicts) else [spec["layer"]]
    if spec["kind"] == "surfacelora":
        name = f"step {chosen['step']}"
        how = f"SurfaceLoRA (lambda {spec['lambda']:g}, targets {listed(spec['targets'])})"
        made = f", trained with {how if spec['lambda'] else 'plain LoRA (lambda 0: no vector was targeted)'}"
    else:
        name, made = str(chosen.get("checkpoint") or f"checkpoint {chosen['step']}"), ""
    base = (spec.get("model") or {}).get("source") or spec["checkpoints"]["base"]
    subjects = f", {counted(int(verdicts['n_subjects'].max()), 'test subject')}" if _any(verdicts, "n_subjects") else ""
    audited = (
        f"Sensitive label {listed(declared['attributes'])}, read from {listed(declared['artifacts'])} at layer "
        f"{listed([str(v) for v in layers])} of {name} on {_print(manifest, 'model', base)}{made} (template "
        f"{_print(manifest, 'template', spec.get('template'))}), chosen on bal_val and locked by {locked['by']} on "
        f"{locked['time']} before the test rows were read, on {_data(manifest)}{subjects}, by the probes "
        f"{listed(declared['attackers'])} ({counted(len(declared['seeds']), 'seed')}): "
        f"{_lines(verdicts, 'LeakageGap')}."
    )
    open_ = [a for a in ARTIFACTS if a not in declared["artifacts"]]
    probes = [p for p in PROBES if p not in declared["attackers"]]
    not_audited = (
        "Not audited: "
        + (f"the artifacts {listed(open_)}, for which no mitigation is claimed; " if open_ else "")
        + (f"the probes {listed(probes)}; " if probes else "")
        + "any other checkpoint, layer, template or attribute; the generated text; attackers stronger than these "
        "probes, trained on more rows or holding other data about the same people; populations unlike this one."
    )
    return audited, not_audited


def _lines(verdicts: pd.DataFrame, quantity: str) -> str:
    """All verdict lines in one phrase, the strongest first; of many the strongest of each place, and counts."""
    if not len(verdicts):
        return "no verdict, since no rate could be measured"
    combined, each = verdicts[verdicts["attacker"] == "all"], verdicts[verdicts["attacker"] != "all"]
    ordered = each.sort_values("value", ascending=False, na_position="last", kind="stable")
    phrases, told = [], ordered
    if len(ordered) > MOST_LINES:
        told = ordered.drop_duplicates([c for c in ("attribute", "artifact", "defence") if c in ordered])
    layers = "layer" in each and each["layer"].nunique() > 1
    for line in told.to_dict("records"):
        where = " ".join(str(line[k]) for k in ("attribute", "artifact") if isinstance(line.get(k), str))
        where += f" layer {int(line['layer'])}" if layers and known(line["layer"]) else ""
        behind = f" behind {line['defence']}" if line.get("defence") not in (None, "none") else ""
        who = f"{where + ' ' if where else ''}{line['attacker']}{behind}"
        value = f"{signed(line['value'])} (90 % interval {interval(line['low'], line['high'])})"
        why = f" ({line['reason']})" if isinstance(line.get("reason"), str) else ""
        phrases.append(f"{who} {value if known(line['value']) else 'not measurable'}, {line['verdict']}{why}")
    if len(told) < len(ordered):
        counts = ", ".join(f"{n:,} {word}" for word, n in ordered["verdict"].value_counts(sort=False).items())
        phrases.append(f"these are the strongest of {len(ordered):,} attackers, of which are {counts}")
    for line in combined.to_dict("records") if len(each) > 1 else []:
        behind = f" behind {line['defence']}" if line.get("defence") not in (None, "none") else ""
        phrases.append(f"all together{behind}, {line['verdict']}")
    return f"{quantity} against a budget of {ordered['budget'].iloc[0]:g}: {'; '.join(phrases)}"


def _template(manifest: dict[str, Any]) -> str:
    """Of conversations: the model's chat template, and that the assistant's tokens are the ones that were scored."""
    spec = manifest["spec"]
    if "messages" in spec["data"]["roles"] and spec.get("score") == "target":
        return f"the assistant's tokens under the chat template {_print(manifest, 'template', None)}"
    return f"template {_print(manifest, 'template', spec.get('template'))}"


def _data(manifest: dict[str, Any]) -> str:
    data = manifest.get("data") or {}
    path = shorten(data.get("path") or manifest["spec"]["data"]["path"], 80)
    corpus = manifest["spec"]["data"].get("corpus")  # then the hash is that of the rows, not of the corpus's file
    sha = f" (sha256 {str(data['sha256'])[:12]})" if data.get("sha256") else ""
    return f"rows made from {path} as {corpus['name']}{sha}" if corpus else f"{path}{sha}"


def _print(manifest: dict[str, Any], what: str, name: str | None) -> str:
    found = (manifest.get("fingerprints") or {}).get(what)
    shown = shorten(name, 80) if name else ""
    mark = f"[{str(found)[:12]}]" if found else ""
    return " ".join(p for p in (shown, mark) if p) or "the default"


def _any(frame: pd.DataFrame, column: str) -> bool:
    return bool(len(frame)) and bool(frame[column].notna().any())
