"""What a run is called: its algorithm, and the settings that are not the usual ones."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcpu.cli.report import Agent


def labels_of(agent: Agent, name: str | None = None) -> dict[str, Any]:
    """Return what tells a run from others in a table: environment, variant and seed.

    `name` is that of the variant, or None for `variant_of`.
    """
    variant = name or variant_of(agent)
    return {"env": agent.env.dynamics.id, "variant": variant, "seed": agent.seed}


def variant_of(agent: Agent) -> str:
    """Return the algorithm and all settings that differ from those that an agent takes by itself.

    Those are settings of the algorithm, parameters of the environment and the dtype, as
    "ppo learning_rate=0.0001 hidden=64x64": two agents of one text learn the same. There is no
    comma in it, which readers of tables would trip over, and of a long one the end is a digest.
    """
    from rlcpu.envs.contract.names import find
    from rlcpu.experiments.folder import LONGEST_NAME

    dynamics = agent.env.dynamics
    usual = find(dynamics.id).settings()
    params = {k: v for k, v in dynamics.settings().items() if k not in usual or v != usual[k]}
    changes = agent.config.changes_from(agent.default_config(dynamics)) | params
    if agent.env.dtype != "float32":
        changes["dtype"] = agent.env.dtype.name
    texts = {name: setting_in_words(value).strip(",") for name, value in changes.items()}
    pairs = [f"{name}={text.replace(',', 'x')}" for name, text in texts.items()]
    variant = " ".join([agent.algorithm.lower(), *pairs])
    if len(variant) > LONGEST_NAME:
        digest = f"{zlib.crc32(variant.encode()):08x}"
        variant = f"{variant[: LONGEST_NAME - len(digest) - 4]}... {digest}"
    return variant


def setting_in_words(value: Any) -> str:
    """Return a setting as `rlcpu train --set` takes it.

    Example:
        >>> setting_in_words((64, 64)), setting_in_words(1e-4), setting_in_words("gru")
        ('64,64', '0.0001', 'gru')
    """
    if isinstance(value, tuple | list):
        return ",".join(map(setting_in_words, value)) + "," * (len(value) == 1)
    if callable(value):
        return str(getattr(value, "__name__", repr(value)))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)
