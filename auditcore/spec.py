"""What an audit is: validated specs, and every name that can be chosen. In: YAML, JSON or a dict. Out: a frozen spec.

The pages, the command line and spec files all build the same objects; the module that owns a kind of choice maps each
name listed here to one function.
"""

import json
import re
import string
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from auditcore.errors import SpecError, did_you_mean

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


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ModelSpec(_Model):
    """Which model: a folder, an adapter folder, a GGUF file, a hub id or a short name."""

    source: str
    reference: str | None = None  # membership only: the model before fine-tuning
    base: str | None = None  # the base of an adapter, when its own config does not find it
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    precision: Literal["full", "bf16"] = "full"  # bf16: body in bfloat16, head and log-softmax in float32
    device: str = "auto"

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if value in ("auto", "cpu", "mps") or value.split(":")[0] == "cuda":
            return value
        raise ValueError(f"'{value}' is not a device: use auto, cpu, cuda, cuda:N or mps")


class CorpusSpec(_Model):
    """How to make rows from a public corpus: sequences of one length, whole documents drawn for members or others."""

    name: str
    sequences: str | None = None  # None: joined for ag_news and xsum, cut for wikitext, last for code
    unit: str = "words"
    length: int = Field(default=128, ge=2)  # units in a sequence
    members: int | None = Field(default=None, gt=0)  # None: the documents that are left, half and half
    nonmembers: int | None = Field(default=None, gt=0)
    validation: int = Field(default=0, ge=0)  # sequences of unknown membership, to choose a checkpoint with
    per_document: int | None = Field(default=None, gt=0)  # cut: at most so many sequences of one, drawn by the seed
    split: str | None = None  # of a folder or a hub id: the files whose name holds this word
    clean: bool = False  # ag_news: HTML entities and backslashes turned into what they stand for
    keep_spacing: bool = False  # words: white space as it is written, line breaks and indentation too
    seed: int = 0

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        return _one_of("corpus", value, CORPORA)

    @field_validator("sequences")
    @classmethod
    def _sequences(cls, value: str | None) -> str | None:
        return None if value is None else _one_of("kind of sequences", value, SEQUENCES)

    @field_validator("unit")
    @classmethod
    def _unit(cls, value: str) -> str:
        return _one_of("unit", value, UNITS)


class ClinicalSpec(_Model):
    """Licensed notes from the user's own copy, as PhysioNet gives them. Rows stay in memory and in the run's folder."""

    source: str
    parts: list[str] | None = None  # discharge_me: which of its folders; None: all that are there
    admissions: str | None = None  # mimic_iv_bhc: MIMIC-IV's admissions.csv.gz, which holds the recorded race
    notes: str | None = None  # mimic_iv_bhc: MIMIC-IV-Note's discharge.csv.gz, which tells the stay of a note
    race_table: str | None = None  # an edited copy of auditcore/datasets/recorded_race.yaml
    leftovers: Literal["drop", "keep"] = "drop"  # prompts that still hold a long piece of their summary
    seed: int = 0

    @field_validator("source")
    @classmethod
    def _source(cls, value: str) -> str:
        return _one_of("source", value, CLINICAL)

    @field_validator("parts")
    @classmethod
    def _parts(cls, value: list[str] | None) -> list[str] | None:
        return None if value is None else _known("part", value, dict.fromkeys(CLINICAL_SPLITS, ""))


