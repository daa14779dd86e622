"""What the model writes, read by attackers. In: rows, plain and behind directives. Out: summaries, scores, readings.

Tables: `generations` (row × defence), `generation_metrics` (defence: ROUGE, meta-terms) and `output_metrics`
(attribute × kind of text, or exported vector `vector:ARTIFACT` of the same rows × defence × reader).
"""

import json
from typing import Any

import numpy as np
import pandas as pd

from auditcore.jobs import cache, sealed
from auditcore.jobs.baselines import texts_of
from auditcore.jobs.context import Context
from auditcore.jobs.rows import Rows, ids_hash
from auditcore.spec import GenerateSpec, ModelSpec, VectorsSpec

STAGE = "summaries"


def write_and_read(
    context: Context,
    rows: Rows,
    directed: dict[str, Rows],
    references: list[str] | None,
    test: np.ndarray,
    exported: dict[tuple[str, str], np.ndarray],
) -> None:
    """Generate from a sample of the test rows with and without directives, score and read the texts, write the tables.

    references: text of the target role per row, or None; test: positions to sample from, class-balanced; exported:
    (defence, artifact) -> vectors of all rows, read on the same rows and folds as the texts, to stand beside them.
    """
    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    if spec.generate is None or context.finished(STAGE):
        return
    chosen = sample(rows.frame, spec.data.labels[0], test, spec.generate.rows, spec.seed)
    sealed.require_open(rows.dataset, chosen)
    kinds = {"none": rows, **directed}
    with context.stage(STAGE, len(chosen) * len(kinds)) as on_progress:
        model = _Model(context)
        texts = {}
        for place, (name, some) in enumerate(kinds.items()):
            done = place * len(chosen)

            def step(finished: int, of: int, done: int = done) -> None:
                on_progress(done + finished, len(chosen) * len(kinds))

            texts[name] = model.generate(some, chosen, step)
        wanted = None if references is None else [references[i] for i in chosen]
        if wanted is None:
            context.note("No column plays the role target: summaries have no reference to be compared with.")
        context.run.write("generations", _generations(context, rows, kinds, chosen, texts, wanted))
        context.run.write("generation_metrics", _scores(context, rows, chosen, texts, wanted))
        prompts = texts_of(rows.dataset)
        sources = {("prompt", "none"): [prompts[i] for i in chosen]}
        sources |= {} if wanted is None else {("reference", "none"): wanted}
        sources |= {("generated", name): found for name, found in texts.items()}
        beside = {(f"vector:{artifact}", name): found[chosen] for (name, artifact), found in exported.items()}
        readings = _readings(context, rows, chosen, sources, beside, model)
        context.run.write("output_metrics", readings)
        columns = ["attribute", "defence", "attacker", "signed_gap", "signed_low90", "signed_high90", "verdict"]
        written = readings[readings["source"] == "generated"] if len(readings) else pd.DataFrame(columns=columns)
        context.record(generated={"rows": len(chosen), "readings": written[columns].to_dict("records")})


def sample(frame: pd.DataFrame, attribute: str, positions: np.ndarray, n_rows: int, seed: int) -> np.ndarray:
    """At most about `n_rows` of the positions, ascending: whole subjects, one of each class in turn."""
    part = frame.iloc[positions]
    rng = np.random.default_rng([seed % 2**32, 0x6E4])
    waiting = []
    for _, mine in sorted(part.groupby(attribute)["group"], key=lambda pair: str(pair[0])):
        waiting.append(rng.permutation(np.sort(mine.unique().astype(str))).tolist())
    sizes = part["group"].astype(str).value_counts()
    keep: set[str] = set()
    rows = 0
    for turn in zip(*waiting, strict=False):  # classes stay equally frequent
        if rows and rows + sum(int(sizes[s]) for s in turn) > n_rows:
            break
        keep.update(turn)
        rows += sum(int(sizes[s]) for s in turn)
    return np.sort(positions[part["group"].astype(str).isin(keep).to_numpy()])


