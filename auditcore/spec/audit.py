"""What all audits share. In: mappings. Out: rows, template, lengths, seeds."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from auditcore.spec.data import DataSpec
from auditcore.spec.names import CHATS
from auditcore.spec.parts import Part, parse_template


def validation_rows(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (number and 0 <= value < 1) or value in ("unknown", "defence_fit", "bal_train", "bal_val"):
        return value
    raise ValueError(
        f"{value!r} is neither a share of the subjects from 0 up to 1, nor unknown, defence_fit, bal_train, bal_val"
    )


class Audit(Part):
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
    def _metadata(self) -> "Audit":
        if self.data.metadata and getattr(self, "kind", "") != "vectors":
            raise ValueError("role 'metadata' is compared with exported vectors only (kind: vectors); leave it out")
        return self

    @model_validator(mode="after")
    def _conversations(self) -> "Audit":
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
