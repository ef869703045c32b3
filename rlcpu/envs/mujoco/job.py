"""What MuJoCo's threads are handed: the memory of an engine's simulations, and a job.

MuJoCo calls a compiled function for each simulation of a batch, with the address of one job for all
of them: a `StepJob`, or a `RolloutJob` of steps in which a policy acts. N is the number of
simulations, K that of steps.
"""

from __future__ import annotations

import numpy as np

from rlcpu.envs.engine.episode import SIZE
from rlcpu.envs.engine.frames import KernelPolicy
from rlcpu.kernels.machine.structs import Array, Flag, Reference, Struct, Whole

#: Modes of a `StepJob`, what it does with each simulation: start an episode where the mask says so;
#: take one step with given actions; observe and measure the present state.
RESTART, STEP, FORWARD = range(3)


class TaskMemory(Struct):
    """An engine's arrays, which stay from call to call, and the numbers that do not change."""

    task = Whole()  #: address of the task's function, see `rlcpu.envs.mujoco.physics`
    limit = Whole()  #: steps of an episode after which it is truncated
    num_envs = Whole()
    observation_size = Whole()
    action_size = Whole()
    measure_size = Whole()  #: numbers that `measure` returns
    reset_draws = Whole()  #: random numbers of a reset
    num_params = Whole()  #: run-time numbers of params
    row_size = Whole()  #: numbers of a row of `model_rows`
    param_numbers = Array(np.float64, "num_params")
    observation = Array(np.float64, "num_envs", "observation_size")  #: of the present states
    #: What `measure` returned after the last step or reset.
    measured = Array(np.float64, "num_envs", "measure_size")
    #: Of the running episodes: steps so far, see `rlcpu.envs.engine.episode`, and the numbers of an
    #: `Episode`.
    elapsed = Array(np.uint32, "num_envs")
    episodes = Array(np.float64, "num_envs", SIZE)
    streams = Array(np.uint64, "num_envs", 4)  #: see `rlcpu.envs.mujoco.physics.POLICY_KEY`
    unstable = Array(np.uint32, "num_envs")  #: how often MuJoCo has found a simulation unstable
    uniforms = Array(np.float64, "num_envs", "reset_draws")  #: random numbers of the last reset
    #: Rows of the model's varied fields as they are, and as users set them before `randomize` drew;
    #: see `rlcpu.envs.mujoco.varied`.
    model_rows = Array(np.float64, "num_envs", "row_size")
    nominal_rows = Array(np.float64, "num_envs", "row_size")
    #: The last actions, clipped to the bounds if a policy chose them.
    applied_actions = Array(np.float32, "num_envs", "action_size")
    #: The reward of the last step, and whether it terminated and truncated the episode.
    step_rewards = Array(np.float64, "num_envs")
    step_ended = Array(np.uint8, "num_envs", 2)


class StepJob(Struct):
    """A call without a policy, in the environments' dtype; what a mode does not use is 0."""

    memory = Reference(TaskMemory)
    mode = Whole()
    same_step = Flag()  #: whether a new episode starts in the step that ended one
    mask = Array(np.uint8)  #: (N,), which simulations `RESTART` restarts
    actions = Array(np.float32)  #: (N, action_size)
    rewards = Array("real")  #: (N,)
    flags = Array(np.uint8)  #: (2, N), terminated and truncated
    finals = Array("real")  #: (N, observation_size), observations with which episodes ended
    last = Array("real")  #: (N, observation_size), observations after the step


class RolloutJob(Struct):
    """K steps in which a policy acts, in the environments' dtype."""

    memory = Reference(TaskMemory)
    num_steps = Whole()
    policy = Reference(KernelPolicy)
    action_size = Whole()
    bounds = Array(np.float32, 2, "action_size")  #: lowest and highest numbers of an action
    sums = Array(np.float64)  #: (N, NUM_SUMS), see `rlcpu.envs.engine.form.EPISODES`
    #: Whether steps are recorded, to the arrays of an `rlcpu.envs.engine.form.Records`.
    records = Flag()
    observations = Array("real")
    actions = Array(np.float32)
    log_probs = Array(np.float32)
    values = Array(np.float32)
    rewards = Array("real")
    flags = Array(np.uint8)
    finals = Array("real")
    totals = Array("real")
    lengths = Array(np.uint32)
    last = Array("real")