class _Model:
    """The audited model, loaded when it is first needed; generated texts are kept in the cache."""

    def __init__(self, context: Context):
        self.context = context
        self._loaded: Any = None

    @property
    def lm(self) -> Any:
        from auditcore.lm.load import load_model

        if self._loaded is None:
            self._loaded = load_model(self._spec()[0])
        return self._loaded

    def _spec(self) -> tuple[ModelSpec, GenerateSpec]:
        spec = self.context.spec
        assert isinstance(spec, VectorsSpec) and spec.model is not None and spec.generate is not None  # noqa: PT018
        return spec.model, spec.generate

    def generate(self, rows: Rows, chosen: np.ndarray, on_progress: Any) -> list[str]:
        """One greedy continuation per chosen row."""
        from auditcore.lm.generate import generate

        model, generate_spec = self._spec()
        encoded = _chosen(rows.encoded, chosen)
        key = cache.key(
            version=1,
            model=self.context.run.manifest["fingerprints"]["model"],
            tokens=ids_hash(encoded),
            new=generate_spec.max_new_tokens,
            dtype=model.dtype,
            precision=model.precision,
            device=model.device,
        )
        kept = cache.load("generated", key)
        if kept is not None:
            return json.loads(kept["json"].tobytes().decode())
        spec = self.context.spec
        new, size = generate_spec.max_new_tokens, spec.batch_size
        texts = generate(self.lm, encoded, max_new_tokens=new, batch_size=size, on_batch=on_progress)
        if spec.store_text == "full":
            cache.save("generated", key, {"json": np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)})
        return texts

    def embed(self, texts: list[str]) -> np.ndarray:
        """`meanpool` after the final norm of the bare texts, float32 [n, width]; NaN for an empty one."""
        from auditcore.lm.encode import encode
        from auditcore.lm.vectors import depth, extract_vectors

        spec = self.context.spec
        encoded = encode(self.lm.tokenizer, "{text}", {"text": texts}, None, spec.max_length)
        last = depth(self.lm)
        found = extract_vectors(self.lm, encoded, ["meanpool"], [last], batch_size=spec.batch_size)
        return np.asarray(found["meanpool", last])


def _chosen(encoded: Any, chosen: np.ndarray) -> Any:
    from auditcore.lm.encode import Encoded

    prompts = encoded.prompts()
    nothing = np.zeros(len(chosen), dtype=bool)
    ids = [prompts.ids[i] for i in chosen]
    return Encoded(ids, prompts.prompt_lengths[chosen], encoded.truncated[chosen], nothing)


def terms(spec: VectorsSpec) -> list[str]:
    """The meta-terms of this audit."""
    from auditcore.leakage.prompting import shipped

    return shipped().meta_terms if spec.meta_terms is None else spec.meta_terms


def _generations(
    context: Context, rows: Rows, kinds: dict[str, Rows], chosen: np.ndarray, texts: dict, wanted: list[str] | None
) -> pd.DataFrame:
    from auditcore.datasets.roles import render
    from auditcore.jobs.prompting import directives
    from auditcore.leakage.prompting import found_terms, with_directive
    from auditcore.rouge import NAMES, rouge

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    hidden = spec.store_text == "none"
    fields = {name: [values[i] for i in chosen] for name, values in rows.dataset.fields.items()}
    said, parts = directives(spec), []
    for name in kinds:
        template = rows.dataset.template if name == "none" else with_directive(rows.dataset.template, said[name])
        part = pd.DataFrame(
            {
                "example_id": rows.frame["example_id"].to_numpy()[chosen],
                "step": pd.array([pd.NA] * len(chosen), dtype="Int32"),
                "defence": name,
                "prompt": "" if hidden else render(template, fields, len(chosen)),
                "reference": _references(wanted, len(chosen), hidden),
                "generated": "" if hidden else texts[name],
                "meta_terms": [", ".join(found_terms(text, terms(spec))) for text in texts[name]],
            }
        )
        scores = rouge(wanted, texts[name]) if wanted is not None else pd.DataFrame(np.nan, range(len(chosen)), NAMES)
        parts.append(pd.concat([part, scores], axis=1))
    return pd.concat(parts, ignore_index=True)


def _references(wanted: list[str] | None, n: int, hidden: bool) -> Any:
    return pd.array([pd.NA] * n if wanted is None else [""] * n if hidden else wanted, dtype="string")


