"""What one checkpoint gives away and what it is good for. In: a model, the rows of a run. Out: rows of `checkpoints`.

Fresh probes on frozen vectors, fitted on bal_train and judged on bal_val, for every audited artifact; ROUGE of the
summaries of the same bal_val rows each time; the membership leak of the same checkpoint, where it is asked for. Each
checkpoint is a stage; vectors, summaries and token statistics are cached by content. No row of bal_test comes in here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from auditcore import rouge
from auditcore.decisions import DEFENDED
from auditcore.errors import DatasetError
from auditcore.jobs import cache, evidence, sealed
from auditcore.jobs.context import Context, OnProgress
from auditcore.jobs.defences import FIT as SET_ASIDE
from auditcore.jobs.defences import append, fit_rows, needs_fit, protected
from auditcore.jobs.rows import Rows, ids_hash
from auditcore.spec import MembershipSpec, dump_spec, parse_spec

FIT, CHOOSE = "bal_train", "bal_val"
FPR = 0.01


@dataclass(frozen=True)
class Checkpoint:
    """One model to measure."""

    name: str  # its folder's name, or "base"
    step: int  # 0 = the model before training
    strength: float | None  # lambda it was trained with, where that is known
    fingerprint: str
    open: Callable[[], Any]  # -> lm.load.LM; asked only for what the cache does not have

    @property
    def stage(self) -> str:
        """Name of its stage."""
        return f"checkpoint {self.step}"


class Bench:
    """The rows on which every checkpoint of a run is measured; chosen once."""

    def __init__(self, context: Context, rows: Rows, base: str, seen: np.ndarray | None = None) -> None:
        """rows: without bal_test; base: fingerprint of the model before training; seen: positions of rows that every
        checkpoint was trained on, None where the data's member column alone says so."""
        assert not rows.frame["split"].eq(sealed.TEST).any()
        self.context, self.rows, self.spec = context, rows, _spec(context)
        self.base, self.seen = base, seen
        self.evaluated: dict[str, dict[str, np.ndarray]] = {}
        for attribute in self.spec.data.labels:
            self.evaluated[attribute] = balanced_rows(rows.frame, attribute, self.spec.seed)
            if needs_fit(self.spec):
                self.evaluated[attribute][SET_ASIDE] = fit_rows(rows.frame, attribute)
        if needs_fit(self.spec) and not rows.frame["split"].eq(SET_ASIDE).any():
            raise DatasetError(f"defences: no row is in {SET_ASIDE}, on which they are fitted; map the split role.")

    # --- which rows ---

    @cached_property
    def probed(self) -> np.ndarray:
        """Positions whose vectors are extracted, int64, ascending."""
        return np.unique(np.concatenate([at for rows in self.evaluated.values() for at in rows.values()]))

    @cached_property
    def summarised(self) -> np.ndarray:
        """Positions of the bal_val rows that are summarised: drawn by seed and row names, not by their order."""
        return summarised_rows(self.rows, CHOOSE, self.spec.rouge_rows, self.spec.seed)

    @cached_property
    def remembered(self) -> tuple[np.ndarray, pd.Series]:
        """Positions of the rows that the membership attack looks at, and their membership."""
        frame = self.rows.frame
        member = frame["member"].astype("boolean")
        usable = self.rows.encoded.lengths > 1
        if self.seen is not None:
            usable &= np.isin(np.arange(len(frame)), self.seen) | ~member.fillna(False).to_numpy(dtype=bool)
        rng = np.random.default_rng([self.spec.seed, 0x3E3B])
        sides = []
        for side in (True, False):
            at = np.flatnonzero((member == side).fillna(False).to_numpy(dtype=bool) & usable)
            sides.append(rng.permutation(at)[: self.spec.membership_rows])
        names = ("members that every checkpoint was trained on", "rows known not to be members")
        for found, what in zip(sides, names, strict=True):
            if not len(found):
                raise DatasetError(f"membership_rows: the data has no {what}; set it to 0.")
        at = np.sort(np.concatenate(sides))
        return at, member.iloc[at].reset_index(drop=True)

    def notes(self) -> list[str]:
        """What a reader must know of these rows."""
        found = []
        for attribute, rows in self.evaluated.items():
            frame = self.rows.frame
            left = [f"{int(frame['split'].eq(s).sum()) - len(rows[s]):,} of {s}" for s in (FIT, CHOOSE)]
            found.append(
                f"{attribute}: every checkpoint's probes are fitted on {len(rows[FIT]):,} rows of {FIT} and judged on "
                f"{len(rows[CHOOSE]):,} of {CHOOSE}, classes equally frequent ({' and '.join(left)} left out)."
            )
            if needs_fit(self.spec):
                found.append(f"{attribute}: defences are fitted on {len(rows[SET_ASIDE]):,} rows of {SET_ASIDE}.")
        if self.spec.membership_rows:
            member = self.remembered[1]
            found.append(
                f"Membership (ez) of every checkpoint is measured on {int(member.sum()):,} members and "
                f"{int((~member).sum()):,} others."
            )
        return found

    # --- one checkpoint ---

    def measure(self, checkpoint: Checkpoint) -> None:
        """Run the checkpoint's stage, unless it is finished: its rows join the tables at once."""
        context, spec = self.context, self.spec
        if context.finished(checkpoint.stage):
            return
        cells = list(product(spec.data.labels, spec.audit, spec.probes))
        asked = (bool(spec.rouge_rows), bool(spec.membership_rows) and checkpoint.step > 0)
        behind = list(product(spec.data.labels, spec.audit, spec.defences))
        total = 1 + len(cells) + sum(asked) + len(behind)
        with context.stage(checkpoint.stage, total) as on_progress:
            layer, vectors = self._vectors(checkpoint)
            on_progress(1, total)
            metrics, predictions = [], []
            for number, (attribute, artifact, probe) in enumerate(cells):
                result = self._probe(vectors[artifact], attribute, artifact, layer, probe)
                metrics.append(result.metrics)
                predictions.append(result.predictions)
                for note in result.warnings:
                    context.note(note)
                on_progress(2 + number, total)
            carried: dict[str, Any] = dict.fromkeys(rouge_columns(), np.nan)
            if asked[0]:
                carried |= self._summaries(checkpoint)
                on_progress(1 + len(cells) + 1, total)
            carried |= self._membership(checkpoint) if asked[1] else dict.fromkeys(EZ_COLUMNS, np.nan)
            self._write("checkpoints", checkpoint, pd.concat(metrics, ignore_index=True), carried)
            defended = []
            for number, cell in enumerate(behind):
                defended += self._defended(vectors[cell[1]], layer, *cell)
                on_progress(1 + len(cells) + sum(asked) + number + 1, total)
            if defended:
                self._write(DEFENDED, checkpoint, pd.concat(defended, ignore_index=True), carried)
            table = pd.concat(predictions, ignore_index=True).assign(step=checkpoint.step)
            append(context, "predictions", table, {"step": checkpoint.step})

    def _defended(
        self, array: np.ndarray, layer: int, attribute: str, artifact: str, defence: str
    ) -> list[pd.DataFrame]:
        """What each probe still reads when the exported vectors pass a defence first."""
        rows = {split: np.searchsorted(self.probed, at) for split, at in self.evaluated[attribute].items()}
        frame = self.rows.frame.iloc[self.probed]
        found = protected(self.context, defence, array, frame, attribute, artifact, rows)
        cells = [self._probe(found.vectors, attribute, artifact, layer, p, defence) for p in self.spec.probes]
        return [cell.metrics for cell in cells]

    def _write(self, name: str, checkpoint: Checkpoint, metrics: pd.DataFrame, carried: dict[str, Any]) -> None:
        pooled = metrics[metrics["seed"].isna()].reset_index(drop=True)
        first = {"run_id": self.context.run.id, "checkpoint": checkpoint.name, "step": checkpoint.step}
        strength = np.nan if checkpoint.strength is None else float(checkpoint.strength)
        table = pooled.assign(**{**first, "lambda": strength, **carried, "selected": False})
        order = [*first, "lambda", *[c for c in table if c not in (*first, "lambda")]]
        append(self.context, name, table[order], {"step": checkpoint.step})

    def _alive(self) -> OnProgress:
        """Progress inside a part: only cancelling is listened to."""
        return lambda done, total: self.context.check_cancelled()

    def _numerics(self) -> dict[str, str]:
        return evidence.numerics(self.spec)

    def _vectors(self, checkpoint: Checkpoint) -> tuple[int, dict[str, np.ndarray]]:
        """Layer, and artifact -> float32 [probed rows, width]."""
        from auditcore.lm.vectors import extract_vectors

        encoded = self.rows.exported.select(self.probed)
        key = cache.key(
            version=1, model=checkpoint.fingerprint, tokens=ids_hash(encoded), layer=self.spec.layer,
            artifacts=sorted(self.spec.audit), **self._numerics(),
        )  # fmt: skip
        kept = cache.load("checkpoint-vectors", key)
        if kept is None:
            found = extract_vectors(
                checkpoint.open(), encoded, self.spec.audit, [self.spec.layer],
                batch_size=max(self.spec.batch_size, 16), on_batch=self._alive(),
            )  # fmt: skip
            kept = {f"{artifact}@{layer}": array for (artifact, layer), array in found.items()}
            cache.save("checkpoint-vectors", key, kept)
        layer = int(next(iter(kept)).split("@")[1])
        return layer, {name.split("@")[0]: array for name, array in kept.items()}

    def _probe(
        self, array: np.ndarray, attribute: str, artifact: str, layer: int, probe: str, defence: str = "none"
    ) -> Any:
        from auditcore.leakage.gap import evaluate

        spec, frame = self.spec, self.rows.frame.iloc[self.probed]
        judged = {split: self.evaluated[attribute][split] for split in (FIT, CHOOSE)}
        rows = {split: np.searchsorted(self.probed, at) for split, at in judged.items()}
        return evaluate(
            array,
            frame[attribute],
            frame["group"],
            rows,
            probe,
            spec.seeds,
            n_boot=spec.n_boot,
            permutations=spec.permutations,
            budget=spec.budget,
            seed=spec.seed,
            example_ids=frame["example_id"].tolist(),
            on_step=self._alive(),
            attribute=attribute,
            artifact=artifact,
            layer=layer,
            defence=defence,
        )

    def _summaries(self, checkpoint: Checkpoint) -> dict[str, float]:
        """Generate, score and keep the summaries; returns the means with their intervals."""
        frame = self.rows.frame.iloc[self.summarised]
        texts = self._generate(checkpoint)
        references = [self.rows.dataset.target[i] for i in self.summarised]
        scores = rouge.rouge(references, texts)
        full = self.spec.store_text == "full"
        blank = [None] * len(texts)
        table = pd.DataFrame(
            {
                "example_id": frame["example_id"].to_numpy(),
                "step": checkpoint.step,
                "checkpoint": checkpoint.name,
                "defence": "none",
                "prompt": [prompt_of(self.rows.dataset, i) for i in self.summarised] if full else blank,
                "reference": references if full else blank,
                "generated": texts if full else blank,
            }
        ).astype({"prompt": "str", "reference": "str", "generated": "str"})
        append(self.context, "generations", pd.concat([table, scores], axis=1), {"step": checkpoint.step})
        return rouge.means(scores, frame["group"].tolist(), self.spec.n_boot, self.spec.seed)

    def _generate(self, checkpoint: Checkpoint) -> list[str]:
        from auditcore.lm.generate import generate

        encoded = self.rows.encoded.select(self.summarised)
        longest = int((encoded.lengths - encoded.prompt_lengths).max(initial=1))
        limit = self.spec.max_new_tokens or longest
        prompts = encoded.prompts()
        key = cache.key(
            version=1, model=checkpoint.fingerprint, tokens=ids_hash(prompts), max_new_tokens=limit, **self._numerics()
        )
        kept = cache.load("summaries", key) if self.spec.store_text == "full" else None
        if kept is None:
            texts = generate(
                checkpoint.open(), prompts, max_new_tokens=limit, batch_size=max(self.spec.batch_size, 16),
                on_batch=self._alive(),
            )  # fmt: skip
            if self.spec.store_text == "full":
                raw = [text.encode("utf-8", "surrogatepass") for text in texts]
                ends = np.cumsum([len(r) for r in raw])
                cache.save("summaries", key, {"bytes": np.frombuffer(b"".join(raw), dtype=np.uint8), "ends": ends})
            return texts
        joined, ends = kept["bytes"].tobytes(), kept["ends"].tolist()
        return [joined[a:b].decode("utf-8", "surrogatepass") for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _membership(self, checkpoint: Checkpoint) -> dict[str, float]:
        """TPR of attack `ez` at 1 % FPR, against the model before training; NaN where so few rows cannot show it."""
        from auditcore.membership.roc import attack_metrics
        from auditcore.membership.scores import score_table

        at, member = self.remembered
        spec = membership_spec(self.spec)
        one = evidence.Pass("target", "target", self.rows.encoded.select(at), False, spec.score)
        found = {}
        for side, print_ in (("target", checkpoint.fingerprint), ("reference", self.base)):
            found[side] = one.arrays(spec, print_, partial(self._side, checkpoint, side), self._alive())
        tokens = evidence.tokens(spec, self.rows.dataset, one.encoded, None, frozenset(), found)
        frame = self.rows.frame.iloc[at]
        scores = score_table(
            tokens, spec.attacks, frame["example_id"].tolist(), member, ez_policy=spec.ez_policy,
            skip_first=spec.skip_first,
        )  # fmt: skip
        groups = frame.set_index("example_id")["group"]
        metrics, _ = attack_metrics(scores, groups, [FPR], n_boot=self.spec.n_boot, seed=self.spec.seed)
        row = metrics[metrics["metric"] == "tpr"].iloc[0]
        return dict(zip(EZ_COLUMNS, [float(row[c]) for c in ("value", "low", "high")], strict=True))

    def _side(self, checkpoint: Checkpoint, side: str) -> Any:
        """The checkpoint as target, or with its adapter off: the model before training."""
        lm = checkpoint.open()
        return replace(lm, adapter_off=True, fingerprint=self.base) if side == "reference" else lm


def summarised_rows(rows: Rows, split: str, n: int, seed: int) -> np.ndarray:
    """Positions of the n rows of a split that are summarised, ascending: drawn by seed and row names, not by order."""
    encoded, frame = rows.encoded, rows.frame
    usable = frame["split"].eq(split).to_numpy(dtype=bool) & (encoded.prompt_lengths > 0)
    usable &= np.array([bool(text.strip()) for text in rows.dataset.target or [""] * len(frame)])
    at = np.flatnonzero(usable)
    at = at[np.argsort(frame["example_id"].iloc[at].to_numpy(dtype=str), kind="stable")]
    rng = np.random.default_rng([seed, 0x2006])
    return np.sort(rng.permutation(at)[:n])


EZ_COLUMNS = ("ez_tpr_at_1pct", "ez_tpr_at_1pct_low", "ez_tpr_at_1pct_high")


def rouge_columns() -> list[str]:
    """Names of the utility columns of `checkpoints`."""
    return [f"{name}{end}" for name in rouge.NAMES for end in ("", "_low", "_high")]


def balanced_rows(frame: pd.DataFrame, attribute: str, seed: int) -> dict[str, np.ndarray]:
    """Positions of the class-balanced rows that probes are fitted and judged on, those a vectors audit would take."""
    from auditcore.datasets.splits import balanced

    return {split: balanced(frame, attribute, split, seed) for split in (FIT, CHOOSE)}


def prompt_of(dataset: Any, row: int) -> str:
    """The prompt of one row as the model reads it."""
    from auditcore.datasets.roles import render

    return render(dataset.template, {name: [texts[row]] for name, texts in dataset.fields.items()}, 1)[0]


def membership_spec(spec: Any) -> MembershipSpec:
    """The membership audit of a checkpoint: attack `ez`, on the target's tokens."""
    whole = dump_spec(spec)
    keys = ("template", "max_length", "batch_size", "seed", "threads")
    model = {k: v for k, v in spec.model.model_dump().items() if k != "reference"}
    raw = {"kind": "membership", "model": model, "data": whole["data"], **{k: whole[k] for k in keys}}
    made = parse_spec({**raw, "attacks": ["ez"]})
    assert isinstance(made, MembershipSpec)
    return made


def _spec(context: Context) -> Any:
    """The spec of a run of checkpoints, whichever of the two kinds."""
    return context.spec
