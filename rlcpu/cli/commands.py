"""The `rlcpu` command: its subcommands and their arguments.

Every argument is checked before any work starts. Modules that only one command needs are imported
where they are used: a run without a picture does not wait for matplotlib.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

import rlcpu
from rlcpu.algorithms import NAMES as ALGORITHMS
from rlcpu.cli.arguments import (
    DTYPES,
    CommandError,
    assignment,
    dimension,
    environment,
    finite,
    hint_at_arguments,
    import_user_module,
    output_file,
    picture_file,
    policy_file,
    seed,
    span,
    target,
    video_file,
    whole,
)
from rlcpu.cli.curves import plot
from rlcpu.cli.doctor import doctor
from rlcpu.cli.files import EPISODES
from rlcpu.cli.output import Output, drop_output
from rlcpu.cli.report import EXIT_FAILED
from rlcpu.cli.seeds import compare, train_seeds
from rlcpu.cli.show import show
from rlcpu.cli.train import evaluate, load_agent, take_settings, train
from rlcpu.cli.tune import tune
from rlcpu.cli.warmup import warmup
from rlcpu.terminal import say

EXIT_BAD_ARGUMENTS = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
EPILOG = """\
examples:
  rlcpu train CartPole-v1                     seconds; the first run compiles
  rlcpu train CartPole-v1 --save pole.npz     keep the agent
  rlcpu eval pole.npz --video pole.gif        evaluate and film it
  rlcpu show pole.npz                         its settings and its history
  rlcpu doctor pole.npz                       what hampers its learning
  rlcpu export pole.npz pole.c                write its policy as a file of C
  rlcpu train CartPole-v1 --seeds 10          ten seeds, and what they say
  rlcpu tune CartPole-v1 --steps 50000        search for its settings
  rlcpu train balance:Balance-v0              your own one, of balance.py
  rlcpu check balance:Balance-v0              what is wrong with it
  rlcpu list CartPole-v1                      its parameters and settings
  rlcpu COMMAND --help                        all options

exit codes:
  0    done; train and eval: the target is reached, or there is none
  1    train and eval: not solved, numbers that are not finite, or a file that
       cannot be written; check: errors were found; tune: runs failed;
       doctor: it found something
  2    bad arguments
  130  interrupted by Ctrl-C (train saves the agent first; a second one ends it)
  143  terminated (likewise)
