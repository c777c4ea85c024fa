"""What all results share: frozen, and the same after a round trip through JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from bcos_sdk.errors import InputError, first_faults
from bcos_sdk.results._arrays import ARRAYS

__all__ = ["Record"]


class Record(BaseModel):
    """A frozen record. Fields that a later version adds are passed over when an older one reads them."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    def to_json(self, *, arrays: Literal["base64", "omit"] = "base64") -> str:
        """One line of JSON; arrays as base64 of their bytes, or left out."""
        if arrays not in ("base64", "omit"):
            raise InputError(f"arrays is {arrays!r}", hint='Use "base64" or "omit".')
        return self.model_dump_json(context={ARRAYS: arrays})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InputError(f"this is no {cls.__name__}: {first_faults(error)}") from None
