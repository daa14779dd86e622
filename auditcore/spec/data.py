"""Which rows. In: mappings. Out: a file with its roles, a public corpus, licensed notes."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from auditcore.errors import did_you_mean
from auditcore.spec.names import CLINICAL, CLINICAL_ROLES, CLINICAL_SPLITS, CORPORA, ROLES, SEQUENCES, UNITS, SplitName
from auditcore.spec.parts import Part, Place, choice, choices


class CorpusSpec(Part):
    """How to make rows from a public corpus: sequences of one length, whole documents drawn for members or others."""

    name: Annotated[str, choice("corpus", CORPORA)]
    sequences: Annotated[str, choice("kind of sequences", SEQUENCES)] | None = (
        None  # None: joined for ag_news and xsum, cut for wikitext, last for code
    )
    unit: Annotated[str, choice("unit", UNITS)] = "words"
    length: int = Field(default=128, ge=2)  # units in a sequence
    members: int | None = Field(default=None, gt=0)  # None: the documents that are left, half and half
    nonmembers: int | None = Field(default=None, gt=0)
    validation: int = Field(default=0, ge=0)  # sequences of unknown membership, to choose a checkpoint with
    per_document: int | None = Field(default=None, gt=0)  # cut: at most so many sequences of one, drawn by the seed
    split: str | None = None  # of a folder or a hub id: the files whose name holds this word
    clean: bool = False  # ag_news: HTML entities and backslashes turned into what they stand for
    keep_spacing: bool = False  # words: white space as it is written, line breaks and indentation too
    seed: int = 0


class ClinicalSpec(Part):
    """Licensed notes from the user's own copy, as PhysioNet gives them. Rows stay in memory and in the run's folder."""

    source: Annotated[str, choice("source", CLINICAL)]
    # discharge_me: which of its folders; None: all that are there
    parts: Annotated[list[str], choices("part", CLINICAL_SPLITS)] | None = None
    admissions: str | None = None  # mimic_iv_bhc: MIMIC-IV's admissions.csv.gz, which holds the recorded race
    notes: str | None = None  # mimic_iv_bhc: MIMIC-IV-Note's discharge.csv.gz, which tells the stay of a note
    race_table: str | None = None  # an edited copy of auditcore/datasets/recorded_race.yaml
    leftovers: Literal["drop", "keep"] = "drop"  # prompts that still hold a long piece of their summary
    seed: int = 0


class DataSpec(Part):
    """Which rows, and which column plays which role."""

    path: Place
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
        free = ("label", "metadata")
        own = [role for role in given if role not in free and given[role] != CLINICAL_ROLES.get(role)]
        if own or raw.get("split_map") or raw.get("corpus"):
            raise ValueError("licensed notes bring their roles and splits; of roles only label and metadata are chosen")
        return {**raw, "roles": {**CLINICAL_ROLES, **given}}

    @field_validator("roles")
    @classmethod
    def _roles(cls, value: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
        for role, column in value.items():
            if role not in ROLES:
                raise ValueError(f"'{role}' is not a role.{did_you_mean(role, ROLES)}")
            if isinstance(column, list) and role not in ("label", "metadata"):
                raise ValueError(f"role '{role}' takes one column, not a list")
            if not column:
                raise ValueError(f"role '{role}' names no column")
        listed = {role: [column] if isinstance(column, str) else column for role, column in value.items()}
        for column in listed.pop("metadata", []):
            other = next((role for role, columns in listed.items() if column in columns), None)
            if other is not None:
                raise ValueError(f"column '{column}' plays the role {other}; it cannot be metadata as well")
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

    @property
    def metadata(self) -> tuple[str, ...]:
        """Columns that the recipient of a vector holds anyway, possibly none."""
        held = self.roles.get("metadata", [])
        return (held,) if isinstance(held, str) else tuple(held)

    def column(self, role: str) -> str | None:
        """Return the one column that plays `role`, or None."""
        value = self.roles.get(role)
        return value if isinstance(value, str) else None
