"""Rounds of learning that one kernel makes, without Python between them.

A round of a small network takes 50 us in kernels, and three times as long in Python. So after a
round in Python, which checks everything, the kernel of `rlcpu.train.rounds_kernel` makes the next
ones in the same memory, by the same functions: the result is the same, bit for bit. Python goes on
after 50 ms, for the sake of Ctrl-C, and wherever it has something to do: callbacks, evaluations,
numbers that are not finite, and boards with so many ones that networks take all of their cells.
"""

from __future__ import annotations

import ctypes
import functools
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.rollout import repeat as rollouts
from rlcpu.kernels.machine.stages import words_of
from rlcpu.nn.layers.embedding import most_ones
from rlcpu.nn.learning.frame import Share
from rlcpu.nn.learning.workers import LINE_WORDS
from rlcpu.nn.network.acting import Acting, Job
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.train.agent import is_repeatable
from rlcpu.train.rounds_kernel import NUM_CALLS, NUM_WHOLE, REASON, Rounds, run_rounds
from rlcpu.train.settings.base import remaining_of, scheduled

Array = npt.NDArray[Any]
#: Minibatches that are drawn, and learnt from, in one call of the learner.
AT_ONCE = 8
#: Calls of the learner, in the rest of `learn`, from which it pays to load the kernel.
LEAST_CALLS = 1000


# ---------------------------------------------------------------- what the kernel can repeat


def can_repeat(agent: Any, rollout: Any, drawn: Any, steps_left: int) -> bool:
    """Tell whether the kernel can make rounds like the last one of an agent, and is worth loading.

    `rollout` is its last one, `drawn` the `DrawnColumns` of its last batch, `steps_left`
    environment steps in the rest of `learn`.
    """
    is_loaded = bool(run_rounds.overloads)
    calls_left = steps_left // rollout.rewards.size * calls_of(agent.config)
    return (
        (calls_left >= LEAST_CALLS or is_loaded)
        and _find_clock() is not None
        and is_repeatable(agent)
        and _has_usual_rounds(agent)
        and _has_usual_learner(agent)
        and type(agent.buffer) in (ReplayBuffer, PrioritizedReplayBuffer)
        and agent.buffer.device == "cpu"
        and not agent.buffer.derive_next  # it stores next observations
        # Else all items may have a priority of zero: then Python draws none.
        and (type(agent.buffer) is ReplayBuffer or agent.buffer.epsilon**agent.buffer.alpha > 0.0)
        and rollouts.fits(agent.env, rollout)
        # Of normalised choices and boards, a 1 is another number, and a list of ones will not do.
        and not (agent.config.normalize_observations and agent.env.view.kind != "floats")
        and drawn.config is agent.config
        and drawn.are_read(agent.learner)
    )


def _has_usual_rounds(agent: Any) -> bool:
    """Tell whether an agent does in each round what the kernel does."""
    config = agent.config
    schedules = config.learning_rate_schedule, getattr(config, "exploration_schedule", "")
    return (
        not any(map(callable, schedules))  # the user's functions may ask for anything
        and agent.steps >= config.learning_starts
        # Each call of the learner has as many minibatches as the last one had.
        and (config.num_updates <= AT_ONCE or config.num_updates % AT_ONCE == 0)
    )


def _has_usual_learner(agent: Any) -> bool:
    """Tell whether an agent's learner has updated networks that the kernel can act by."""
    learner = agent.learner
    return (
        learner.last_call is not None
        and learner.dtype is np.float32
        and not any(network.state_size for network in learner.networks)
        and learner.networks[0] is agent.policy.network
    )


@functools.cache
def _find_clock() -> tuple[int, int] | None:
    """Return the address of C's `clock_gettime`, and the number of a clock that never goes back.

    None where there is none.
    """
    try:
        function, number = ctypes.CDLL(None).clock_gettime, time.CLOCK_MONOTONIC
    except (AttributeError, OSError, TypeError):  # Windows
        return None
    address = ctypes.cast(function, ctypes.c_void_p).value
    return None if address is None else (address, number)


