"""`rlcpu train` and `rlcpu eval`: make or load an agent, train and evaluate it, save it."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rlcpu.algorithms import NAMES as ALGORITHMS
from rlcpu.cli.arguments import CommandError, output_file
from rlcpu.cli.curves import draw_run
from rlcpu.cli.films import check_renderer, write_video
from rlcpu.cli.labels import labels_of
from rlcpu.terminal import is_watched, rounded, say, sparkline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.distributed import Ledger
    from rlcpu.train import Evaluation
    from rlcpu.train.off_policy import OffPolicy
    from rlcpu.train.ppo import PPO

    Agent = PPO | OffPolicy

EXIT_FAILED = 1
#: Of the evaluation at the end.
EPISODES = 100
#: Options that name what is written beside the agent.
FILES = ("csv", "tensorboard", "plot", "video")
#: Options that say what is evaluated and saved on the way.
ON_THE_WAY = ("evaluations", "eval_episodes", "keep_best", "patience", "save_every")
#: Columns of the report, whose lines begin with a word of at most 12.
COLUMNS = 70
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


def next_seed(agent: Agent) -> int:
    """Return the seed after that of an agent's training, for episodes."""
    return (agent.seed + 1) % 2**128


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


def _agent_class(path: str) -> type[Agent]:
    """Return the class that a file's format names, "rlcpu <algorithm> <version>"; else PPO's.

    PPO's `load` says what is wrong with a file that has no such format.
    """
    from rlcpu.train.keeping.checkpoint import format_of
    from rlcpu.train.settings.algorithms import NAMES, algorithm

    match format_of(path).lower().split():
        case [_, name, _] if name in NAMES:
            return algorithm(name)
    return algorithm("ppo")


