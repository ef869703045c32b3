"""Findings of checks of environments, and the report that holds them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

LEVELS = ("error", "warning", "note")


class Finding(NamedTuple):
    """One finding of a check."""

    #: "error" of a fault that makes results wrong, "warning" of one that probably does, or that
    #: costs speed, "note" of a fact that is worth knowing.
    level: str
    message: str  # the fault, the inputs that lead to it, and the line


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
        summary = ", ".join(
            f"{n} {level}{'s' * (n != 1)}" for n, level in zip(counts, LEVELS, strict=True)
        )
        lines = [f"{self.environment}: {summary} in {self.steps} steps"]
        return "\n".join([*lines, *(f"{level:<8} {message}" for level, message in self.findings)])


class Findings:
    """Collects findings: the first message of each kind, and how many there were."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, Any], list[str]] = {}

    def note(self, level: str, message: str, kind: Any = None) -> None:
        """Add a finding; see `Finding`.

        Of those with the same `kind`, which is the message if it is None, one is reported.
        """
        self._messages.setdefault((level, kind or message), []).append(message)

    def sorted(self) -> list[Finding]:
        """Return one finding of each kind, errors first."""
        findings = []
        for (level, _), messages in self._messages.items():
            times = f" ({len(messages)} times)" if len(messages) > 1 else ""
            findings.append(Finding(level, messages[0] + times))
        return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def plain_value(value: Any) -> Any:
    """Return a tuple of numbers as Python's floats, easy to read; other values unchanged."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(float, value))
    return value


def describe_call(name: str, inputs: Any, params: Any) -> str:
    """Return the text of a call of a plain function.

    `params`, those of all environments, are left out, and random numbers where there are none.
    """
    shown = (plain_value(value) for value in inputs if value is not params and value != ())
    return f"{name}({', '.join(map(str, shown))})"
