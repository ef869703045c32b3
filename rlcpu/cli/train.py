"""`rlcpu train` and `rlcpu eval`: make or load an agent, train and evaluate it, save it."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rlcpu.algorithms import NAMES as ALGORITHMS
from rlcpu.cli.arguments import CommandError, output_file
from rlcpu.cli.files import Files, next_seed
from rlcpu.cli.films import check_renderer, write_video
from rlcpu.cli.report import (
    EXIT_FAILED,
    print_evaluation,
    print_evaluations,
    print_ledger,
    print_line,
    print_run,
    print_training,
)
from rlcpu.terminal import is_watched, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.cli.report import Agent

#: Options that have no effect without another.
_NEEDED = {
    "eval_episodes": "evaluations",
    "keep_best": "evaluations",
    "patience": "evaluations",
    "save_every": "save",
}
#: Options of new agents, which saved ones have already.
_OF_NEW_AGENTS = ("algo", "seed", "num_envs", "dtype", "param", "set")


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what Ctrl-C does, with another exit code."""


def train(args: argparse.Namespace) -> int:
    """Train an agent, evaluate it greedily and report; returns the exit code."""
    from rlcpu.envs.gymnasium.env import GymnasiumEnv
    from rlcpu.envs.gymnasium.task import EnvironmentFailure
    from rlcpu.train.running.evaluate import EndlessEpisodeError
    from rlcpu.train.settings.tuned import default_steps

    if args.save:
        args.save = checked_output("--save", args.save)
    agent = make_agent(args)
    args.steps = default_steps(agent) if args.steps is None else args.steps
    if args.load:
        check_files_of_load(args)
    if args.video:
        check_renderer(agent)
    upkeep = upkeep_of(args, agent)
    if isinstance(agent.env, GymnasiumEnv):
        env_id = agent.env.dynamics.id
        print(f"{env_id} is Gymnasium's own: its steps are Python's", file=sys.stderr)
    target = target_of(args, agent)
    print_run(agent, args, target)
    files, options = Files(args, agent, target), {**upkeep, **processes_of(args, agent)}
    with terminating():
        try:
            returns = learn_and_evaluate(files, options)
        except KeyboardInterrupt as error:
            # 128 and the signal's number, as shells have it.
            return files.stop(143 if isinstance(error, Terminated) else 130, "interrupted")
        except (
            *(FloatingPointError, EndlessEpisodeError, MemoryError),
            *(EnvironmentFailure, OSError),  # the latter of --tensorboard and of --ray
        ) as error:
            return files.stop(EXIT_FAILED, f"stopped: {error}")
        except (TypeError, ValueError) as error:
            # The first rollout compiles, and raises TypeError for a function of the user's that
            # cannot be compiled; collectors raise for a replay that they cannot fill.
            is_users_error = isinstance(error, TypeError) or "num_collectors" in options
            if agent.history.updates or not is_users_error:
                raise
            raise CommandError(error) from error
    print_training(agent)
    if agent.history.evaluations:
        print_evaluations(agent.history.evaluations)
    if agent.history.stopped == "patience":
        print_line("stopped", f"{args.patience} evaluations in a row were no better")
    if ledger := getattr(agent, "ledger", None):
        print_ledger(ledger, agent.history.actors)
    code = print_evaluation(returns, target)
    failed = files.print_files()
    print_next(args, files, solved=code == 0)
    return failed or code


def checked_output(flag: str, text: str) -> Path:
    """Return the path of a file that can be written; CommandError with the option where not."""
    try:
        return output_file(text)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"{flag}: {error}") from None


def learn_and_evaluate(files: Files, options: dict[str, Any]) -> NDArray[np.float64]:
    """Let the agent learn, and write what is wanted; return returns of greedy episodes.

    `options` are those of `learn` that `upkeep_of` and `processes_of` return.
    """
    args, agent = files.args, files.agent
    shown = not args.no_progress and is_watched()
    if args.schedule is not None:
        options = {**options, "schedule": args.schedule}
    with tensorboard(args.tensorboard) as callbacks:
        if args.csv and args.save_every is not None:
            callbacks.append(files.write_table_too)
        options = {"callback": callbacks, **options} if callbacks else options
        options = {**options, "target_return": files.target, "progress": shown}
        agent.learn(args.steps, **options)
        files.write_agent()
        returns: NDArray[np.float64] = agent.evaluate(
            num_episodes=args.episodes, seed=next_seed(agent)
        )
        files.write_pictures(returns)
    return returns


