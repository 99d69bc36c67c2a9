"""The base class of the tables of the configuration file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the file. Frozen: a new configuration is a new object."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
