"""Colours and line styles of all pictures: the colours are those of Okabe and Ito.

Readers who see few colours tell lines apart by their styles, which change with the colours.
"""

from __future__ import annotations

# Without their yellow, which is hard to see on white.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
SKY, VERMILION, PURPLE, GREY = "#56B4E9", "#D55E00", "#CC79A7", "#7f7f7f"
#: In the order in which lines take them: neighbours differ in brightness too.
CYCLE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
STYLES = ("-", "--", "-.", ":")


def look(number: int) -> tuple[str, str]:
    """Return colour and line style of the line with a number, from 0; 12 of them differ."""
    return CYCLE[number % len(CYCLE)], STYLES[number % len(STYLES)]
