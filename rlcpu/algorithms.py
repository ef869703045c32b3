"""The table of algorithms: what is said of each without importing it.

A new algorithm is a file of `rlcpu.train` and a row here. Command line, catalogue, experiments,
searches and messages have it from this table, and its settings from its class. Type checkers have
it from a line in `rlcpu/train/__init__.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class AlgorithmFacts(NamedTuple):
    """Facts of an algorithm."""

    module: str  # of `rlcpu.train`, which has the class of agents, and that of their settings
    actions: Literal["any", "choice", "bounded"]  # one choice, or floats within bounds
    has_replay: bool  # whether it learns from a buffer
    takes_steps: bool = True  # in environments; without, it learns from a buffer that it is given


#: By the name of the class of agents; its settings are a class of this name and "Config".
TABLE = {
    "PPO": AlgorithmFacts("ppo", actions="any", has_replay=False),
    "PQN": AlgorithmFacts("pqn", actions="choice", has_replay=False),
    "DQN": AlgorithmFacts("dqn", actions="choice", has_replay=True),
    "QRDQN": AlgorithmFacts("qrdqn", actions="choice", has_replay=True),
    "SAC": AlgorithmFacts("sac", actions="bounded", has_replay=True),
    "TQC": AlgorithmFacts("tqc", actions="bounded", has_replay=True),
    "TD3": AlgorithmFacts("td3", actions="bounded", has_replay=True),
    "DDPG": AlgorithmFacts("td3", actions="bounded", has_replay=True),
    "BC": AlgorithmFacts("bc", actions="any", has_replay=True, takes_steps=False),
}
#: As `rlcpu train --algo` takes them.
NAMES = tuple(name.lower() for name, row in TABLE.items() if row.takes_steps)


def taking(actions: str) -> list[str]:
    """Return the classes that learn by steps of actions of a kind, see `AlgorithmFacts`."""
    return [
        name for name, row in TABLE.items() if row.takes_steps and row.actions in ("any", actions)
    ]


def in_words(names: list[str]) -> str:
    """Return names as a sentence has them, such as "PPO, SAC and TD3"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
