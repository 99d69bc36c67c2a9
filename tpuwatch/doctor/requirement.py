"""Requirements between packages, as Requires-Dist lines state them. What cannot be judged is unknown, never wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.doctor.packages import normal_name

if TYPE_CHECKING:
    from packaging.specifiers import Specifier, SpecifierSet
    from packaging.version import Version

_ONLY_EXTRA = re.compile(r'extra == "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement; `extra` is the extra that it belongs to, "" for none."""

    name: str
    specifiers: SpecifierSet
    extra: str = ""

    @classmethod
    def parse(cls, line: str) -> Requirement | None:
        """A Requires-Dist line; None if it is invalid, or applies to some machines only, which is not judged here."""
        from packaging import requirements  # only where there is something to judge

        try:
            parsed = requirements.Requirement(line)
        except requirements.InvalidRequirement:
            return None
        extra = _ONLY_EXTRA.fullmatch(str(parsed.marker)) if parsed.marker else None
        if parsed.marker and extra is None:
            return None
        return cls(normal_name(parsed.name), parsed.specifier, normal_name(extra[1]) if extra else "")

    def compare(self, version: str) -> int | None:
        """0 if the version fits, -1 if it is too old, 1 if it is too new; None if that cannot be determined."""
        from packaging.version import InvalidVersion, Version

        try:
            installed = Version(version)
            sides = [_side(installed, specifier) for specifier in self.specifiers]
        except InvalidVersion:
            return None
        if installed.is_prerelease or None in sides:
            return None
        return next((side for side in sides if side), 0)


def _side(installed: Version, specifier: Specifier) -> int | None:
    """0 if one specifier holds; else on which side of it the version is. None for those that exclude or pre-release."""
    from packaging.version import Version

    bound = Version(specifier.version.removesuffix(".*"))
    if specifier.operator in ("===", "!=") or bound.is_prerelease:
        return None
    if specifier.contains(installed):
        return 0
    if specifier.operator in ("==", "~="):
        return -1 if installed < bound else 1
    return -1 if specifier.operator in (">", ">=") else 1