"""


class Parser(argparse.ArgumentParser):
    """An argument parser that answers a bad argument with one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message, with what to write, and exit with status 2."""
        hint = hint_at_arguments(message)
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: error: {message}{f'; {hint}' * bool(hint)}\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Print the message, in red on a terminal, and end with the status."""
        if message:
            say(message.rstrip("\n"), "red", sys.stderr)
        sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = build_parser()
    try:
        with Output() as output:
            args = parser.parse_args(argv)
            if args.run is None:
                parser.print_help()
                return 0
            code: int = args.run(args)
        # Training and evaluating have results beside what they print, and a status that tells them:
        # other commands have failed if their output is lost.
        has_status = args.run in (train_or_seeds, evaluate)
        return EXIT_FAILED if output.trouble and not has_status else code
    except CommandError as error:
        parser.exit(error.code, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        print("rlcpu: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        drop_output(sys.stdout)  # `| head` has seen enough
        return EXIT_PIPE_CLOSED


def check(args: argparse.Namespace) -> int:
    """Check an environment, or compare it, and print the findings; returns the exit code."""
    from gymnasium.error import Error

    from rlcpu.envs import check, compare, find

    try:
        env = find(args.env.id).with_params(**dict(args.param)) if args.param else args.env.id
        if args.against is None:
            policy, states = find_named(args, "policy"), find_named(args, "states") or ()
            report = check(env, args.steps, args.seed, policy=policy, states=states)
        else:
            import_module_of(args.against, "--against")
            set_state, options = find_named(args, "set_state"), {"steps": args.steps}
            for name in ("episodes", "tolerance"):
                if getattr(args, name) is not None:
                    options[name] = getattr(args, name)
            report = compare(env, args.against, set_state, seed=args.seed, **options)
    except (TypeError, ValueError, ImportError, Error) as error:  # of MuJoCo, and of parameters
        raise CommandError(error) from None
    print(report)
    return 0 if report.ok else EXIT_FAILED


def find_named(args: argparse.Namespace, name: str) -> Any:
    """Return what the argument "module:name" means; None if it is not given."""
    from rlcpu.envs.checks.against import find_object

    text, flag = getattr(args, name), "--" + name.replace("_", "-")
    if text is None:
        return None
    import_module_of(text, flag)
    return find_object(flag, text)


def import_module_of(text: str, flag: str) -> None:
    """Import the module of "module:name", the value of an option, if it names one."""
    try:
        if module := text.rpartition(":")[0]:
            import_user_module(module)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"{flag}: {error}") from None


def info(args: argparse.Namespace) -> int:
    """Print versions, threads, vector width, cache folder and GPU, or how an environment runs."""
    if args.env is not None:
        return explain(args.env.id)
    from rlcpu.cuda import describe
    from rlcpu.kernels.machine.processors import show_cpus
    from rlcpu.kernels.machine.threads import show_config

    config = {**show_config(), **show_cpus(), "cuda": describe()}
    width = max(map(len, config))
    for name, value in config.items():
        print(f"{name:<{width}}  {value}")
    return 0


def explain(env_id: str) -> int:
    """Print how an environment runs, and why."""
    from numba import errors

    from rlcpu.envs.checks.checker import vectorisation_findings

    dynamics = rlcpu.envs.find(env_id)
    if not dynamics.runs_in_kernels:
        raise CommandError(f"--env: {env_id} is stepped by another engine, not by our kernels")
    try:
        messages = [message for _, message in vectorisation_findings(dynamics)]
    except (TypeError, ValueError, errors.NumbaError) as error:  # the last line names the user's
        raise CommandError(f"--env: {str(error).strip().splitlines()[-1]}") from None
    for message in messages:
        print(f"{env_id}: {message}")
    return 0


def train_or_seeds(args: argparse.Namespace) -> int:
    """Run `rlcpu train`, with one seed or several."""
    take_settings(args)
    return train(args) if args.seeds is None else train_seeds(args)


def list_environments(args: argparse.Namespace) -> int:
    """Print the catalogue of environments, or the entry of one."""
    from rlcpu import catalogue

    try:
        columns = shutil.get_terminal_size().columns
        each = catalogue.entry(args.env.id) if args.env else None
        text = catalogue.page(each, columns) if each else catalogue.table(columns)
    except (ImportError, TypeError, ValueError) as error:
        raise CommandError(error) from None
    print(text)
    return 0


def export(args: argparse.Namespace) -> int:
    """Write the policy of a saved agent to a file that acts without this library."""
    args.threads = 1
    agent = load_agent(args)
    try:
        agent.export(args.policy)
    except (OSError, ValueError) as error:  # a layer of the user's
        raise CommandError(f"{args.policy}: {error}") from None
    print(f"wrote {args.policy}")
    return 0


# ---------------------------------------------------------------- arguments

#: Help on arguments that several commands take.
HELP_ENV = "an environment, such as CartPole-v1, or module:MyEnv-v0 for your own"
HELP_PARAM = "set a parameter of the environment, such as gravity=1.6"
#: An argument NAME=VALUE that may be given several times.
REPEATED: dict[str, Any] = {
    "metavar": "NAME=VALUE",
    "type": assignment,
    "action": "append",
    "default": [],
}
HELP_SET = "set a hyper-parameter, such as learning_rate=1e-3"
HELP_STEPS = (
    "environment steps at most (default: what environment and algorithm take, often 1,000,000)"
)
HELP_TARGET = (
    "mean return to reach, or none (default: the environment's own threshold, if it has one)"
)
HELP_EPISODES = "episodes of the evaluation (default: 100)"
HELP_THREADS = "threads at most (default: all cores)"
#: Names of `rlcpu.experiments.statistics`, which help need not import.
STATISTICS = ("mean", "median", "iqm")
HELP_STATISTIC = "over seeds; iqm is the mean of the middle half (default: mean)"
HELP_VIDEO = "film one greedy episode, as .gif or .mp4"


def build_parser() -> Parser:
    """Return the command line of `rlcpu`."""
    parser = Parser(
        prog="rlcpu",
        description=textwrap.fill((rlcpu.__doc__ or "").partition("\n")[0], 80),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rlcpu {rlcpu.__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, run, add_arguments, summary in (
        ("train", train_or_seeds, add_train_arguments, "train an agent and evaluate it"),
        ("tune", tune, add_tune_arguments, "search for the settings of an algorithm"),
        ("check", check, add_check_arguments, "try an environment and say what is wrong with it"),
        ("eval", evaluate, add_eval_arguments, "evaluate a saved agent, or film it"),
        ("doctor", doctor, add_doctor_arguments, "say what hampers learning of a saved agent"),
        ("export", export, add_export_arguments, "write the policy of a saved agent to one file"),
        ("show", show, add_show_arguments, "print what the file of a saved agent says"),
        ("plot", plot, add_plot_arguments, "draw learning curves, those of seeds with a band"),
        ("compare", compare, add_compare_arguments, "tell which of two variants is better"),
        ("list", list_environments, add_list_arguments, "list the environments, or describe one"),
        ("info", info, add_info_arguments, "print versions, threads, cache folder and GPU"),
        ("warmup", warmup, add_warmup_arguments, "compile the kernels into the cache"),
    ):
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        command.set_defaults(run=run)
        add_arguments(command)
    return parser


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu train`."""
    parser.usage = "rlcpu train ENV [options]\n       rlcpu train [ENV] --load FILE [options]"
    add = parser.add_argument_group("the run").add_argument
    add("env", metavar="ENV", nargs="?", type=environment, help=HELP_ENV)
    add("--steps", metavar="N", type=whole(1), help=HELP_STEPS)
    add("--target", metavar="R", type=target, help=HELP_TARGET)
    add("--episodes", metavar="N", type=whole(1), default=EPISODES, help=HELP_EPISODES)
    of_load = "go on with a saved agent for --steps more, and save it there if there is no --save"
    add("--load", metavar="FILE", help=of_load)
    of_schedule = (
        "total steps between which schedules run and evaluations are spread, such as 0:500000 "
        "(default: this run's)"
    )
    add("--schedule", metavar="FIRST:LAST", type=span, help=of_schedule)
    add("--threads", metavar="N", type=whole(1), help=HELP_THREADS)
    add("--no-progress", action="store_true", help="show no progress bar")
    add = parser.add_argument_group("on the way (default: nothing)").add_argument
    of_evaluations = "evaluate so many times, the last time at the end; nothing else changes"
    add("--evaluations", metavar="N", type=whole(1), help=of_evaluations)
    of_episodes = "greedy episodes of each of them (default: 20)"
    add("--eval-episodes", metavar="N", type=whole(1), help=of_episodes)
    of_best = "save the agent whenever an evaluation is the best so far"
    add("--keep-best", metavar="FILE", type=output_file, help=of_best)
    of_patience = "stop after so many evaluations in a row that were no better than the best"
    add("--patience", metavar="N", type=whole(1), help=of_patience)
    of_saves = "write the files of --save and --csv every so many total steps, too"
    add("--save-every", metavar="N", type=whole(1), help=of_saves)
    add = parser.add_argument_group("processes of Ray").add_argument
    add(
        "--collectors",
        metavar="N",
        type=whole(1),
        help="let N processes step environments (default: the process that learns does)",
    )
    add(
        "--shards",
        metavar="N",
        type=whole(1),
        help="let N processes hold the replay buffer (default: 1, with --collectors)",
    )
    cluster = "address of a cluster, such as 10.0.0.5:6379 (default: start Ray on this machine)"
    add("--ray", metavar="ADDRESS", help=cluster)
    add = parser.add_argument_group("a new agent").add_argument
    algo = "algorithm (default: the one that fits the environment, ppo for most)"
    add("--algo", type=str.lower, choices=ALGORITHMS, help=algo)
    add(
        "--seed",
        metavar="N",
        type=seed,
        help="same seed, same run, whatever the number of threads (default: 0)",
    )
    of_seeds = "run N seeds, from --seed on, side by side, and print what they say together"
    add("--seeds", metavar="N", type=whole(1), help=of_seeds)
    of_name = "what tables call the run (default: its algorithm and what was set)"
    add("--name", metavar="NAME", help=of_name)
    count = "environments to step at once (default: of the environment's settings)"
    add("--num-envs", metavar="N", type=whole(1), help=count)
    add("--dtype", choices=DTYPES, help="dtype of the simulation (default: float32)")
    add("--param", **REPEATED, help=HELP_PARAM)
    add("--set", **REPEATED, help=HELP_SET)
    of_settings = "algorithm and settings of a file that `rlcpu tune` wrote; --set changes some"
    add("--settings", metavar="FILE", help=of_settings)
    add = parser.add_argument_group("results (default: none is written)").add_argument
    of_save = (
        "write the agent, also if interrupted, {steps} in the name being its steps; with --seeds "
        "the runs, into a folder"
    )
    add("--save", metavar="FILE", help=of_save)
    of_csv = "write the learning curve as a table; with --load, behind the lines it has"
    add("--csv", metavar="FILE", type=output_file, help=of_csv)
    of_logs = "write all numbers for TensorBoard, as they come; with --seeds, a folder a seed"
    add("--tensorboard", metavar="FOLDER", help=of_logs)
    of_plot = "draw the learning curve; with --seeds, their mean with a band"
    add("--plot", metavar="FILE.png", type=picture_file, help=of_plot)
    add("--video", metavar="FILE.gif", type=video_file, help=HELP_VIDEO)


def add_tune_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu tune`."""
    add = parser.add_argument_group("the search").add_argument
    add("env", metavar="ENV", type=environment, help=HELP_ENV)
    algo = "algorithm (default: the one that fits the environment, ppo for most)"
    add("--algo", type=str.lower, choices=ALGORITHMS, help=algo)
    words = "settings that are tried (default: 60)"
    add("--trials", metavar="N", type=whole(1), default=60, help=words)
    words = "runs of each, with the seeds from --seed on (default: 3)"
    add("--seeds", metavar="N", type=whole(1), default=3, help=words)
    words = "same seed, same search, whatever the number of threads (default: 0)"
    add("--seed", metavar="N", type=seed, default=0, help=words)
    words = "try NAME=LOW:HIGH, LOW:HIGH:log or A/B/C, or not at all, NAME=none (default: a few)"
    add("--space", metavar="NAME=RANGE", type=dimension, action="append", default=[], help=words)
    words = "begin nothing after N minutes; the result depends on the machine then"
    add("--minutes", metavar="N", type=finite, help=words)
    add("--threads", metavar="N", type=whole(1), help=HELP_THREADS)
    add("--no-progress", action="store_true", help="show no progress bar")
    add = parser.add_argument_group("each run").add_argument
    add("--steps", metavar="N", type=whole(1), help=HELP_STEPS)
    add("--episodes", metavar="N", type=whole(1), default=EPISODES, help=HELP_EPISODES)
    add("--param", **REPEATED, help=HELP_PARAM)
    add("--set", **REPEATED, help=HELP_SET)
    add = parser.add_argument_group("results").add_argument
    words = "keep all runs there, and go on with those that it has (default: tune-ENV-ALGO)"
    add("--save", metavar="FOLDER", help=words)


def add_eval_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu eval`."""
    add = parser.add_argument
    add("load", metavar="FILE", help="an agent that `rlcpu train --save` or agent.save wrote")
    add("env", metavar="ENV", nargs="?", type=environment, help="module:MyEnv-v0, if it is yours")
    add("--episodes", metavar="N", type=whole(1), default=EPISODES, help=HELP_EPISODES)
    words = "seed of the episodes (default: the agent's, plus 1)"
    add("--seed", metavar="N", type=seed, help=words)
    add("--target", metavar="R", type=target, help=HELP_TARGET)
    add("--threads", metavar="N", type=whole(1), help=HELP_THREADS)
    add("--video", metavar="FILE.gif", type=video_file, help=HELP_VIDEO)


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu doctor`."""
    add = parser.add_argument
    add("load", metavar="FILE", help="an agent that `rlcpu train --save` or agent.save wrote")
    add("env", metavar="ENV", nargs="?", type=environment, help="module:MyEnv-v0, if it is yours")
    words = "seed of the episodes that are played (default: 0)"
    add("--seed", metavar="N", type=seed, default=0, help=words)
    add("--threads", metavar="N", type=whole(1), help=HELP_THREADS)


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu export`."""
    add = parser.add_argument
    add("load", metavar="FILE", help="an agent that `rlcpu train --save` or agent.save wrote")
    of_policy = "the file: .c, .json, .npz or .onnx; what reads each says the page on deployment"
    add("policy", metavar="POLICY", type=policy_file, help=of_policy)
    add("env", metavar="ENV", nargs="?", type=environment, help="module:MyEnv-v0, if it is yours")


def add_plot_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu plot`."""
    add = parser.add_argument
    runs = "folders of experiments, or tables that `rlcpu train --csv` wrote"
    add("runs", metavar="RUNS", nargs="+", help=runs)
    add("--out", metavar="FILE.png", type=picture_file, required=True, help="the picture")
    add("--over", choices=("steps", "seconds"), default="steps", help="abscissa (default: steps)")
    add("--statistic", choices=STATISTICS, default="mean", help=HELP_STATISTIC)
    add("--target", metavar="R", type=finite, help="draw a line at this return (default: none)")


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu compare`."""
    add = parser.add_argument
    folder = "an experiment, such as `rlcpu train --seeds N --save FOLDER` wrote"
    add("folder", metavar="FOLDER", help=folder)
    table = "a table of all of them, and with two the verdict too"
    add("first", metavar="A", nargs="?", help=f"a variant (default: {table})")
    add("second", metavar="B", nargs="?", help="another one")
    add("--statistic", choices=STATISTICS, default="mean", help=HELP_STATISTIC)


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu show`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="an agent that `rlcpu train --save` or agent.save wrote")
    add("env", metavar="ENV", nargs="?", type=environment, help="module:MyEnv-v0, if it is yours")


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu check`."""
    add = parser.add_argument
    add("env", metavar="ENV", type=environment, help=HELP_ENV)
    add("--param", **REPEATED, help=HELP_PARAM)
    words = "compare it with another implementation: Gymnasium's id, or module:Class"
    add("--against", metavar="ENV", help=words)
    words = "module:function, (env, state), that brings the other one into one of our states"
    add("--set-state", metavar="FUNCTION", help=words)
    words = "module:function, of what observe returns, that chooses actions (default: random)"
    add("--policy", metavar="FUNCTION", help=words)
    words = "module:list of states in which episodes begin, in turn (default: those of reset)"
    add("--states", metavar="LIST", help=words)
    words = "by which real numbers of --against may differ, relative to the largest (default: 1e-6)"
    add("--tolerance", metavar="X", type=finite, help=words)
    words = "random episodes of each whose returns and lengths are compared (default: 200)"
    add("--episodes", metavar="N", type=whole(2), help=words)
    steps = "single steps to compare with plain Python, or with the other (default: 1,000)"
    add("--steps", metavar="N", type=whole(1), default=1000, help=steps)
    words = "seed of states and actions (default: 0)"
    add("--seed", metavar="N", type=seed, default=0, help=words)


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu list`."""
    words = "print all about this one: spaces, parameters, limits, settings"
    parser.add_argument("env", metavar="ENV", nargs="?", type=environment, help=words)


def add_info_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu info`."""
    vectors = "tell whether its step runs in vectors or one lane at a time, and why"
    parser.add_argument("--env", metavar="ENV", type=environment, help=vectors)


def add_warmup_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rlcpu warmup`."""
    add = parser.add_argument
    some = "environments (default: all that are registered)"
    add("envs", metavar="ENV", nargs="*", type=environment, help=some)
    add("--dtype", choices=DTYPES, action="append", help="only this dtype (default: both)")
    add("--no-progress", action="store_true", help="show no progress bar")