def calls_of(config: Any) -> int:
    """Return how often a round draws from the buffer, and calls the learner."""
    return int(-(-config.num_updates // AT_ONCE))


# ---------------------------------------------------------------- calls of the kernel


class RoundsResult(NamedTuple):
    """Results of rounds of the kernel."""

    num_whole: int  # rounds that are whole
    stopped: int  # `rounds_kernel.WHOLE`, or why one more round stopped before its end
    returns: Array  # (any,) float64, of episodes that ended
    times: list[float]  # seconds of collecting and of updating
    calls: int  # of the learner in the round that stopped


def make_rounds(
    agent: Any, rollout: Any, drawn: Any, max_rounds: int, schedule: tuple[int, int]
) -> RoundsResult:
    """Make rounds like the one that an agent has just made, until 50 ms are over.

    Args:
        agent: for which `can_repeat` is true; its policy, buffer and learner go on.
        rollout: the agent's last; overwritten with that of the last round.
        drawn: columns of the agent's last batch, which is overwritten.
        max_rounds: rounds at most.
        schedule: steps of the agent at which schedules begin and end.
    """
    learner, last_update = agent.learner, agent.learner.last_call
    job = _find_job(agent)
    collect = rollouts.open_repeat(agent.env, rollout, job, max_rounds)
    repeat: Any = collect.argument
    sources, errors = rollouts.sources_of(repeat, rollout), learner.per_sample["error"]
    with agent.buffer.looping(drawn.batch, sources, repeat.size, errors) as buffer:
        stages = {  # of a round, in their order
            "collect": [collect],
            "store": [buffer.add],
            "draw": [buffer.draw, *drawn.stages],
            "judge": buffer.update,
            "observe": [],
        }
        if agent.config.normalize_rewards:
            shape = rollout.rewards.shape
            arrays = [x.reshape(shape) for x in (repeat.singles, *repeat.flags)]
            stages["store"].insert(0, agent.rewards.adding(*arrays, agent.config.gamma))
        if agent.config.normalize_observations:
            # The last floats of a row are its mask.
            rows = repeat.observations[:, : agent.env.view.num_inputs]
            stages["observe"].append(agent.normalizer.adding(agent.policy, rows))
        round_params, round_rates = _schedule_rounds(agent, max_rounds, repeat.size, schedule)
        clock, clock_number = _find_clock() or (0, 0)
        rounds = Rounds(
            **{name: words_of(each) for name, each in stages.items()},
            broken=repeat.broken,
            calls=calls_of(agent.config),
            num_starts=len(drawn.starts),
            starts=np.array([x[-1:].ctypes.data for x in drawn.starts.values()], np.int64),
            most_ones=most_ones(len(drawn.batch), agent.env.view.num_inputs),
            fault=buffer.loop.fault,
            max_rounds=max_rounds,
            num_params=agent.policy.params.size,
            params=agent.policy.params,
            round_params=round_params,
            num_rates=len(learner.updates),
            round_rates=round_rates,
            results=np.zeros(4, np.int64),
            times=np.zeros(2, np.int64),
            gate_calls=np.zeros(LINE_WORDS, np.int64),
            gate_inside=np.zeros(LINE_WORDS, np.int64),
            clock=clock,
            clock_number=clock_number,
            time=np.zeros(2, np.int64),
        )

        def run(worker: int) -> None:
            share = Share.of(real=np.float32)(
                worker=worker, workers=last_update.workers, frame=last_update.frame
            )
            run_rounds(rounds.address, last_update.update, share.address)

        learner.helpers.run(last_update.workers, run)
    rollout.renew(agent.policy, agent.env.engine.last_runner)
    results = rounds.results.tolist()
    return RoundsResult(
        num_whole=results[NUM_WHOLE],
        stopped=results[REASON],
        returns=repeat.returns[: repeat.ended[0]],
        times=(rounds.times * 1e-9).tolist(),
        calls=results[NUM_CALLS],
    )


def _find_job(agent: Any) -> Job:
    """Return the policy network as rollouts run it, over the learner's own parameters.

    So nothing is copied after an update. The network is the learner's number 0. Its parameters lie
    in the learner's vector twice: as users have them, from `layout.begins[0]` on, and behind these
    packed for kernels.
    """
    learnt, layout = agent.learner.learnt, agent.learner.layout
    packed_at = layout.begins[0] + layout.free[0]  # `free`: how many the first are
    acting: Acting = agent.policy.arrays(agent.env.dynamics).network
    copies_at, plan = layout.copies_begins[0], acting.plan
    return acting.job_with(
        learnt.parameters[packed_at : packed_at + plan.parameters],
        learnt.copies[copies_at : copies_at + plan.copies],
    )


def _schedule_rounds(
    agent: Any, num_rounds: int, size: int, schedule: tuple[int, int]
) -> tuple[Array, Array]:
    """Return the policy's params and the learning rates in each of the next rounds.

    `size` counts the steps of a round. The agent is asked as in rounds of Python, by its own count
    of steps, which is restored. Its policy's params are overwritten with those of the last round.

    Returns:
        (num_rounds, params) float32, and (num_rounds, updates) of the learner's dtype.
    """
    config, params, learner, before = agent.config, agent.policy.params, agent.learner, agent.steps
    round_params = np.empty((num_rounds, params.size), np.float32)
    round_rates = np.empty((num_rounds, len(learner.updates)), learner.dtype)
    try:
        for number in range(num_rounds):
            agent.steps = before + number * size
            agent.explore()
            round_params[number] = params
            remaining = remaining_of(schedule, agent.steps)
            round_rates[number] = scheduled(
                config.learning_rate, config.learning_rate_schedule, remaining
            )
    finally:
        agent.steps = before
    return round_params, round_rates
