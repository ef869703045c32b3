"""`rlcpu train`: train an agent under a progress bar, evaluate it greedily, say what came of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.train import PPO

EXIT_NOT_SOLVED = 1


class CommandError(Exception):
    """What the user asked for cannot be done; the message is the one line that says why."""


class Curve:
    """A training run as the trainer's callback sees it: a progress bar and the learning curve.

    Attributes:
        bar: the progress bar, to be closed by the caller.
        points: (environment steps, mean return of the last training episodes), one per update.
    """

    def __init__(self, env_id: str, total_steps: int, no_progress: bool) -> None:
        from tqdm import tqdm

        self.points: list[tuple[int, float]] = []
        # disable=None: no bar where standard error is no terminal, such as a log file.
        disable = True if no_progress else None
        self.bar = tqdm(
            desc=env_id, total=total_steps, unit="step", unit_scale=True, disable=disable
        )

    def __call__(self, progress: Any) -> None:
        """Record one update of the network."""
        self.points.append((progress.steps, progress.episode_return))
        collect, update = time_shares(progress)
        self.bar.set_postfix_str(
            f"return {progress.episode_return:.1f}, simulate+infer {collect:.0%}, "
            f"update {update:.0%}",
            refresh=False,
        )
        self.bar.update(progress.steps - self.bar.n)


def train(args: argparse.Namespace) -> int:
    """Train an agent, evaluate it greedily and report; returns the exit code."""
    agent = make_agent(args)
    target = agent.env.dynamics.reward_threshold if args.target is None else args.target
    curve = Curve(args.env, args.steps, args.no_progress)
    with curve.bar:
        history = agent.learn(args.steps, callback=curve, target_return=target)
    returns = agent.evaluate(num_episodes=args.episodes, seed=args.seed + 1)
    print_report(args.env, history, returns)
    if args.save:
        agent.save(args.save)
        print(f"saved       {args.save}")
    if args.plot:
        plot(args, history, curve.points, returns, target)
        print(f"picture     {args.plot}")
    return verdict(returns.mean(), target)


def make_agent(args: argparse.Namespace) -> PPO:
    """The agent that the arguments describe.

    Raises:
        CommandError: the trainer refuses one of them.
    """
    from rlcpu.train import PPO

    options = {"num_envs": args.num_envs, "num_threads": args.threads, "dtype": args.dtype}
    try:
        return PPO(args.env, seed=args.seed, **options)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error


def time_shares(progress: Any) -> tuple[float, float]:
    """The shares of the run time that collection and the network's update took, in [0, 1]."""
    total = max(progress.time_total, 1e-9)
    return progress.time_collect / total, progress.time_update / total


def print_report(env_id: str, history: Any, returns: NDArray[np.float64]) -> None:
    """Print what the run took and what came of it."""
    collect, update = time_shares(history)
    speed = history.steps / max(history.time_total, 1e-9)
    print(
        f"{env_id}: {history.steps:,} steps, {history.episodes:,} episodes in "
        f"{history.time_total:.2f} s ({speed:,.0f} steps/s; simulate+infer {collect:.0%}, "
        f"update {update:.0%})"
    )
    print(f"training    mean return {history.episode_return:.1f} over the last episodes")
    print(
        f"evaluation  mean return {returns.mean():.1f} over {len(returns)} greedy episodes "
        f"(lowest {returns.min():.1f}, highest {returns.max():.1f})"
    )


def verdict(mean_return: float, target: float | None) -> int:
    """Print whether the greedy policy reached the target; returns the exit code.

    The evaluation decides, not the training curve: a policy that reached the target with sampled
    actions does not always do so greedily.
    """
    if target is None:
        return 0
    if mean_return >= target:
        print(f"solved      {mean_return:.1f} >= {target:g}")
        return 0
    print(f"not solved  {mean_return:.1f} < {target:g}")
    return EXIT_NOT_SOLVED


def plot(
    args: argparse.Namespace,
    history: Any,
    points: list[tuple[int, float]],
    returns: NDArray[np.float64],
    target: float | None,
) -> None:
    """Draw the learning curve, the greedy evaluation at its end, and the target."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*points, strict=True), label="training, mean of the last episodes")
    mean, low, high = returns.mean(), returns.min(), returns.max()
    span = [[mean - low], [high - mean]]
    label = f"greedy policy, mean and range of {len(returns)} episodes"
    axes.errorbar([history.steps], [mean], yerr=span, fmt="o", capsize=4, label=label)
    if target is not None:
        axes.axhline(target, color="0.5", linestyle="--", label=f"target {target:g}")
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("episode return")
    axes.set_title(f"PPO on {args.env}, seed {args.seed}: {history.time_total:.2f} s")
    axes.legend(loc="best")
    axes.grid(alpha=0.3)
    figure.savefig(args.plot, dpi=150)
