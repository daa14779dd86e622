"""Fake tables of generated summaries. In: a generator, a recipe, the examples. Out: the three tables of texts."""

import numpy as np
import pandas as pd

from auditcore.leakage.prompting import contamination, found_terms
from auditcore.rouge import means, rouge
from tests.fake_parts import HOSTILE, TEXT, Recipe

TERMS = ["race", "neutral"]


def fake_texts(rng: np.random.Generator, recipe: Recipe, examples: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables `generations`, `generation_metrics` and `output_metrics` of `recipe.summaries` rows."""
    part = examples.head(recipe.summaries)
    groups, words = part["group"].to_numpy(dtype=str), TEXT.split()
    wanted = [" ".join(rng.choice(words, 12)) for _ in range(len(part))]
    kinds = ["none", *[d for d in recipe.defences if d.startswith("prompt:")]]
    hits, texts, scores = {}, [], []
    for name in kinds:
        found = [" ".join([*rng.choice(words, 10), *(["race"] if name != "none" and i % 3 == 0 else [])])
                 for i in range(len(part))]  # fmt: skip
        if recipe.hostile:
            found[0] = f"{HOSTILE[0]} race"
        hits[name] = np.array([bool(found_terms(t, TERMS)) for t in found])
        held = contamination(hits[name], None if name == "none" else hits["none"], groups, 200, 0)
        scores.append(
            {"defence": name, "n_rows": len(part), "n_subjects": len(set(groups)), "n_empty": 0,
             **means(rouge(wanted, found), groups.tolist(), 200, 0), "contaminated": held.value,
             "contaminated_low": held.low, "contaminated_high": held.high, "contaminated_change": held.change,
             "contaminated_change_low": held.change_low, "contaminated_change_high": held.change_high}
        )  # fmt: skip
        keep = recipe.store_text == "full"
        texts.append(
            pd.DataFrame(
                {"example_id": part["example_id"], "step": pd.array([pd.NA] * len(part), dtype="Int32"),
                 "defence": name, "prompt": "", "reference": wanted if keep else "", "generated": found if keep else "",
                 "meta_terms": [", ".join(found_terms(t, TERMS)) for t in found]}
            ).join(rouge(wanted, found).set_index(part.index))
        )  # fmt: skip
    return {
        "generations": pd.concat(texts, ignore_index=True),
        "generation_metrics": pd.DataFrame(scores),
        "output_metrics": _readings(recipe, kinds, len(part)),
    }


def _readings(recipe: Recipe, kinds: list[str], n: int) -> pd.DataFrame:
    chance, rows = 1 / len(recipe.classes), []
    sources = [("prompt", "none"), ("reference", "none"), *[("generated", name) for name in kinds]]
    for attribute in recipe.attributes:
        for place, (source, defence) in enumerate(sources):
            for attacker in ("tfidf", "embedding"):
                accuracy = chance + 0.4 / (1 + place)
                gap = accuracy - chance
                rows.append(
                    {"attribute": attribute, "source": source, "defence": defence, "attacker": attacker, "n_rows": n,
                     "n_subjects": n, "n_classes": len(recipe.classes), "accuracy": accuracy,
                     "accuracy_low": accuracy - 0.05, "accuracy_high": accuracy + 0.05, "chance": chance,
                     "signed_gap": gap, "signed_low90": gap - 0.04, "signed_high90": gap + 0.04,
                     "verdict": "over budget" if gap > 0.065 else "not resolved",
                     "change": -0.05 if defence != "none" else np.nan,
                     "change_low": -0.1 if defence != "none" else np.nan,
                     "change_high": 0.0 if defence != "none" else np.nan}
                )  # fmt: skip
    return pd.DataFrame(rows)
