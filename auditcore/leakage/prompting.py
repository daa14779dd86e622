"""Neutrality directives as a defence. In: a template, generated texts, lists of words. Out: templates, contamination.

Meta-term contamination is the share of generated summaries that hold a term of the directive's own vocabulary
(arXiv 2605.26433); it is read against the same rows generated without the directive, paired.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import yaml

from auditcore.verdict import wilson

PREFIX = "prompt:"  # of the names of directives among defences


@dataclass(frozen=True)
class Shipped:
    """The directives and meta-terms that come with the package (directives.yaml)."""

    directives: dict[str, str]
    meta_terms: list[str]


@cache
def shipped() -> Shipped:
    """Read directives.yaml."""
    raw = yaml.safe_load(files("auditcore.leakage").joinpath("directives.yaml").read_text(encoding="utf-8"))
    texts = {str(name): " ".join(str(text).split()) for name, text in raw["directives"].items()}
    return Shipped(texts, [str(term) for term in raw["meta_terms"]])


def with_directive(template: str, directive: str) -> str:
    """The template with a directive in front of it; braces in the directive stay what they are."""
    return directive.replace("{", "{{").replace("}", "}}") + "\n\n" + template


def found_terms(text: str, terms: Sequence[str]) -> list[str]:
    """Terms that stand in the text as whole words, case and blanks folded, in the order of `terms`."""
    folded = " ".join(text.casefold().split())
    return [term for term in terms if _pattern(term).search(folded)]


@cache
def _pattern(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(' '.join(term.casefold().split()))}(?!\w)")


@dataclass(frozen=True)
class Share:
    """A share of rows with its 95 % interval over subjects; change against the undirected prompt, paired by row."""

    value: float
    low: float
    high: float
    change: float
    change_low: float
    change_high: float


def contamination(
    hit: np.ndarray, plain: np.ndarray | None, groups: np.ndarray, n_boot: int = 2000, seed: int = 0
) -> Share:
    """Share of rows with a meta-term, and its change.

    hit: bool [n], of the texts behind a directive; plain: the same rows without it, or None (no change then); groups:
    [n] subjects. Share by Wilson's interval at the number of subjects, which holds where no text has a term; change by
    a bootstrap over subjects, and where no text changed by what Wilson's interval says of none in so many, either way.
    NaN without rows.
    """
    if not len(hit):
        return Share(*[np.nan] * 6)
    subject = np.unique(np.asarray(groups, dtype=str), return_inverse=True)[1]
    n = int(subject.max()) + 1
    value = float(np.mean(hit))
    low, high = wilson(value, n)
    if plain is None:
        return Share(value, low, high, np.nan, np.nan, np.nan)
    moved = hit.astype(np.float64) - plain
    if not moved.any():  # a bootstrap of zeros would call it certain
        most = wilson(0.0, n)[1]
        return Share(value, low, high, 0.0, -most, most)
    total, size = np.bincount(subject, weights=moved), np.bincount(subject).astype(np.float64)
    drawn = np.random.default_rng([seed, 0x3E7A]).multinomial(n, np.full(n, 1 / n), size=n_boot)
    ends = np.quantile((drawn @ total) / (drawn @ size), [0.025, 0.975]) if n > 1 else (np.nan, np.nan)
    return Share(value, low, high, float(moved.mean()), float(ends[0]), float(ends[1]))