class DataSpec(_Model):
    """Which rows, and which column plays which role."""

    path: str
    corpus: CorpusSpec | None = None  # path is a corpus, and rows (text, member, group, id) are made from it first
    clinical: ClinicalSpec | None = None  # path is a folder of licensed notes; they bring roles and splits
    roles: dict[str, str | list[str]] = Field(default_factory=dict)
    split_map: dict[str, SplitName] = Field(default_factory=dict)  # the file's own split names -> ours
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"] = "auto"
    max_rows: int | None = Field(default=None, gt=0)  # the first rows only; recorded and shown

    @model_validator(mode="before")
    @classmethod
    def _clinical_roles(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or raw.get("clinical") is None:
            return raw
        given = raw.get("roles") or {}
        own = [role for role in given if role != "label" and given[role] != CLINICAL_ROLES.get(role)]
        if own or raw.get("split_map") or raw.get("corpus"):
            raise ValueError("licensed notes bring their roles and splits; of roles only label can be chosen")
        return {**raw, "roles": {**CLINICAL_ROLES, **given}}

    @field_validator("roles")
    @classmethod
    def _roles(cls, value: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
        for role, column in value.items():
            if role not in ROLES:
                raise ValueError(f"'{role}' is not a role.{did_you_mean(role, ROLES)}")
            if isinstance(column, list) and role != "label":
                raise ValueError(f"role '{role}' takes one column, not a list")
            if not column:
                raise ValueError(f"role '{role}' names no column")
        return value

    @model_validator(mode="after")
    def _own_roles(self) -> "DataSpec":
        if self.corpus is not None and (self.roles or self.split_map):
            raise ValueError("rows made from a corpus bring their roles (text, member, group, id); leave roles out")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the label columns (attributes), possibly empty."""
        label = self.roles.get("label", [])
        return (label,) if isinstance(label, str) else tuple(label)

    def column(self, role: str) -> str | None:
        """Return the one column that plays `role`, or None."""
        value = self.roles.get(role)
        return value if isinstance(value, str) else None


def _validation_rows(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (number and 0 <= value < 1) or value in ("unknown", "defence_fit", "bal_train", "bal_val"):
        return value
    raise ValueError(
        f"{value!r} is neither a share of the subjects from 0 up to 1, nor unknown, defence_fit, bal_train, bal_val"
    )


class _Audit(_Model):
    name: str | None = None
    data: DataSpec
    template: str | None = None  # None: "{prompt}" or "{text}", whichever role is mapped
    max_length: int = Field(default=512, ge=2)  # tokens, target included
    batch_size: int = Field(default=16, ge=1)
    seed: int = 0
    threads: int | None = Field(default=None, ge=1)
    store_text: Literal["full", "none"] = "full"

    @field_validator("template")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None:
            parse_template(value)
        return value

    @model_validator(mode="after")
    def _conversations(self) -> "_Audit":
        if "messages" in self.data.roles:
            if getattr(self, "kind", "") not in CHATS:
                raise ValueError(
                    "conversations can be trained on and audited for membership; vectors and summaries are made of "
                    "prompts: map a column to prompt or text instead of messages"
                )
            if self.template is not None:
                raise ValueError(
                    "rows of messages are written with the tokenizer's own chat template; leave template out"
                )
            if twice := [role for role in ("text", "prompt", "target") if role in self.data.roles]:
                raise ValueError(f"a row is either messages or {twice[0]}, not both: leave one of the roles out")
        return self

    @property
    def prompt_template(self) -> str:
        """The template, or its default from the mapped roles."""
        if self.template is not None:
            return self.template
        if "messages" in self.data.roles:
            return "{messages}"
        return "{prompt}" if "prompt" in self.data.roles else "{text}"


class LoraSpec(_Model):
    """Adapter shape (peft.LoraConfig)."""

    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    # None: the attention projections of the architecture; all-linear: every linear map but the head
    target_modules: list[str] | Literal["all-linear"] | None = None


class SurfaceShape(LoraSpec):
    """The same for `surfacelora`, whose adversaries gain from more maps to pull at."""

    # Dropout would hide from the adversaries what an exported vector, which has none, still shows.
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: list[str] | Literal["all-linear"] | None = "all-linear"


class RecipeSpec(_Model):
    """How the reference is fine-tuned for an attack that needs a model of its own."""

    method: Literal["full", "lora"] = "lora"
    lora: LoraSpec = Field(default_factory=LoraSpec)
    epochs: int = Field(default=3, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)
    batch_size: int = Field(default=16, ge=1)
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    autocast: Literal["auto", "bf16", "none"] = "auto"


class ShadowSpec(RecipeSpec):
    """Shadow models of the attack `lira`: how many, and how the reference is fine-tuned into each of them."""

    count: int = Field(default=8, ge=4)  # two on each side of a row are the least that show a spread
    variant: LiraVariant = "online"


class SpvSpec(RecipeSpec):
    """The attack `spv`: pairs of altered copies per row, and how the reference is fine-tuned on the target's texts."""

    pairs: int = Field(default=10, ge=1)  # two copies each; 10 pairs make the paper's 42 passes
    epochs: int = Field(default=2, ge=1)  # the authors' own, as the rate is
    learning_rate: float = Field(default=5e-5, gt=0)


class ReferenceSpec(RecipeSpec):
    """What attacks compare the target with: model.reference as it is (base), or fine-tuned for the purpose.

    sft: on known non-members, which leave the evaluation; distillation: on texts that the target writes.
    """

    kind: Literal["base", "sft", "distillation"] = "base"
    nonmembers: Fraction = 0.5  # sft: share of the non-members' subjects that are trained on


class SelfPromptSpec(_Model):
    """Texts that the target writes behind short public prompts, for whatever is fine-tuned on them."""

    texts: int = Field(default=400, ge=8)
    prompts: str | list[str] | None = None  # a text file with one prompt a line, or the prompts; None: those we ship
    new_tokens: int | None = Field(default=None, ge=4)  # of each text; None: 64, or what max_length leaves
    temperature: float = Field(default=0.9, gt=0)
    top_p: float = Field(default=0.9, gt=0, le=1)

    @field_validator("prompts")
    @classmethod
    def _prompts(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list) and not [p for p in value if p.strip()]:
            raise ValueError("name at least one prompt, or leave prompts out to use those we ship")
        return value


class NeighbourSpec(_Model):
    """Altered copies of each row: how many for `neighbourhood`, and how much of a row each changes (for `spv` too)."""

    count: int = Field(default=10, ge=1)
    share: Fraction = 0.1  # of a row's whole words, at least one; our choice, the paper replaces one to a few words


class MembershipSpec(_Audit):
    """Which training rows does the model remember?"""

    kind: Literal["membership"] = "membership"
    model: ModelSpec
    attacks: list[str] = Field(default_factory=lambda: ["ez", "loss", "reference"], min_length=1)
    ez_policy: Literal["paper", "official"] = "paper"
    skip_first: bool = True
    recall_shots: int = Field(default=5, ge=1)  # non-members in the prefix of `recall`; they leave the evaluation
    reference: ReferenceSpec = Field(default_factory=ReferenceSpec)
    shadows: ShadowSpec = Field(default_factory=ShadowSpec)
    neighbours: NeighbourSpec = Field(default_factory=NeighbourSpec)
    spv: SpvSpec = Field(default_factory=SpvSpec)
    self_prompt: SelfPromptSpec = Field(default_factory=SelfPromptSpec)
    score: Literal["target", "all"] = "target"  # rows with prompt and target: which positions count
    target_fprs: list[Fraction] = Field(default_factory=lambda: [0.001, 0.01, 0.05, 0.1], min_length=1)
    membership_budget: float = Field(default=0.025, gt=0, lt=1)
    n_boot: int = Field(default=2000, ge=100)
    on_duplicates: Literal["warn", "exclude"] = "warn"  # texts that stand on both sides of the member line
    on_mismatch: Literal["error", "warn"] = "error"  # member column against what the checkpoint was trained on

    @property
    def written_tokens(self) -> int:
        """Tokens that the target writes behind each prompt, at most: by default the prompt may take 16 beside them."""
        if self.self_prompt.new_tokens is not None:
            return self.self_prompt.new_tokens
        return min(64, max(self.max_length - 16, self.max_length // 2))

    @field_validator("attacks")
    @classmethod
    def _attacks(cls, value: list[str]) -> list[str]:
        return _known("attack", value, ATTACKS)

    @model_validator(mode="after")
    def _reference(self) -> "MembershipSpec":
        if 0.01 not in self.target_fprs:
            raise ValueError("target_fprs must hold 0.01: the membership verdict is read there")
        return self


class VectorFile(_Model):
    """Vectors the user already has: one row each, in the order of the data (or joined by the id role)."""

    path: str
    column: str | None = None


class DefenceSpec(_Model):
    """How defences on vectors are fitted; what one of them does not use is ignored by it."""

    fit_on: str = "defence_fit"
    dimensions: int | None = Field(default=None, ge=1)  # directions to remove; None: classes - 1, what their means span
    noise: float = Field(default=0.5, gt=0)  # of `noise`: standard deviation, in those of each column
    keep: Fraction = 0.5  # of `truncate`: share of the columns

    @field_validator("fit_on")
    @classmethod
    def _fit_on(cls, value: str) -> str:
        if value not in WHY_NOT:
            raise ValueError(f"'{value}' is not a split.{did_you_mean(value, WHY_NOT)}")
        if WHY_NOT[value]:
            raise ValueError(f"{WHY_NOT[value]} Defences are fitted on subjects of their own, those of defence_fit")
        return value


class GenerateSpec(_Model):
    """Summaries that the model writes, to be read by attackers too: of how many test rows, how long."""

    rows: int = Field(default=200, ge=20)  # at most; whole subjects, the first label's classes equally frequent
    max_new_tokens: int = Field(default=96, ge=1)
    embed: bool = True  # read vectors of the texts too, made by the audited model


class VectorsSpec(_Audit):
    """What can be inferred from the exported vectors?"""

    kind: Literal["vectors"] = "vectors"
    model: ModelSpec | None = None
    vectors: VectorFile | None = None
    artifacts: list[str] = Field(default_factory=lambda: ["lasttok", "meanpool"], min_length=1)
    # -1 = after the final norm; all = every one, from the embeddings (0) to there
    layers: list[int] | Literal["all"] = Field(default_factory=lambda: [-1])
    last_k: int = Field(default=8, ge=1)  # tokens in the artifact last_k_mean
    probes: list[str] = Field(default_factory=lambda: ["linear", "mlp"], min_length=1)
    defences: list[str] = Field(default_factory=lambda: ["none"], min_length=1)
    defence_options: DefenceSpec = Field(default_factory=DefenceSpec)
    directives: dict[str, str] | None = None  # of the defence `prompt`: name -> text; None: the three shipped ones
    meta_terms: list[str] | None = None  # words of directives that no summary should hold; None: the list shipped
    generate: GenerateSpec | None = None
    seeds: list[int] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    budget: float = Field(default=0.025, gt=0, lt=1)
    permutations: int = Field(default=199, ge=19)
    n_boot: int = Field(default=2000, ge=100)

    @field_validator("layers", mode="before")
    @classmethod
    def _layers(cls, value: Any) -> Any:
        whole = isinstance(value, list) and value and all(type(layer) is int for layer in value)
        if whole or value == "all":
            return value
        raise ValueError(f"{value!r} is neither a list of whole numbers, such as [0, 15, -1], nor all")

    @field_validator("artifacts")
    @classmethod
    def _artifacts(cls, value: list[str]) -> list[str]:
        return _known("artifact", value, ARTIFACTS)

    @field_validator("probes")
    @classmethod
    def _probes(cls, value: list[str]) -> list[str]:
        return _known("probe", value, PROBES)

    @field_validator("defences")
    @classmethod
    def _defences(cls, value: list[str]) -> list[str]:
        return _known("defence", value, DEFENCES)

    @field_validator("directives")
    @classmethod
    def _directives(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for name, text in (value or {}).items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,29}", name):
                raise ValueError(f"directive '{name}': names are lower-case letters, digits, - and _, at most 30")
            if not text.strip():
                raise ValueError(f"directive '{name}' is empty")
        if value == {}:
            raise ValueError("no directive is named; leave directives out to have the shipped ones")
        return value

    @model_validator(mode="after")
    def _texts(self) -> "VectorsSpec":
        if self.model is None and "prompt" in self.defences:
            raise ValueError("defence 'prompt' changes what a model reads: it needs a model, not a file of vectors")
        if self.model is None and self.generate is not None:
            raise ValueError("generate: summaries are written by a model, and none is named")
        return self

    @model_validator(mode="after")
    def _source(self) -> "VectorsSpec":
        if (self.model is None) == (self.vectors is None):
            raise ValueError("name either a model to extract vectors with, or a file of vectors, not both")
        if not self.data.labels:
            raise ValueError("data.roles.label is missing: which column holds the sensitive label?")
        return self


class _Training(_Audit):
    """How adapters or weights are learnt."""

    model: ModelSpec
    lora: LoraSpec = Field(default_factory=LoraSpec)
    learning_rate: float = Field(default=5e-5, gt=0)
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1)
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    gradient_accumulation: int = Field(default=1, ge=1)
    activation_checkpointing: bool = False  # layers are computed again in the backward pass: less memory, more time
    # bf16: matrix products in bfloat16, weights stay float32. auto: bf16 where the hardware has units for it (CUDA,
    # AMX), none elsewhere, where float32 is faster.
    autocast: Literal["auto", "bf16", "none"] = "auto"
    train_splits: tuple[SplitName, ...] = ("train",)  # used when there is no member role


class FinetuneSpec(_Training):
    """Fine-tune a model: full or LoRA. Makes the targets that membership audits need."""

    kind: Literal["finetune"] = "finetune"
    method: Literal["full", "lora"] = "full"
    epochs: int = Field(default=3, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)  # steps; None keeps `last` and `best` only
    # Rows that choose `best`: a share of the training subjects, the rows of unknown membership, or a split. 0 = none.
    validation: float | Literal["unknown", "defence_fit", "bal_train", "bal_val"] = 0.1

    _validation = field_validator("validation", mode="before")(_validation_rows)

    def total_steps(self, per_epoch: int) -> int:
        """Optimiser steps of the whole training."""
        steps = per_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)


class VariantSpec(_Model):
    """Ways to fine-tune in a sweep: where a field holds a list, every combination of the lists is one variant."""

    method: Literal["full", "lora"]
    rank: list[int] = Field(default_factory=lambda: [16], min_length=1)  # LoRA only; alpha is twice the rank
    learning_rate: list[float] = Field(min_length=1)
    epochs: int = Field(default=3, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    target_modules: list[str] | None = None

    @field_validator("rank", "learning_rate", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    @field_validator("rank", "learning_rate")
    @classmethod
    def _positive(cls, value: list[float]) -> list[float]:
        if any(v <= 0 for v in value) or len(set(value)) != len(value):
            raise ValueError(f"{value}: each value must be above 0 and named once")
        return value


class SweepSpec(_Audit):
    """Does the fine-tuning method decide? Several trainings on the same rows, each of their checkpoints audited."""

    kind: Literal["sweep"] = "sweep"
    model: ModelSpec  # the model before fine-tuning: every variant starts from it and is compared with it
    variants: list[VariantSpec] = Field(min_length=1)
    checkpoints_per_epoch: int = Field(default=1, ge=1)
    validation: float | Literal["unknown", "defence_fit", "bal_train", "bal_val"] = 0.1
    schedule: Literal["linear", "cosine", "constant"] = "constant"
    autocast: Literal["auto", "bf16", "none"] = "auto"
    attacks: list[str] = Field(default_factory=lambda: ["ez", "loss", "reference"], min_length=1)
    ez_policy: Literal["paper", "official"] = "paper"
    skip_first: bool = True
    score: Literal["target", "all"] = "target"
    target_fprs: list[Fraction] = Field(default_factory=lambda: [0.01, 0.1], min_length=1)
    n_boot: int = Field(default=2000, ge=100)
    tolerance: float = Field(default=0.02, gt=0)  # nats per token: how near two validation losses must be to match
    on_duplicates: Literal["warn", "exclude"] = "warn"

    _validation = field_validator("validation", mode="before")(_validation_rows)

    @field_validator("attacks")
    @classmethod
    def _attacks(cls, value: list[str]) -> list[str]:
        return _known("attack", value, ATTACKS)


class _CheckpointAudit(_Audit):
    """What is measured of every checkpoint: leakage by fresh probes on bal_val, summaries, membership."""

    audit: list[str] = Field(default_factory=lambda: ["lasttok", "meanpool", "concat"], min_length=1)
    layer: int = -1  # -1 = after the final norm
    probes: list[str] = Field(default_factory=lambda: ["linear", "mlp"], min_length=1)
    seeds: list[int] = Field(default_factory=lambda: [0, 1, 2], min_length=1)
    budget: float = Field(default=0.025, gt=0, lt=1)
    select_on: Literal["point", "upper"] = "point"  # which end of a gap must meet the budget
    permutations: int = Field(default=0, ge=0)  # a null band for every checkpoint costs more than its training
    n_boot: int = Field(default=2000, ge=100)
    rouge_rows: int = Field(default=200, ge=0)  # bal_val rows that are summarised; the same ones for every checkpoint
    max_new_tokens: int | None = Field(default=None, ge=1)  # None: as many as the longest of their targets has
    membership_rows: int = Field(default=0, ge=0)  # members, and as many others, for attack `ez`; 0 = not measured

    @field_validator("audit")
    @classmethod
    def _artifacts(cls, value: list[str]) -> list[str]:
        return _known("artifact", value, ARTIFACTS)

    @field_validator("probes")
    @classmethod
    def _probes(cls, value: list[str]) -> list[str]:
        return _known("probe", value, PROBES)

    @model_validator(mode="after")
    def _roles(self) -> Self:
        if not self.data.labels:
            raise ValueError("data.roles.label is missing: which column holds the sensitive label?")
        if self.rouge_rows and "target" not in self.data.roles:
            raise ValueError(
                "data.roles.target is missing: which column holds the summary? Without one set rouge_rows: 0"
            )
        if self.membership_rows and "member" not in self.data.roles:
            raise ValueError("membership_rows needs data.roles.member: which column says what was trained on?")
        return self


class DiscriminatorSpec(_Model):
    """The adversaries of `surfacelora`, and the bank of vectors they are fitted on."""

    rows: int = Field(default=32, ge=1)  # prompts a step that the turned gradient comes from, summarised ones first
    held_out: bool = True  # turn against prompts that the bank does not hold: others are known by heart
    bank_rows: int = Field(default=640, ge=2)  # training prompts whose vectors are made anew ...
    bank_every: int = Field(default=25, ge=1)  # ... every so many steps; batches join in between
    bank_kept: int = Field(default=2, ge=1)  # refreshes in the bank
    ridge: float | Literal["auto"] = "auto"  # share of a standardised column's variance; auto: by rows left out
    hidden: int = Field(default=256, ge=1)  # of mlp, as is everything below
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=10.0, ge=0)  # AdamW's: 1 % of a weight a step, or it learns the bank by heart
    batch_size: int = Field(default=1024, ge=2)
    max_grad_norm: float = Field(default=1.0, gt=0)
    restart: bool = True  # begin anew at every refresh ...
    start_updates: int = Field(default=60, ge=0)  # ... with so many steps on the bank
    updates: int = Field(default=2, ge=0)  # steps on the bank for every step of the model

    @field_validator("ridge")
    @classmethod
    def _ridge(cls, value: Any) -> Any:
        if value == "auto" or value > 0:
            return value
        raise ValueError(f"ridge must be above 0, or auto (got {value})")


class SurfaceLoraSpec(_CheckpointAudit, _Training):
    """Train the mitigation: a summarisation adapter whose exported vector tells less about a label."""

    kind: Literal["surfacelora"] = "surfacelora"
    targets: list[str] = Field(default_factory=lambda: ["lasttok"], min_length=1)
    strength: float = Field(default=2.0, ge=0, alias="lambda")  # 0: utility-only LoRA
    lambda_begin: int = Field(default=0, ge=0)  # steps without a turned gradient at the beginning
    lambda_steps: int | None = Field(default=None, ge=1)  # in which lambda rises; None: all that follow
    adversary: list[str] = Field(default_factory=lambda: ["mlp", "ridge"], min_length=1)
    discriminator: DiscriminatorSpec = Field(default_factory=DiscriminatorSpec)
    adversary_splits: tuple[Literal["train", "defence_fit"], ...] = ("train",)  # prompts the adversaries learn from
    max_reversed_norm: float = Field(default=3.0, gt=0)  # of the turned gradient; max_grad_norm is the other part's
    steps: int = Field(default=400, ge=1)
    checkpoint_every: int = Field(default=50, ge=1)
    batch_size: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=2e-4, gt=0)
    warmup_ratio: float = Field(default=0.05, ge=0, lt=1)
    lora: SurfaceShape = Field(default_factory=SurfaceShape)

    @field_validator("targets")
    @classmethod
    def _targets(cls, value: list[str]) -> list[str]:
        return _known("artifact", value, ARTIFACTS)

    @field_validator("adversary")
    @classmethod
    def _adversary(cls, value: list[str]) -> list[str]:
        return _known("adversary", value, ADVERSARIES)

    @model_validator(mode="after")
    def _training(self) -> Self:
        if "target" not in self.data.roles:
            raise ValueError("data.roles.target is missing: which column holds the summary to learn?")
        left_out = [name for name in self.targets if name not in self.audit]
        if left_out:
            raise ValueError(f"audit leaves out '{left_out[0]}', which is targeted; what is not audited is not known")
        if self.checkpoint_every > self.steps:
            raise ValueError(f"checkpoint_every {self.checkpoint_every} is more than steps {self.steps}")
        if self.lambda_begin >= self.steps:
            raise ValueError(f"lambda_begin {self.lambda_begin} must be below steps {self.steps}")
        audited = [split for split in self.train_splits if split.startswith("bal_")]
        if audited:
            raise ValueError(f"train_splits: {audited[0]} is for the audit; what was trained on its rows says nothing")
        return self

    @property
    def method(self) -> Literal["lora"]:
        """How weights are learnt: adapters only."""
        return "lora"

    @property
    def checkpoint_steps(self) -> list[int]:
        """Steps at which a checkpoint is kept and measured."""
        return [*range(self.checkpoint_every, self.steps, self.checkpoint_every), self.steps]

    def total_steps(self, per_epoch: int) -> int:
        """Optimiser steps of the whole training."""
        return self.steps


class CheckpointFolder(_Model):
    """Adapters the user already has, each in a folder of its own, and the model they belong to."""

    folder: str
    base: str
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    precision: Literal["full", "bf16"] = "full"
    device: str = "auto"
    check_base: bool = True  # skip an adapter that names another base; off: take whatever fits


class FrontierSpec(_CheckpointAudit):
    """The same measurements for checkpoints that are there already."""

    kind: Literal["frontier"] = "frontier"
    checkpoints: CheckpointFolder

    @property
    def model(self) -> ModelSpec:
        """The base model."""
        c = self.checkpoints
        return ModelSpec(source=c.base, dtype=c.dtype, precision=c.precision, device=c.device)


AnySpec = MembershipSpec | VectorsSpec | FinetuneSpec | SweepSpec | SurfaceLoraSpec | FrontierSpec
_ADAPTER: TypeAdapter[AnySpec] = TypeAdapter(Annotated[AnySpec, Field(discriminator="kind")])
_CLASSES: dict[str, type[_Audit]] = {
    "membership": MembershipSpec,
    "vectors": VectorsSpec,
    "finetune": FinetuneSpec,
    "sweep": SweepSpec,
    "surfacelora": SurfaceLoraSpec,
    "frontier": FrontierSpec,
}


def parse_template(template: str) -> list[tuple[str, str | None]]:
    """Split "{title}. {description}" into (literal, column) pairs; column is None at the end.

    Raises ValueError when the template names no column or is not a valid format string.
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"template {template!r}: {error}; write {{{{ and }}}} for literal braces") from None
    pieces: list[tuple[str, str | None]] = []
    for literal, field, spec, conversion in parts:
        if field is not None and (not field or spec or conversion):
            raise ValueError(f"template {template!r}: write columns as {{name}}, with nothing else inside the braces")
        pieces.append((literal, field))
    if not any(field for _, field in pieces):
        raise ValueError(f"template {template!r} names no column, as in '{{text}}'")
    return pieces


def parse_spec(raw: Any, where: str = "spec") -> AnySpec:
    """Validate a mapping. Raises SpecError naming the field and the nearest known name."""
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: expected a mapping with a 'kind', got {type(raw).__name__}.")
    kind = raw.get("kind")
    if kind not in _CLASSES:
        what = "'kind' is missing." if kind is None else f"kind '{kind}' is unknown."
        raise SpecError(f"{where}: {what}{did_you_mean(str(kind), KINDS)}")
    try:
        return _ADAPTER.validate_python(raw)
    except ValidationError as error:
        raise SpecError(_explain(error, where, _CLASSES[kind])) from None


def parse_data(raw: dict[str, Any], where: str = "data") -> DataSpec:
    """Validate the `data` part of a spec alone. Raises SpecError like parse_spec."""
    try:
        return DataSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(_explain(error, where, DataSpec)) from None


def load_spec(path: str | Path) -> AnySpec:
    """Read one YAML or JSON document. Raises SpecError when it is missing, not one document, or wrong."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a folder; name the spec file inside it.") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SpecError(f"{path}{line}: not valid YAML ({getattr(error, 'problem', None) or error}).") from None
    if len(documents) != 1:
        raise SpecError(f"{path}: holds {len(documents)} documents; one spec per file.")
    return parse_spec(documents[0], str(path))


def dump_spec(spec: AnySpec) -> dict[str, Any]:
    """Return the spec as plain JSON types, every default written out."""
    return json.loads(spec.model_dump_json(by_alias=True))


def _one_of(what: str, value: str, known: dict[str, str]) -> str:
    if value not in known:
        raise ValueError(f"{what} '{value}' is unknown.{did_you_mean(value, known)}")
    return value


def _known(what: str, values: list[str], known: dict[str, str]) -> list[str]:
    for value in values:
        _one_of(what, value, known)
    if len(set(values)) != len(values):
        raise ValueError(f"{what} named twice in {values}")
    return values


def _explain(error: ValidationError, where: str, cls: type[BaseModel]) -> str:
    first = error.errors()[0]
    # The discriminator's tag stands first in the location.
    path = [str(part) for part in first["loc"] if part not in KINDS or part == first["loc"][-1]]
    if first["type"] == "extra_forbidden":
        fields = _fields_at(cls, path[:-1])
        inside = f" in {'.'.join(path[:-1])}" if path[:-1] else ""
        message = f"unknown key '{path[-1]}'{inside}.{did_you_mean(path[-1], fields)}"
    elif first["type"] == "missing":
        message = f"'{'.'.join(path)}' is missing."
    else:
        got = first.get("input")
        message = f"{'.'.join(path) or 'spec'}: {first['msg'].removeprefix('Value error, ')}"
        if not first["type"].startswith("value_error") and isinstance(got, (str, int, float, bool)):
            message += f" (got {got!r})"
    more = error.error_count() - 1
    return f"{where}: {message}" + (f" (and {more} more)" if more else "")


def _fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    here: type[BaseModel] = cls
    for part in path:
        annotation = here.model_fields[part].annotation if part in here.model_fields else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        here = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), here)
    return [field.alias or name for name, field in here.model_fields.items()]
