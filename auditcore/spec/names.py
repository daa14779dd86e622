"""Every name that can be chosen, with the words a page shows beside it."""

from typing import Annotated, Literal

from pydantic import Field

# Every name that can be chosen, with the words a page shows beside it.
ARTIFACTS = {
    "lasttok": "hidden state of the last prompt token, before decoding",
    "meanpool": "mean of the hidden states over the prompt's tokens",
    "concat": "lasttok and meanpool side by side: what a party holding both has",
    "firsttok": "hidden state of the first prompt token, which in a causal model has read no other",
    "maxpool": "largest value of each dimension over the prompt's tokens",
    "weighted_mean": "mean with weights that grow with the position (SGPT, arXiv 2202.08904)",
    "last_k_mean": "mean of the hidden states over the last tokens of the prompt (last_k, 8 by default)",
}
PROBES = {
    "linear": "multinomial logistic regression on standardised vectors, C chosen on an inner split",
    "mlp": "two-layer perceptron on standardised or whitened vectors",
    "gbt": "gradient-boosted trees (scikit-learn), their number chosen on an inner split",
    "knn": "nearest neighbours by angle (scikit-learn), their number chosen on an inner split",
}
DEFENCES = {
    "none": "the vectors as they are exported",
    "prompt": "neutrality directives in front of the prompt, each an artifact of its own",
    "pca": "the directions in which the classes' means differ removed",
    "pca_vectors": "the widest directions of the vectors removed, whatever the label (Mu & Viswanath 2018)",
    "inlp": "iterative null-space projection of logistic regressions (arXiv 2004.07667)",
    "leace": "least-squares concept erasure, closed form, one-hot labels (arXiv 2306.03819)",
    "noise": "Gaussian noise in proportion to each column's deviation, a control",
    "truncate": "the first columns only, a control",
}
BASELINES = {
    "text": "the prompt itself: words and pairs of words weighted by TF-IDF, under logistic regression",
    "metadata": "columns that the recipient of a vector holds anyway, under logistic regression or boosted trees",
}
ADVERSARIES = {
    "mlp": "two-layer perceptron on standardised vectors, trained along with the adapter",
    "ridge": "regularised discriminant analysis of a bank of recent vectors: sees directions of low variance too",
    "moment": "squared cross-covariance of the standardised vector with the one-hot label, from the same bank",
}
ATTACKS = {
    "ez": "error-zone ratio P/N of raised to lowered log-probability where the target errs (arXiv 2601.12104)",
    "loss": "mean log-probability under the target (Yeom et al. 2018)",
    "reference": "mean log-probability under the target minus under the reference (Carlini et al. 2021)",
    "zlib": "mean log-probability over the bytes of the compressed text (Carlini et al. 2021)",
    "lowercase": "mean log-probability minus that of the text in lower case (Carlini et al. 2021)",
    "min_k": "mean of the lowest fifth of the log-probabilities (arXiv 2310.16789)",
    "min_k_pp": "the same, each standardised by mean and deviation of log p under p (arXiv 2404.02936)",
    "min_k_pp_ref": "min_k_pp under the target minus under the reference (arXiv 2507.18302)",
    "wbc": "share of windows of 2 to 40 tokens in which the reference loses more (arXiv 2601.02751)",
    "lira": "likelihood ratio with shadow models that are really trained (Carlini et al. 2022)",
    "recall": "mean log-probability behind a prefix of known non-members, over that without (arXiv 2406.15968)",
    "neighbourhood": "mean log-probability minus that of copies with a few words replaced (arXiv 2305.18462)",
    "spv": "probabilistic variation over altered copies, against a self-prompted reference (arXiv 2311.06062)",
}
ROLES = {
    "text": "the text a model was trained on",
    "prompt": "what the model is given",
    "target": "what the model should write",
    "messages": "a conversation: a list of {role, content}, as JSON or as a list column",
    "label": "the sensitive attribute, one column or several",
    "metadata": "what the recipient of a vector holds anyway, one column or several: a baseline, never in a text",
    "member": "was this row trained on? 0/1/true/false, empty = unknown",
    "split": "train, defence_fit, bal_train, bal_val or bal_test",
    "group": "the subject a row belongs to",
    "id": "a unique name of the row",
}
SPLITS = ("train", "defence_fit", "bal_train", "bal_val", "bal_test")
# Split -> why no defence may be fitted on it; empty where one may.
WHY_NOT = {
    "train": "The model was trained on these subjects, so that their vectors differ from those it exports later.",
    "defence_fit": "",
    "bal_train": "A defence fitted on the probe's training rows leaves it nothing to learn: any vector reads as safe.",
    "bal_val": "A defence that has seen bal_val rows makes its probe do worse than guessing there.",
    "bal_test": "A defence that has seen test rows makes its probe do worse than guessing; bal_test only reports.",
}
VERDICTS = ("within budget", "over budget", "not resolved", "below chance")
STATUSES = ("ok", "p_zero", "n_zero", "no_errors", "insufficient", "no_evidence")
CHATS = ("membership", "finetune", "sweep")  # kinds whose rows may be conversations
KINDS = ("membership", "vectors", "finetune", "sweep", "surfacelora", "frontier")

CORPORA = {
    "ag_news": "AG News: title and description, or one column text",
    "xsum": "XSum: the BBC article, column document",
    "wikitext": "WikiText: lines of text, articles told apart by their headings",
    "code": "source code: one file a row (column code, content or text), or a folder of source files",
}
SEQUENCES = {
    "whole": "every document as it is",
    "joined": "documents after one another until `length` is reached; what is left of the last one is dropped",
    "cut": "every document cut into consecutive pieces; a shorter end is dropped",
    "last": "the end of every document; shorter documents are dropped",
}
UNITS = {
    "words": "runs without white space, joined by one blank (the paper's code does so)",
    "tokens": "tokens of the model, without special ones; the text stays as it is written",
}

CLINICAL = {
    "discharge_me": "Discharge Me! 1.3: the folder with train/, valid/, test_phase_1/, test_phase_2/",
    "mimic_iv_bhc": "MIMIC-IV-Ext-BHC 1.1.0: mimic-iv-bhc.csv or its folder, and MIMIC-IV's admissions",
}
CLINICAL_SPLITS = ("train", "valid", "test_phase_1", "test_phase_2")
CLINICAL_ROLES: dict[str, str | list[str]] = {
    "prompt": "prompt",
    "target": "target",
    "label": "recorded_race",
    "group": "subject_id",
    "id": "note_id",
    "split": "split",
}

SHORT_NAMES = {"smollm2-135m": "SmolLM2-135M-Instruct (Apache-2.0), bundled"}

SplitName = Literal["train", "defence_fit", "bal_train", "bal_val", "bal_test"]
LiraVariant = Literal["online", "offline"]
Fraction = Annotated[float, Field(gt=0, lt=1)]
