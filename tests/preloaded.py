"""What the programs of the documentation import anyway, for the process that `scripts.py` forks."""

import warnings

warnings.simplefilter("error")

from numba.core.registry import cpu_target  # noqa: E402

import rlcpu.cli.commands  # noqa: E402
import rlcpu.envs.engine.lanes  # noqa: E402
import rlcpu.replay  # noqa: E402
import rlcpu.scan  # noqa: E402
import rlcpu.train.dqn  # noqa: E402
import rlcpu.train.ppo  # noqa: E402
import rlcpu.train.sac  # noqa: E402, F401

# What numba does before the first kernel, a third of a second.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
