"""Return-weighted replay: what its sampling costs in a run, and what agents return with it.

A post, "Code Optimization: 8h to gain 26h", draws transitions in proportion to the return of their
episode, without repetition, from a buffer of a million, and finds that sampling takes 65 % of a run
of SAC; uniform sampling took 16 %. Here the buffer is as large and full, and all of replay counts:
adding, drawing, new values. The second question is what the weights are good for: the return of
agents after as many updates, with and without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Effort, Measurement
from asv_benches.peers.rows import Row

CAPACITY = 1_000_000
#: Environment steps of one timing.
STEPS = {"SAC": 200, "DQN": 1024}
#: Environment steps after which agents are evaluated, at one update a step; greedy episodes then.
CHECKPOINTS, EPISODES = (1500, 3000), 100
#: What calls of a buffer belong to an update.
CALLS = ("add", "sample", "update_values", "update_priorities")
LIMIT_S = 1800.0


def rows() -> list[Row]:
    """Shares of runs, then returns."""
    sac, dqn = (partial(full_agent, *each) for each in (("SAC", "return"), ("DQN", "prioritized")))
    of_a_run = "share of replay in a run, a million transitions"
    return [
        share("sac-replay-share", f"SAC, return-weighted: {of_a_run}", sac),
        share("dqn-replay-share", f"DQN, prioritised: {of_a_run}", dqn),
        *(
            Row(
                f"return-weighted-{name.lower()}-{steps}",
                f"{name}, Pendulum, return after {steps:,} updates, return-weighted replay",
                "uniform replay",
                partial(returns, name, steps),
                limit_s=LIMIT_S,
            )
            for name in ("SAC", "TD3")
            for steps in CHECKPOINTS
        ),
    ]


def share(name: str, what: str, make: Callable[[], Any]) -> Row:
    """Replay's time over that of the whole run: at most a tenth."""
    return Row(name, what, "the whole run", partial(replay_share, make), 0.1, "time", "s", LIMIT_S)


def full_agent(name: str, replay: str) -> Any:
    """An agent whose buffer holds a million transitions of a random policy."""
    import rlcpu
    from asv_benches.peers.agents import SETTINGS, make_agent  # which lists the rows of this table

    agent = make_agent(name, capacity=CAPACITY, replay=replay)
    env = rlcpu.make_vec(SETTINGS[name][0], num_envs=1000)
    env.reset(seed=1)
    rng, steps = np.random.default_rng(0), CAPACITY // 10
    for _ in range(CAPACITY // steps):
        rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), steps // 1000)
        columns = rollout.transitions(as_inputs=True)
        if replay == "return":
            agent.buffer.add(columns, rng.uniform(-1600.0, -100.0, steps))
        else:
            agent.buffer.add({key: array[:, None] for key, array in columns.items()})
    return agent


def replay_share(make: Callable[[], Any], effort: Effort) -> Measurement:
    """Seconds a step in an agent's buffer and in all of `learn`, medians over the rounds."""
    agent = make()
    spent = timed_calls(agent.buffer)
    steps = STEPS[agent.algorithm]
    agent.learn(agent.config.learning_starts + steps)  # starts, and compiles what is missing
    seconds = np.empty((effort.rounds, 2))
    for round_ in range(effort.rounds):
        spent[0], begin = 0.0, time.perf_counter()
        agent.learn(steps)
        seconds[round_] = spent[0], time.perf_counter() - begin
    ours, whole = (np.median(seconds, axis=0) / steps).tolist()
    low, ratio, high = np.percentile(seconds[:, 0] / seconds[:, 1], (25, 50, 75)).tolist()
    note = f"{len(agent.buffer):,} transitions; the post's SAC: 65 %, with uniform sampling 16 %"
    return Measurement(ours, whole, ratio, (low, high), note)


def timed_calls(buffer: Any) -> list[float]:
    """A list whose one number the seconds of the buffer's calls are added to from now on."""
    spent = [0.0]

    def timed(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            spent[0] += time.perf_counter() - begin

    for name in CALLS:
        if hasattr(buffer, name):
            setattr(buffer, name, partial(timed, getattr(buffer, name)))
    return spent


def returns(name: str, steps: int, effort: Effort) -> Measurement:
    """Mean returns of greedy episodes with and without weights, over the seeds of the effort.

    They are text, for there is no target; every seed's return is in the details.
    """
    found = {
        replay: [trained(name, replay, seed, steps) for seed in range(effort.seeds)]
        for replay in ("return", "uniform")
    }
    difference = np.subtract(found["return"], found["uniform"])
    note = f"difference {shown(difference)}, {effort.seeds} seeds, +- one standard error"
    ours, peer = shown(found["return"]), shown(found["uniform"])
    return Measurement(ours, peer, note=note, details=found)


def trained(name: str, replay: str, seed: int, steps: int) -> float:
    """Mean return of an agent after so many steps, with the environment's own settings."""
    from rlcpu import train

    agent = getattr(train, name)("Pendulum-v1", seed=seed, replay=replay)
    agent.learn(agent.config.learning_starts + steps)
    return float(agent.evaluate(EPISODES).mean())


def shown(numbers: Any) -> str:
    """Mean and standard error."""
    count = len(numbers)
    error = np.std(numbers, ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return f"{np.mean(numbers):.0f} +- {error:.0f}"