def _scores(
    context: Context, rows: Rows, chosen: np.ndarray, texts: dict[str, list[str]], wanted: list[str] | None
) -> pd.DataFrame:
    """One line per defence: ROUGE with intervals; share of texts with a meta-term, and its change, paired."""
    from auditcore.leakage.prompting import contamination, found_terms
    from auditcore.rouge import means, rouge

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    groups = rows.frame["group"].to_numpy(dtype=str)[chosen]
    hits = {name: np.array([bool(found_terms(t, terms(spec))) for t in found]) for name, found in texts.items()}
    lines = []
    for name, found in texts.items():
        held = contamination(hits[name], None if name == "none" else hits["none"], groups, spec.n_boot, spec.seed)
        scores = {} if wanted is None else means(rouge(wanted, found), groups.tolist(), spec.n_boot, spec.seed)
        lines.append(
            {
                "defence": name,
                "n_rows": len(chosen),
                "n_subjects": len(np.unique(groups)),
                "n_empty": sum(not text.strip() for text in found),
                **scores,
                "contaminated": held.value,
                "contaminated_low": held.low,
                "contaminated_high": held.high,
                "contaminated_change": held.change,
                "contaminated_change_low": held.change_low,
                "contaminated_change_high": held.change_high,
            }
        )
    return pd.DataFrame(lines)


def _readings(
    context: Context,
    rows: Rows,
    chosen: np.ndarray,
    sources: dict[tuple[str, str], list[str]],
    beside: dict[tuple[str, str], np.ndarray],
    model: _Model,
) -> pd.DataFrame:
    """One line per attribute, kind of text or vector, defence and reader; a directive's change is paired by row."""
    from auditcore.leakage.outputs import read_texts, read_vectors, usable

    spec = context.spec
    assert isinstance(spec, VectorsSpec)
    assert spec.generate is not None
    frame = rows.frame.iloc[chosen]
    groups = frame["group"].to_numpy(dtype=str)
    vectors = {key: model.embed(texts) for key, texts in sources.items()} if spec.generate.embed else {}
    vectors |= beside
    options = {"seed": spec.seed, "n_boot": spec.n_boot, "budget": spec.budget}
    lines = []
    for attribute in spec.data.labels:
        at, notes = usable(frame[attribute].tolist(), groups.tolist())
        for note in notes:
            context.note(f"{attribute}: {note}")
        labels = frame[attribute].to_numpy(dtype=object)[at].astype(str)
        if len(set(labels)) < 2:
            context.note(f"{attribute}: too few subjects to read it from texts.")
            continue
        plain: dict[tuple[str, str], Any] = {}
        for source, defence in [*sources, *beside]:
            readers = {}
            if (source, defence) in sources:
                texts = sources[source, defence]
                readers["tfidf"] = read_texts([texts[i] for i in at], labels, groups[at], **options)
            if (source, defence) in vectors:
                readers["embedding"] = read_vectors(vectors[source, defence][at], labels, groups[at], **options)
            for attacker, found in readers.items():
                if defence == "none":
                    plain[source, attacker] = found
                before = plain.get((source, attacker)) if defence != "none" else None
                lines.append(
                    {
                        "attribute": attribute,
                        "source": source,
                        "defence": defence,
                        "attacker": attacker,
                        "n_rows": found.n_rows,
                        "n_subjects": found.n_subjects,
                        "n_classes": found.n_classes,
                        "accuracy": found.accuracy,
                        "accuracy_low": found.low95,
                        "accuracy_high": found.high95,
                        "chance": found.chance,
                        "signed_gap": found.accuracy - found.chance,
                        "signed_low90": found.low90 - found.chance,
                        "signed_high90": found.high90 - found.chance,
                        "verdict": found.verdict,
                        **_change(found, before, labels, groups[at], spec),
                    }
                )
    return pd.DataFrame(lines)


def _change(found: Any, before: Any, labels: np.ndarray, groups: np.ndarray, spec: VectorsSpec) -> dict[str, float]:
    """Accuracy behind a directive minus accuracy without it, with a 95 % interval over subjects."""
    from auditcore.leakage.paired import paired

    if before is None:
        return {"change": np.nan, "change_low": np.nan, "change_high": np.nan}
    codes = np.unique(labels, return_inverse=True)[1]
    moved = paired(before.right, found.right, codes, groups, spec.n_boot, spec.seed)
    return {"change": moved.change, "change_low": moved.low, "change_high": moved.high}
