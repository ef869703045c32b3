"""Kernels that step, reset and observe N environments.

`rlcpu.envs.engine.lane` describes blocks of environments and their memory. One function is compiled
for an environment, for C: it steps, resets or observes some environments, as a `StepCall` says.
Drivers (`rlcpu.envs.engine.drivers`) and rollouts (`rlcpu.envs.rollout.compiled`) call it by its
address, and are compiled once for many environments.

Below, `job` is a `StepCall`, whose `clock` is (counter of random numbers, limit of an episode's
steps), and `shown_rows` of a `Structure` is how many rows an observation has with its action mask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.drivers import EnvFacts, make_driver, make_step_driver
from rlcpu.envs.engine.episode import SIZE, Episode, make_restart_episode
from rlcpu.envs.engine.frames import RESTART, STEP, step_call_of
from rlcpu.envs.engine.lane import (
    ELAPSED,
    LANES,
    NUM_WORDS,
    block_rows,
    compile_lane,
    make_draw_bits,
    make_step_lane,
    observes_state,
)
from rlcpu.envs.engine.structure import Structure, env_kernel
from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.compiler.hooks import address_of
from rlcpu.kernels.machine.memory import shifted
from rlcpu.kernels.machine.rows import load_rows, row_access, store_rows
from rlcpu.kernels.machine.threads import Kernels

#: Rows of blocks that one iteration of a parallel loop takes.
CHUNK_ROWS = 64
#: Numbers of the states of all environments from which two cores are faster than one. The larger a
#: state is, the longer its step takes: CartPole's has 4 numbers, LunarLander's 28.
GRAIN = 2**16
u8, u32 = np.uint8, np.uint32


class Steps(NamedTuple):
    """Kernels that step the environments of one structure."""

    #: Of a step, see `make_step_driver`.
    drivers: Kernels
    #: Of resets and of observations, see `make_driver`.
    others: Kernels
    #: The function of some environments, compiled for C.
    function: Any
    facts: EnvFacts
    #: (max(action_size, 1) * LANES,) int64, how many choices each number of a block's actions has,
    #: or (0,) where actions are floats.
    limits: npt.NDArray[np.int64]


def is_whole(env: Structure) -> bool:
    """Tell whether actions are whole numbers, of a `Discrete` or a `MultiDiscrete`."""
    return env.action_size == 0 or bool(env.choices)


@functools.cache
def step_kernels(env: Structure, dtype: type) -> Steps:
    """Return the kernels of N environments along lanes."""
    rows, is_single = env.state.rows(dtype), dtype is np.float32
    function = _compile_lanes(env, dtype)
    facts = EnvFacts(
        function=address_of(function),
        share=max(CHUNK_ROWS // block_rows(env, dtype), 1) * LANES,
        fills_blocks=int(is_single),
        env_step=1,
    )
    grain = GRAIN // rows if is_single else 512  # float64 has no vectors: a step takes longer
    return make_steps(env, dtype, function, facts, grain)


def make_steps(env: Structure, dtype: type, function: Any, facts: EnvFacts, grain: int) -> Steps:
    """Return the kernels of an environment whose function is compiled already.

    From `grain` environments on several cores share them.
    """
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    drivers = make_step_driver(dtype, is_whole(env))._replace(grain=grain)
    others = make_driver(dtype, is_whole(env))._replace(grain=grain)
    return Steps(drivers, others, function, facts, limits)


# ---------------------------------------------------------------- the function of an environment


def _compile_lanes(env: Structure, dtype: type) -> Any:
    """Compile for C the function of a view of a `StepCall`, for states along the lanes.

    In float32 it runs all lanes of a block, so that loops have a constant length: outputs have room
    for them. libm does not vectorise: in float64, the exact mode, only lanes in use are stepped.

    Where observations are the states, a step writes them, too: for CartPole a loop of their own
    takes a tenth of the time. A restart computes both the new and the old state, and selects one
    without branches. The last loop reads states from memory, after a step too: an observation
    depends on nothing else.
    """
    lane, exact = compile_lane(env, dtype), dtype is np.float64
    unpack, block_size = lane.unpack_params, block_rows(env, dtype) * LANES
    width, observes_states = max(env.action_size, 1), observes_state(env)
    step_lane, draw_bits = make_step_lane(env, dtype, False), make_draw_bits()
    load, store, select, reset = lane.load, lane.store, lane.select, lane.reset
    observe, params_of_lane, redraw_params = lane.observe, lane.params_of_lane, lane.redraw_params
    select_params, store_params = lane.select_params, lane.store_params
    varies, redraws = bool(env.varied), env.randomize is not None
    load_episode, store_episode = load_rows(SIZE, "state"), store_rows(SIZE, "state")
    episode_at, restart_episode = lane.rows * LANES, make_restart_episode(dtype)
    get_action, get_mask = make_get_action(env, "actions"), row_access("source")[0]
    # Not "words": stores under that name tell whether the loop of a step became vectors.
    get_elapsed, set_elapsed = row_access("lengths")
    names = ("rewards", "terminated", "truncated")
    set_reward, set_terminated, set_truncated = (row_access(name)[1] for name in names)
    put = store_rows(env.shown_rows, "observations")

    @env_kernel(env, dtype)
    def run(job):
        params, mode, counter, limit = unpack(job.numbers), job.mode, job.clock[0], job.clock[1]
        observations, stride, rewards = job.observations, job.stride, job.rewards
        terminated, truncated, mask = job.terminated, job.truncated, job.mask
        for block in range(job.begin // LANES, (job.begin + job.count + LANES - 1) // LANES):
            state = shifted(job.state, block * block_size)
            words = shifted(job.words, block * NUM_WORDS * LANES)
            place = block * LANES  # number of the block's first environment
            actions = shifted(job.actions, place * width)
            lanes = min(LANES, job.begin + job.count - place) if exact else LANES
            if mode == STEP:
                for i in range(lanes):
                    bits, action = draw_bits(words, i, counter), get_action(actions, i)
                    end = step_lane(state, words, i, action, bits, params, limit)
                    if observes_states:
                        put(observations, stride, place + i, end.next_state)
                    set_reward(rewards, place + i, end.reward)
                    set_terminated(terminated, place + i, end.terminated)
                    set_truncated(truncated, place + i, end.truncated)
                if observes_states:
                    continue
            if mode == RESTART:
                for i in range(lanes):
                    bits, begins = draw_bits(words, i, counter), get_mask(mask, place + i) != 0
                    lane_params = params_of_lane(params, state, i) if varies else params
                    new_params = lane_params
                    if redraws:
                        new_params = redraw_params(params, lane_params, bits[0], bits[1])
                        store_params(state, i, select_params(begins, new_params, lane_params))
                    new_state = reset(new_params, bits[0], bits[1])
                    store(state, LANES, i, select(begins, new_state, load(state, LANES, i)))
                    episode = Episode(*load_episode(state, LANES, episode_at + i))
                    store_episode(state, LANES, episode_at + i, restart_episode(begins, episode))
                    elapsed = get_elapsed(words, ELAPSED * LANES + i)
                    set_elapsed(words, ELAPSED * LANES + i, u32(0) if begins else elapsed)
            for i in range(lanes):
                lane_params = params_of_lane(params, state, i) if varies else params
                observation = observe(load(state, LANES, i), lane_params)
                put(observations, stride, place + i, observation)

    run.compile((step_call_of(dtype, is_whole(env)).view,))
    return run


def make_get_action(env: Structure, name: str) -> Callable[..., Any]:
    """Make (actions, i) -> the action of lane i in a block's rows, by `row_access` of a name."""
    if env.action_size == 0:
        peek, _ = row_access(name)
        return peek
    load = load_rows(env.action_size, name)
    return inline(lambda actions, i: load(actions, LANES, i))
