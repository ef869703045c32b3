"""The lines that `rlcpu train` and `rlcpu eval` print of a run and its evaluation."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcpu.terminal import rounded, say, sparkline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.distributed import Ledger
    from rlcpu.train import Evaluation
    from rlcpu.train.off_policy import OffPolicy
    from rlcpu.train.ppo import PPO

    Agent = PPO | OffPolicy

EXIT_FAILED = 1
#: Columns of the report, whose lines begin with a word of at most 12.
COLUMNS = 70


def print_line(label: str, text: str) -> None:
    """Print a line of the report, whose label has 12 columns."""
    print(f"{label:<12}{text}", flush=True)


def print_run(agent: Agent, args: argparse.Namespace, target: float | None) -> None:
    """Print agent, environment and number of steps."""
    import numba

    env = agent.env
    threads = args.threads or env.num_threads or numba.get_num_threads()
    name = f"{type(agent).__name__} on {env.dynamics.id}"
    many = f"{env.num_envs:,} environments" if env.num_envs > 1 else "1 environment"
    cores = f"{threads} threads" if threads > 1 else "1 thread"
    seeds = f"seed {agent.seed}"
    if args.seeds is not None:
        cores, seeds = "1 thread each", f"seeds {agent.seed} to {agent.seed + args.seeds - 1}"
    how = f"{many}, {cores}, {seeds}"
    between = ", " if len(f"{name}, {how}") <= COLUMNS - 12 else f"\n{'':<12}"
    goal = "" if target is None else f"mean return {rounded(target)}, at most "
    print_line("agent", f"{name}{between}{how}")
    print_line("network", network_in_words(agent.config))
    print_line("until", f"{goal}{args.steps:,} steps")


def network_in_words(config: Any) -> str:
    """Return the network of an agent's settings, as "gru, hidden layers of 128 and 64 units"."""
    name = "your own" if callable(config.network) else config.network
    sizes = " and ".join(map(str, config.hidden))
    layers = f"hidden layer{'s' * (len(config.hidden) > 1)} of {sizes} units"
    return f"{name}, {layers}" if sizes and not callable(config.network) else name


def print_training(agent: Agent) -> None:
    """Print time and speed of the run."""
    history = agent.history
    total = max(history.time_total, 1e-9)
    counts = f"{history.steps:,} steps, {history.episodes:,} episodes"
    print_line("trained", f"{counts} in {history.time_total:.2f} s")
    shares = history.time_collect / total, history.time_update / total
    speed = f"{history.steps / total:,.0f} steps/s"
    print_line("speed", "{}; {:.0%} collecting, {:.0%} updating".format(speed, *shares))
    if history.time_compile >= 1.0:
        print_line("prepared", f"in {history.time_compile:.1f} s more, once on this machine")
    if recent := len(agent.returns):
        mean = rounded(history.episode_return)
        print_line("training", f"mean return {mean} over the last {recent} episodes")


def print_evaluations(evaluations: Sequence[Evaluation]) -> None:
    """Print the evaluations on the way: their best mean return, and all of them as a line."""
    means = [each.mean_return for each in evaluations]
    best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)
    times = f"{len(means)} times" if len(means) > 1 else "once"
    text = f"{times} on the way, no episode ended"
    if best == best:
        steps = evaluations[means.index(best)].steps
        text = f"{times} on the way, best mean return {rounded(best)} after {steps:,} steps"
    print_line("evaluated", text)
    # Of many as many as have room, the last one among them.
    stride = -(-len(means) // (COLUMNS - 12))
    line = sparkline(means[::-1][::stride][::-1])
    with contextlib.suppress(UnicodeEncodeError):
        line.encode(getattr(sys.stdout, "encoding", None) or "ascii")
        print_line("", line)


def print_ledger(ledger: Ledger, actors: dict[str, float]) -> None:
    """Print how many transitions were stored, drawn and lost, and the numbers of each process.

    `actors` has the latter by name, as `collector_0_steps_per_second`.
    """
    restarts = ledger.collector_restarts + ledger.shard_restarts
    if ledger.received:  # an agent without replay: it stores nothing
        counts = f"{ledger.received:,} steps made"
    else:
        counts = f"{ledger.stored:,} transitions stored, {ledger.held:,} held"
        counts += f", {ledger.sampled:,} drawn"
    print_line("processes", f"{counts}, {ledger.lost:,} lost in {restarts} restarts")
    for name, number in actors.items():
        kind, index, quantity = name.split("_", 2)
        print_line(f"{kind} {index}", f"{quantity.replace('_', ' ')} {number:,.0f}")


def estimate(returns: NDArray[np.float64]) -> str:
    """Return the mean with its standard error, in the digits that the error leaves sure.

    Example:
        >>> estimate(np.array([4.0, 5.0, 6.0, 5.0]))
        '5.00 +- 0.41'
    """
    mean = float(returns.mean())
    error = float(returns.std(ddof=1)) / math.sqrt(len(returns)) if len(returns) > 1 else 0.0
    if not 0.0 < error < math.inf:
        return rounded(mean)
    digits = max(0, 1 - math.floor(math.log10(error)))  # two of the error
    return f"{mean:.{digits}f} +- {error:.{digits}f}"


def print_evaluation(returns: NDArray[np.float64], target: float | None) -> int:
    """Print whether the greedy policy reached the target; returns the exit code.

    The evaluation decides, not the training curve: a policy that reached the target with sampled
    actions does not always do so greedily.
    """
    mean = returns.mean()
    episodes = f"{len(returns)} greedy episodes"
    print_line("evaluation", f"mean return {estimate(returns)} over {episodes}")
    print_line("", f"lowest {rounded(returns.min())}, highest {rounded(returns.max())}")
    if target is None:
        return 0
    shown = rounded(mean) if rounded(mean) != rounded(target) else f"{mean:.9g}"
    if mean >= target:
        say(f"solved      {shown} >= {target:g}", "green")
        return 0
    say(f"not solved  {shown} < {target:g}", "yellow")
    return EXIT_FAILED