def target_of(args: argparse.Namespace, agent: Agent) -> float | None:
    """Return the mean return to reach, by default the environment's; None where there is none."""
    if args.target is None:
        threshold: float | None = agent.env.dynamics.reward_threshold
        return threshold
    return None if args.target == "none" else args.target


def evaluate(args: argparse.Namespace) -> int:
    """Run `rlcpu eval`: evaluate a saved agent greedily, and film it; returns the exit code."""
    from rlcpu.envs.gymnasium.task import EnvironmentFailure
    from rlcpu.train.running.evaluate import EndlessEpisodeError

    agent = load_agent(args)
    if args.video:
        check_renderer(agent)
    target = target_of(args, agent)
    seed = next_seed(agent) if args.seed is None else args.seed
    try:
        returns = agent.evaluate(num_episodes=args.episodes, seed=seed)
    except (FloatingPointError, EndlessEpisodeError, MemoryError, EnvironmentFailure) as error:
        raise CommandError(error, EXIT_FAILED) from error
    print(f"{agent.env.dynamics.id}: trained for {agent.steps:,} steps, seed {agent.seed}")
    code = print_evaluation(returns, target)
    if args.video:
        try:
            write_video(agent, args.video, seed)
        except OSError as error:
            raise CommandError(f"cannot write {args.video}: {error}", EXIT_FAILED) from None
        print_line("video", str(args.video))
    return code


def upkeep_of(args: argparse.Namespace, agent: Agent) -> dict[str, Any]:
    """Return the options of `learn` on what is evaluated and saved on the way.

    Raises:
        CommandError: one of them is bad, or lacks another.
    """
    from rlcpu.train.running.evaluations import Evaluations
    from rlcpu.train.running.upkeep import UpkeepOptions

    for name, other in _NEEDED.items():
        if getattr(args, name) is not None and getattr(args, other) is None:
            flags = (f"--{each.replace('_', '-')}" for each in (name, other))
            raise CommandError("{}: expected {} too".format(*flags))
    evaluations = args.evaluations
    if args.eval_episodes is not None:
        evaluations = Evaluations(args.evaluations, num_episodes=args.eval_episodes)
    save_to = None if args.save_every is None else args.save
    options = UpkeepOptions(evaluations, args.keep_best, args.patience, save_to, args.save_every)
    is_asked = any(value is not None for value in options)
    try:
        return options.checked(agent.report_steps)._asdict() if is_asked else {}
    except ValueError as error:
        raise CommandError(error) from None


def processes_of(args: argparse.Namespace, agent: Agent) -> dict[str, Any]:
    """Return the options of `learn` that --collectors, --shards and --ray make.

    Raises:
        CommandError: the agent or this machine has no use for them.
    """
    if args.collectors is args.shards is args.ray is None:
        return {}
    has_replay, name = getattr(agent, "buffer", None) is not None, type(agent).__name__
    if args.shards is not None and not has_replay:
        raise CommandError(f"--shards: {name} has no replay buffer")
    from rlcpu.distributed.actors import import_ray

    try:
        import_ray()
    except ImportError as error:
        raise CommandError(f"--collectors: {error}") from None
    options = {"num_collectors": args.collectors or 1, "address": args.ray}
    return {**options, "num_shards": args.shards or 1} if has_replay else options


def check_files_of_load(args: argparse.Namespace) -> None:
    """Choose where a loaded agent is saved, by default its old file, and check its table.

    Raises:
        CommandError: one of the files cannot be written, or holds something else.
    """
    from rlcpu.train.keeping.history import read_table

    try:
        args.save = args.save or output_file(args.load)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"--load: {error}; --save says where else") from None
    try:
        if args.csv:
            read_table(args.csv)
    except (OSError, ValueError) as error:
        raise CommandError(f"--csv: {error}") from None