def load_agent(args: argparse.Namespace) -> Agent:
    """Load the agent of the file `args.load`.

    Raises:
        CommandError: there is none, or it is one of another environment than `args.env`.
    """
    try:
        agent: Agent = _agent_class(args.load).load(args.load, num_threads=args.threads)
    except FileNotFoundError:
        raise CommandError(f"there is no file {args.load!r}") from None
    except (OSError, TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    if args.env is not None and args.env.id != agent.env.dynamics.id:
        raise CommandError(f"{args.load}: an agent of {agent.env.dynamics.id}, not {args.env.id}")
    return agent


# ---------------------------------------------------------------- files


def schedules_of(config: Any) -> list[str]:
    """Return the settings that say how others change over the steps of a run, by name."""
    names = "learning_rate_schedule", "clip_schedule"  # that of exploration has steps of its own
    return [name for name in names if name in config.names()]


class Files:
    """The files of a training run; where one cannot be written, the others still are."""

    def __init__(self, args: argparse.Namespace, agent: Agent, target: float | None) -> None:
        self.args, self.agent, self.target = args, agent, target
        self.saved: Path | None = None  # where the agent was saved
        self._saved_at: int | None = None  # its total steps when the table was written with it
        #: Lines to print on files that were written, and that could not be.
        self.written: list[str] = []
        self.failed: list[str] = []

    def write_agent(self) -> None:
        """Write the agent and the table of its curve, if they are wanted."""
        if self.args.save:
            self._save(self.args.save)
        if self.args.keep_best and self.agent.best_evaluation is not None:
            self.written.append(f"{'best':<12}{self.args.keep_best}")
        if self.args.csv:
            self._write("table", self.args.csv, self._write_table)

    def write_table_too(self, progress: Any) -> None:
        """Write the table where `learn` has saved the agent since the last call; a callback."""
        if progress.saved_at != self._saved_at:
            self._saved_at = progress.saved_at
            self._write_table()

    def _write_table(self) -> None:
        """Write the table of the curve."""
        labels = labels_of(self.agent, self.args.name)
        self.agent.history.to_csv(self.args.csv, self.args.load is not None, labels)

    def write_pictures(self, returns: NDArray[np.float64] | None) -> None:
        """Draw the curve and film an episode, if they are wanted."""
        args, history = self.args, self.agent.history
        if args.plot and history.updates:
            seed, env_id = self.agent.seed, self.agent.env.dynamics.id
            title = (
                f"{type(self.agent).__name__} on {env_id}, seed {seed}: {history.time_total:.2f} s"
            )
            greedy = None if returns is None else (history.steps, returns)
            self._write(
                "picture",
                args.plot,
                lambda: draw_run(args.plot, history, title, self.target, greedy),
            )
        if args.video and returns is not None:
            seed = next_seed(self.agent)
            self._write("video", args.video, lambda: write_video(self.agent, args.video, seed))

    def stop(self, code: int, reason: str) -> int:
        """Save the agent of a run that did not come to its end; returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # in another thread than the main one
                signal.signal(number, signal.SIG_DFL)  # the second one ends at once
        agent, history = self.agent, self.agent.history
        message = f"rlcpu train: {reason}"
        if not history.updates:
            say(f"{message}; nothing was learnt yet", "yellow", sys.stderr)
            return code
        env_id = agent.env.dynamics.id.replace(":", "-").replace("/", "-")
        self.args.save = self.args.save or Path(f"{env_id}-interrupted.npz")
        if not any(line.startswith("saved") for line in self.written):
            self.write_agent()
        self.write_pictures(None)
        say(f"{message} after {history.steps:,} steps", "yellow", sys.stderr)
        for line in self.written:
            print(line, file=sys.stderr)
        for line in self.failed:
            say(line, "red", sys.stderr)
        if code != EXIT_FAILED and not self.failed:
            print(f"to go on    {shlex.join(self._command_to_go_on())}", file=sys.stderr)
        return code

    def _command_to_go_on(self) -> list[str]:
        """Return the words of the command that makes the rest of the run, into the same files."""
        args, agent, history = self.args, self.agent, self.agent.history
        env = [args.env.text] if args.env and ":" in args.env.text else []
        options = {"load": self.saved or args.save, "steps": max(1, args.steps - history.steps)}
        if self.saved is not None and self.saved.name != Path(args.save).name:  # "{steps}" in it
            options["save"] = args.save
        if args.evaluations is not None or any(
            getattr(agent.config, name) != "constant" for name in schedules_of(agent.config)
        ):
            first = history.steps_before  # the steps of earlier runs
            options["schedule"] = "{}:{}".format(*(args.schedule or (first, first + args.steps)))
        repeated = ("target", "threads", *ON_THE_WAY, "collectors", "shards", "ray", *FILES)
        values = {name: getattr(args, name) for name in repeated}
        options |= {name: value for name, value in values.items() if value is not None}
        if args.episodes != EPISODES:
            options["episodes"] = args.episodes
        flags = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items()}
        words = [word for pair in flags.items() for word in pair]
        return ["rlcpu", "train", *env, *words, *["--no-progress"] * args.no_progress]

    def print_files(self) -> int:
        """Print the files written, and those that could not be; returns the exit code."""
        print("\n".join(self.written), end="\n" if self.written else "")
        for line in self.failed:
            say(line, "red", sys.stderr)
        return EXIT_FAILED if self.failed else 0

    def _save(self, path: Path) -> None:
        """Write the agent to the file, or, where that fails, to another one."""
        from rlcpu.train.running.upkeep import with_steps

        history = self.agent.history
        path = Path(with_steps(path, history.total_steps))
        if history.saved_at == history.total_steps:  # `learn` has done it
            self.saved = path
            self.written.append(f"{'saved':<12}{path}")
            return
        rescue = Path(tempfile.gettempdir(), f"{path.name}.rescued.npz")
        if self._write("saved", path, lambda: self.agent.save(path)):
            self.saved = path
        elif self._write("saved", rescue, lambda: self.agent.save(rescue)):
            self.saved = rescue

    def _write(self, kind: str, path: Path, write: Callable[[], None]) -> bool:
        """Write a file, and note its path, or that it failed; returns whether it was written."""
        try:
            write()
        except OSError as error:
            self.failed.append(
                f"rlcpu train: error: cannot write {path}: {error.strerror or error}"
            )
            return False
        self.written.append(f"{kind:<12}{path}")
        return True


# ---------------------------------------------------------------- reports


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
