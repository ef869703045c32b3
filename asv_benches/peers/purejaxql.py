"""PQN of the paper's authors, in jax, of a checkout that the user names.

    PUREJAXQL=~/purejaxql .venv-peers/bin/python -m asv_benches.peers networks --only pqn

Its program `pqn_minatar.py` makes one function of gymnax's environments, network and updates. We
compile and call that, with the settings of `pqn_minatar.yaml`, which ours are, and without its
evaluations. gymnax's games have no sticky actions.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from pathlib import Path
from typing import Any

from asv_benches.peers.harness import Job, drawn
from asv_benches.peers.libraries import jax

#: What the program imports for its command line alone.
UNUSED: dict[str, dict[str, Any]] = {
    "wandb": {},
    "hydra": {"main": lambda **options: lambda run: run},
    "omegaconf": {"OmegaConf": None},
}
#: Steps of a rollout, and rollouts in a call.
ROLLOUT, ROLLOUTS = 128 * 32, 8


def our_pqn(game: str) -> Job:
    from asv_benches.peers.agents import learning
    from rlcpu.train import PQN

    return learning(PQN(f"MinAtar/{game}-v1", seed=0), 2 * ROLLOUT, ROLLOUTS * ROLLOUT)


def purejaxql_pqn(game: str) -> Job:
    from rlcpu.train.pqn import DEFAULTS

    ours, program = DEFAULTS["MinAtar/*"], load_program()
    steps, total = ROLLOUTS * ROLLOUT, 10_000_000
    settings = {
        "ENV_NAME": f"{game}-MinAtar",
        "TOTAL_TIMESTEPS": steps,
        "TOTAL_TIMESTEPS_DECAY": total,
        "NUM_ENVS": ours.num_envs,
        "NUM_STEPS": ours.num_steps,
        "NUM_EPOCHS": ours.num_epochs,
        "NUM_MINIBATCHES": ROLLOUT // ours.minibatch_size,
        "LR": ours.learning_rate,
        "LR_LINEAR_DECAY": True,
        "MAX_GRAD_NORM": ours.max_gradient_norm,
        "GAMMA": ours.gamma,
        "LAMBDA": ours.lambda_,
        "EPS_START": ours.exploration_initial,
        "EPS_FINISH": ours.exploration_final,
        "EPS_DECAY": ours.exploration_steps / total,
        "NORM_TYPE": "layer_norm",
        "WANDB_MODE": "disabled",
    }
    train = jax.jit(program.make_train(settings))

    def call(key: Any) -> None:
        jax.block_until_ready(train(key))

    return Job(call, drawn(lambda rng: (jax.random.PRNGKey(int(rng.integers(2**31))),)), steps)


def load_program() -> Any:
    """The module, for a gymnax that tells terminated from truncated, as it did not when written."""
    checkout = os.environ.get("PUREJAXQL")
    if not checkout:
        raise ModuleNotFoundError("PUREJAXQL names no checkout of purejaxql")
    for name, contents in UNUSED.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(contents)
    sys.path.insert(0, str(Path(checkout).expanduser()))
    program: Any = importlib.import_module("purejaxql.pqn_minatar")

    class WithOneFlag(program.LogWrapper):
        def step(self, *arguments: Any) -> Any:
            *after, terminated, truncated, infos = super().step(*arguments)
            return *after, terminated | truncated, infos

    program.LogWrapper = WithOneFlag
    return program