@contextlib.contextmanager
def tensorboard(folder: str | None) -> Iterator[list[Callable[[Any], None]]]:
    """Yield a callback of `learn` in a list, which writes to a folder; [] without a folder.

    Raises:
        CommandError: it cannot be written, or tensorboard is missing.
    """
    from rlcpu.train import TensorBoard

    if folder is None:
        yield []
        return
    try:
        callback = TensorBoard(folder)
    except (ImportError, OSError) as error:
        raise CommandError(f"--tensorboard {folder}: {error}") from None
    with callback:
        yield [callback]


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM in this block; restore all handlers after it."""

    def stop(*_: object) -> NoReturn:
        raise Terminated

    try:
        # SIGINT's too, which `Files.stop` changes.
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, which alone gets signals
        handlers = {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------- agents


def make_agent(args: argparse.Namespace) -> Agent:
    """Return the agent that the arguments describe.

    Raises:
        CommandError: the trainer refuses one of them.
    """
    from rlcpu.envs.contract.names import find
    from rlcpu.train.settings.algorithms import algorithm
    from rlcpu.train.settings.tuned import fitting

    if args.load:
        for name in _OF_NEW_AGENTS:
            if getattr(args, name) not in (None, []):
                raise CommandError(f"--{name.replace('_', '-')}: the agent of --load has its own")
        return load_agent(args)
    if args.env is None:
        raise CommandError("expected an environment, such as CartPole-v1, or --load FILE")
    options = {"num_envs": args.num_envs, "num_threads": args.threads, "dtype": args.dtype}
    options = {"dtype": "float32", **{k: v for k, v in options.items() if v is not None}}
    try:
        env = find(args.env.id).with_params(**dict(args.param)) if args.param else args.env.id
        kind = algorithm(args.algo or fitting(args.env.id))
        agent: Agent = kind(env, seed=args.seed or 0, **{**options, **unique(args.set, options)})
        return agent
    except (TypeError, ValueError, MemoryError) as error:
        raise CommandError(error) from error


def take_settings(args: argparse.Namespace) -> None:
    """Set the algorithm and --set by the file of --settings, if there is one.

    What other arguments set stays.

    Raises:
        CommandError: it is no such file, or of another algorithm than --algo.
    """
    if args.settings is None:
        return
    from rlcpu.experiments.settings_file import read_settings

    if args.load:
        raise CommandError("--settings: the agent of --load has its own")
    try:
        algo, settings = read_settings(args.settings)
    except OSError as error:
        raise CommandError(f"--settings {args.settings}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"--settings {error}") from None
    if algo not in ALGORITHMS or args.algo not in (None, algo):
        wanted = args.algo or f"one of {', '.join(ALGORITHMS)}"
        raise CommandError(f"--settings {args.settings}: settings of {algo}, expected {wanted}")
    args.algo, others = algo, {name for name, _ in args.set}
    others |= {name for name in ("num_envs", "dtype") if getattr(args, name) is not None}
    args.set = [*(each for each in settings.items() if each[0] not in others), *args.set]


def unique(pairs: list[tuple[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of --set by name; CommandError for a name that is given twice.

    `options` are those that other arguments have set.
    """
    names = [*options, *(name for name, _ in pairs)]
    for name, _ in pairs:
        if names.count(name) > 1:
            raise CommandError(f"--set {name}=...: given twice")
    return dict(pairs)


def load_agent(args: argparse.Namespace) -> Agent:
    """Load the agent of the file `args.load`.

    Raises:
        CommandError: there is none, or it is one of another environment than `args.env`.
    """
    from rlcpu.train.keeping.checkpoint import format_of
    from rlcpu.train.settings.algorithms import NAMES, algorithm

    try:
        match format_of(args.load).lower().split():  # "rlcpu <algorithm> <version>"
            case [_, name, _] if name in NAMES:
                kind = algorithm(name)
            case _:
                kind = algorithm("ppo")  # whose `load` says what is wrong with the file
        agent: Agent = kind.load(args.load, num_threads=args.threads)
    except FileNotFoundError:
        raise CommandError(f"there is no file {args.load!r}") from None
    except (OSError, TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    if args.env is not None and args.env.id != agent.env.dynamics.id:
        raise CommandError(f"{args.load}: an agent of {agent.env.dynamics.id}, not {args.env.id}")
    return agent


def print_next(args: argparse.Namespace, files: Files, *, solved: bool) -> None:
    """Print commands for the saved agent, or the best one on the way."""
    saved = files.saved
    if saved is None and args.keep_best and files.agent.best_evaluation is not None:
        saved, solved = args.keep_best, True
    if saved is None:
        say("not saved   add --save FILE to keep the agent", "yellow")
        return
    file, module = str(saved), [args.env.text] if args.env and ":" in args.env.text else []
    goes_on = ["rlcpu", "train", *module, "--load", file]
    print_line("next", shlex.join(["rlcpu", "eval", file, *module] if solved else goes_on))
    if args.load and solved and files.target is not None:  # it may have met the target before
        print_line("to train on", shlex.join([*goes_on, "--target", "none"]))
