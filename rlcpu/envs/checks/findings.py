"""What checks of environments say: findings, and the report that holds them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

LEVELS = ("error", "warning", "note")


class Finding(NamedTuple):
    """One thing that a check saw.

    Attributes:
        level: "error" for what makes results wrong, "warning" for what probably does, or costs
            speed, "note" for what is worth knowing.
        message: what was seen, the inputs that lead to it, and the line.
    """

    level: str
    message: str


@dataclasses.dataclass(repr=False)
class Report:
    """Findings of a check of an environment.

    Attributes:
        environment: its id.
        steps: single steps that both sides have taken: plain Python and the kernels, or two
            implementations.
        findings: the errors first.
    """

    environment: str
    steps: int
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Tell whether there is no error."""
        return all(finding.level != "error" for finding in self.findings)

    def __repr__(self) -> str:
        counts = [sum(f.level == level for f in self.findings) for level in LEVELS]
        told = ", ".join(
            f"{n} {level}{'s' * (n != 1)}" for n, level in zip(counts, LEVELS, strict=True)
        )
        lines = [f"{self.environment}: {told} in {self.steps} steps"]
        return "\n".join([*lines, *(f"{level:<8} {message}" for level, message in self.findings)])


class Findings:
    """Findings of a check so far: the first of each kind, and how many there were."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Any], list[str]] = {}

    def note(self, level: str, message: str, kind: Any = None) -> None:
        """Keep a finding; its kind is its message, if none is given."""
        self._found.setdefault((level, kind or message), []).append(message)

    def sorted(self) -> list[Finding]:
        """Return the findings, errors first."""
        problems = [
            Finding(level, all_[0] + (f" ({len(all_)} times)" if len(all_) > 1 else ""))
            for (level, _), all_ in self._found.items()
        ]
        return sorted(problems, key=lambda finding: LEVELS.index(finding.level))


def plain_value(value: Any) -> Any:
    """Return a tuple of Python's numbers, which can be read and copied."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(float, value))
    return value
