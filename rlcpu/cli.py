"""The `rlcpu` command: `train` an agent, print `info` on this machine, `warmup` the kernel cache.

Exit codes: 0 success, 1 trained but not solved, 2 bad arguments, 130 interrupted.
Every argument is checked before any work starts. What only one command needs is imported where it
is used: a run without a picture does not wait for matplotlib.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import math
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import rlcpu
from rlcpu.cli_train import CommandError, train

EXIT_BAD_ARGUMENTS = 2
EXIT_INTERRUPTED = 130
DEFAULT_STEPS = 1_000_000
DTYPES = ("float32", "float64")


class Parser(argparse.ArgumentParser):
    """An argument parser that answers a bad argument with one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(EXIT_BAD_ARGUMENTS, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
        code: int = args.run(args)
        return code
    except CommandError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("rlcpu: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def info(args: argparse.Namespace) -> int:
    """Print versions, threads, vector width, cache folder and GPU of this machine."""
    from rlcpu.cuda.provider import describe
    from rlcpu.kernels.threads import show_config

    config = {**show_config(), "cuda": describe()}
    width = max(map(len, config))
    for name, value in config.items():
        print(f"{name:<{width}}  {value}")
    return 0


# ---------------------------------------------------------------- rlcpu warmup


def warmup(args: argparse.Namespace) -> int:
    """Compile, and so cache, what stepping, collecting and training of environments need."""
    from tqdm import tqdm

    env_ids, dtypes = args.envs or known_environments(), args.dtype or DTYPES
    jobs = [(env, dtype, job) for env in env_ids for dtype in dtypes for job in WARMUP_JOBS]
    with tqdm(jobs, unit="part", disable=True if args.no_progress else None) as bar:
        for env_id, dtype, job in bar:
            bar.set_description(f"{env_id} {dtype} {job.__name__.removeprefix('warm_')}")
            job(env_id, dtype)
    print(f"compiled {', '.join(env_ids)} in {' and '.join(dtypes)}")
    return 0


def warm_step(env_id: str, dtype: str) -> None:
    """`env.step`, in few environments (serial kernels) and many (parallel kernels)."""
    for num_envs in (2, 1 << 16):
        env = rlcpu.make_vec(env_id, num_envs=num_envs, dtype=dtype)
        env.reset(seed=0)
        env.step(env.action_space.sample())


def warm_collect(env_id: str, dtype: str) -> None:
    """`simulate` and `collect` with the policies that take no code of the user's."""
    for num_envs in (2, 1 << 14):
        env = rlcpu.make_vec(env_id, num_envs=num_envs, dtype=dtype)
        env.reset(seed=0)
        spaces = env.single_observation_space, env.single_action_space
        for policy in (rlcpu.policies.Uniform(), rlcpu.policies.MLP(*spaces)):
            rlcpu.simulate(env, policy, 2)
            rlcpu.collect(env, policy, 2)


def warm_train(env_id: str, dtype: str) -> None:
    """The updates of a default agent, and its evaluation."""
    from rlcpu.train import PPO

    agent = PPO(env_id, seed=0, dtype=dtype)
    agent.learn(1)
    agent.evaluate(num_episodes=1, seed=0)


WARMUP_JOBS: tuple[Callable[[str, str], None], ...] = (warm_step, warm_collect, warm_train)


# ---------------------------------------------------------------- arguments


def build_parser() -> Parser:
    """The command line of `rlcpu`."""
    parser = Parser(
        prog="rlcpu", description=(rlcpu.__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"rlcpu {rlcpu.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, run, add_arguments, summary in (
        ("train", train, add_train_arguments, "train an agent with PPO and evaluate it"),
        ("info", info, None, "print versions, threads, vector width, cache folder and GPU"),
        ("warmup", warmup, add_warmup_arguments, "compile the kernels into the cache"),
    ):
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        command.set_defaults(run=run)
        if add_arguments:
            add_arguments(command)
    return parser


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rlcpu train`."""
    add = parser.add_argument
    steps = f"environment steps at most ({DEFAULT_STEPS:,})"
    add("env", metavar="ENV", type=environment, help="such as CartPole-v1, or module:MyEnv-v0")
    add("--steps", metavar="N", type=whole(1), default=DEFAULT_STEPS, help=steps)
    add("--seed", metavar="N", type=whole(0), default=0, help="a run is a function of it (0)")
    add("--num-envs", metavar="N", type=whole(1), help="environments (the environment's default)")
    add("--dtype", choices=DTYPES, default="float32", help="of the simulation")
    add("--threads", metavar="N", type=whole(1), help="threads (all cores)")
    add("--target", metavar="R", type=finite, help="mean return (the environment's threshold)")
    add("--episodes", metavar="N", type=whole(1), default=100, help="to evaluate at the end (100)")
    add("--save", metavar="PATH", type=output_file, help="write the agent to this file")
    add("--plot", metavar="FILE.png", type=picture_file, help="draw the learning curve")
    add("--no-progress", action="store_true", help="no progress bar")


def add_warmup_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `rlcpu warmup`."""
    add = parser.add_argument
    add("envs", metavar="ENV", nargs="*", type=environment, help="all that are registered if none")
    add("--dtype", choices=DTYPES, action="append", help="only this one (both)")
    add("--no-progress", action="store_true", help="no progress bar")


def whole(least: int) -> Callable[[str], int]:
    """A parser of whole numbers, such as 500000, 500_000 or 5e5, of at least `least`."""

    def parse(text: str) -> int:
        value = finite(text)
        if value < least or value != int(value) or value >= 2**53:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, got {text!r}"
            )
        return int(value)

    return parse


def finite(text: str) -> float:
    """A parser of finite numbers."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return value


def environment(name: str) -> str:
    """A parser of environments; `module:id` imports the module first, as Gymnasium does."""
    module, _, env_id = name.rpartition(":")
    if module:
        import_user_module(module)
    known = known_environments()
    if env_id in known:
        return env_id
    nearest = difflib.get_close_matches(env_id, known, n=1, cutoff=0.5)
    hint = f", did you mean {nearest[0]}?" if nearest else ";"
    raise argparse.ArgumentTypeError(
        f"unknown environment {env_id!r}{hint} known are {', '.join(known)}"
    )


def known_environments() -> list[str]:
    """The ids of the registered environments, sorted."""
    return sorted(rlcpu.envs.registered())


def import_user_module(module: str) -> None:
    """Import the module that registers a user's environment; the working folder comes first."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise argparse.ArgumentTypeError(describe_import_error(module, error)) from None


def describe_import_error(module: str, error: BaseException) -> str:
    """One line on why a user's module cannot be imported: file, line, exception.

    The line is the last one of the user's own code: `Dynamics` refuses a function in a line of this
    library, and the user looks for the line that called it.
    """
    kind, message = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        place: tuple[str, int] | None = (error.filename, error.lineno)
        message = error.msg
    else:
        # Where a trial of the user's function failed, the cause knows the line in it.
        cause = error.__cause__
        place = (cause and last_line_of_user(module, cause)) or last_line_of_user(module, error)
    if place is None:
        hint = f", write {module[:-3]}:..." if module.endswith(".py") else ""
        return f"cannot import {module!r}: {kind}: {message}{hint}"
    file, line = place
    with contextlib.suppress(ValueError):  # on another drive
        file = min(file, os.path.relpath(file), key=len)
    return f"{file}, line {line}: {kind}: {message}"


def last_line_of_user(module: str, error: BaseException) -> tuple[str, int] | None:
    """File and line of the last call in the user's code; None if it was never reached."""
    paths = sysconfig.get_paths()
    folders = [os.path.dirname(os.path.abspath(rlcpu.__file__))]
    folders += [paths[name] for name in ("stdlib", "purelib", "platlib")]
    package, place = module.partition(".")[0], None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = os.path.abspath(frame.f_code.co_filename)
        of_library = any(file.startswith(folder + os.sep) for folder in folders)
        own = frame.f_globals.get("__name__", "").partition(".")[0] == package
        if own or not (of_library or frame.f_code.co_filename.startswith("<")):
            place = file, line
    return place


def output_file(text: str) -> Path:
    """A parser of files to write: refused before the training, not after it."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder, expected a file name")
    return path


def picture_file(text: str) -> Path:
    """A parser of picture files that matplotlib can write."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise argparse.ArgumentTypeError(
            f"matplotlib cannot be imported ({error}); try pip install matplotlib"
        ) from error
    known = sorted(Figure().canvas.get_supported_filetypes())
    path = output_file(text)
    if path.suffix[1:].lower() not in known:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in one of {', '.join(known)}")
    return path
