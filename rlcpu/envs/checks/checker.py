"""`rlcpu.envs.check`: faults of an environment, found by running it.

A `Dynamics` is plain Python that is also compiled. Here it is played at random in plain Python
(`player.py`), by twins of its functions that watch indices and lines (`watched.py`, `coverage.py`);
then the kernels take the same single steps from the same states, in float64 and in float32
(`compiled.py`). Trajectories are never compared: they part after some steps, however small the
error of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlcpu.envs.checks.compiled import TOLERANCES, compare_batches, compare_kernels
from rlcpu.envs.checks.findings import Report
from rlcpu.envs.checks.player import Player
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.contract.policies import Uniform
from rlcpu.envs.engine.steps import step_kernels
from rlcpu.envs.engine.structure import reasons_of_policies, structure
from rlcpu.envs.engine.vectorised import ONE_AT_A_TIME, describe_drivers, find_driver
from rlcpu.envs.rollout.compiled import simulate_kernels
from rlcpu.kernels.checks import check_count, check_seed


def check(
    dynamics: str | Dynamics,
    steps: int = 1000,
    seed: int = 0,
    *,
    policy: Callable[[Any], Any] | None = None,
    states: Sequence[Any] = (),
) -> Report:
    """Try an environment: its plain functions, its kernels, and one beside the other.

    It finds exceptions, NaN and infinity, observations outside their space, results of a wrong
    type or that depend on more than their inputs, indices outside a table (a negative one, which
    counts from the end, is a warning), kernels whose results differ from plain Python's or do not
    compile, kernels that do not compute in vectors, with probable reasons, and what learning will
    meet: large rewards and observations, episodes that do not end, actions that are masked.

    It checks the states that its steps come to, and names the lines of which none ran: those that
    random actions seldom reach take a policy, or states to begin from.

    Args:
        dynamics: the environment, or the id of a registered one.
        steps: single steps, from states that the actions lead to.
        seed: of these states and actions.
        policy: plain function of what `observe` returns, of an action; None draws them uniformly.
        states: episodes begin in these in turn, each as `reset` makes one; () takes `reset`.

    Returns:
        The findings, to print, or to ask whether the environment is `ok`.

    Raises:
        TypeError, ValueError: a bad argument, with its name and value.

    Example:
        >>> from rlcpu.envs import check
        >>> check("CartPole-v1", steps=100).ok
        True
    """
    dynamics = find(dynamics)
    if not dynamics.runs_in_kernels:
        raise TypeError(
            f"dynamics={dynamics!r}: a task of another engine is tried when it is made, and has no "
            "plain step to compare kernels with"
        )
    steps, seed = check_count("steps", steps), check_seed(seed)
    player = Player(dynamics, policy, states)
    cases = player.play(steps, np.random.default_rng(seed))
    compiled = [compare_kernels(player, cases, dtype, seed) for dtype in TOLERANCES]
    if all(compiled):
        compare_batches(player, seed)
        for finding in vectorisation_findings(dynamics):
            player.note(*finding)
    return Report(dynamics.id, len(cases), player.findings.sorted())


def vectorisation_findings(
    dynamics: Dynamics, names: Sequence[str] = ("step", "simulate", "collect")
) -> Iterable[tuple[str, str]]:
    """Yield (level, message) of findings that say whether kernels run in vector instructions.

    Args:
        dynamics: the environment.
        names: "step" and "collect", of which one compiled function steps the environment, and
            "simulate", for actions that are drawn at random; all in float32.
    """
    if dynamics.has_arrays:
        yield "note", f"step runs {ONE_AT_A_TIME}"
        return
    # The facts of both on which machine code depends.
    code, policy = structure(dynamics), Uniform().code(dynamics)
    drivers: dict[str, Any] = {}
    for name in names:
        if name == "simulate":
            kernels: Any = simulate_kernels(code, np.float32, policy)
        else:
            kernels = step_kernels(code, np.float32)
        (compiled,) = kernels.function.overloads.values()  # for the one signature that it has
        known = reasons_of_policies(code) if name == "simulate" else ()
        drivers[name] = find_driver(compiled, dynamics.step, known)
    yield from describe_drivers(drivers)
