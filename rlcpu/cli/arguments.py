"""Types of the `rlcpu` command's arguments: each parses a text, and checks it before any work."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import math
import os
import re
import sys
import sysconfig
import traceback
import types
import weakref
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import rlcpu
from rlcpu.translation import ANSWERS, COMMANDS, NAMES, OPTIONS, hint_at

DTYPES = ("float32", "float64")


class CommandError(Exception):
    """Error of a command, whose message is the one line that users see."""

    def __init__(self, message: object, code: int = 2) -> None:
        super().__init__(str(message))
        self.code = code


# ---------------------------------------------------------------- numbers


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers, such as 500000, 500_000 or 5e5, of at least `least`."""

    def parse(text: str) -> int:
        value = finite(text)
        # Floats hold all whole numbers below 2**53.
        if value < least or value != int(value) or value >= 2**53:
            raise ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
        return int(value)

    return parse


def seed(text: str) -> int:
    """Return a seed, a whole number below 2**128, or ArgumentTypeError."""
    value = int(text) if text.isdecimal() else whole(0)(text)  # 5e5 and the like
    if value >= 2**128:
        raise ArgumentTypeError(f"expected less than 2**128, got {text!r}")
    return value


def finite(text: str) -> float:
    """Return a finite number, or ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentTypeError(f"expected a number, got {text!r}")
    return value


def target(text: str) -> float | str:
    """Return a mean return to reach, a finite number or "none"; else ArgumentTypeError."""
    return "none" if text.lower() == "none" else finite(text)


def span(text: str) -> tuple[int, int]:
    """Return two whole numbers of a text such as 0:500000, or ArgumentTypeError."""
    first, _, last = text.partition(":")
    try:
        bounds = whole(0)(first), whole(1)(last)
    except ArgumentTypeError:
        bounds = 0, 0
    if bounds[0] >= bounds[1]:
        raise ArgumentTypeError(f"expected FIRST:LAST, such as 0:500000, got {text!r}")
    return bounds


def assignment(text: str) -> tuple[str, Any]:
    """Return name and value of name=value: a number, true, false, none, 64,64 or a word."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals and value):
        raise ArgumentTypeError(f"expected name=value, got {text!r}")
    return name, _value(value)


def _value(text: str) -> Any:
    """Return a number, true, false, none, a tuple such as 64,64, or else the word itself."""
    words = {"true": True, "false": False, "none": None, "inf": math.inf}
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return words.get(text.lower(), text)


def dimension(text: str) -> tuple[str, Any]:
    """Return name and range of name=low:high, low:high:log or a/b/c, None of name=none."""
    name, equals, value = text.partition("=")
    if name.isidentifier() and equals and value:
        ends, choices = value.split(":"), value.split("/")
        if 2 <= len(ends) <= 3:
            return name, (*map(_value, ends[:2]), *ends[2:])
        if len(choices) > 1:
            return name, list(map(_value, choices))
        if value.lower() == "none":
            return name, None
    raise ArgumentTypeError(f"expected name=low:high, name=low:high:log or name=a/b, got {text!r}")


def hint_at_arguments(message: str) -> str:
    """Return what to write where argparse says that it knows an option or command not, or ""."""
    if match := re.match(r"argument COMMAND: invalid choice: '(\w+)'", message):
        ours = COMMANDS.get(match[1])
        return f"did you mean {ours}?" if ours else ""
    if not (match := re.match(r"unrecognized arguments: -+([^\s=]+)", message)):
        return ""
    from rlcpu import train

    name = match[1].replace("-", "_")
    configs = [getattr(train, each) for each in train.__all__ if each.endswith("Config")]
    settings = {each for config in configs for each in config.names()}
    if name in settings:
        return f"write --set {name}=VALUE"
    if name in NAMES and name not in OPTIONS:
        return f"{hint_at(name, settings)} Write --set NAME=VALUE"
    return OPTIONS.get(name) or ANSWERS.get(name, "")


# ---------------------------------------------------------------- environments


class Environment(NamedTuple):
    """An environment of the command line."""

    text: str  # as it was given, such as balance:Balance-v0
    id: str  # such as Balance-v0


def environment(text: str) -> Environment:
    """Return an environment; `module:id` imports the module first, as Gymnasium does.

    An id that is not ours is one of Gymnasium's registry.
    """
    from rlcpu.envs.contract.names import ATARI, is_atari, is_of_gymnasium, nearest_id

    module, _, env_id = text.rpartition(":")
    registers = ids_of_module(module) if module else []
    known = known_environments()
    if env_id in known or is_of_gymnasium(env_id):
        return Environment(text, env_id)
    if module:
        raise ArgumentTypeError(f"{module} {list_of(registers)}, not {env_id!r}")
    file = Path(text if text.endswith(".py") else f"{text}.py")
    if file.is_file() and not file.is_absolute():
        name = ".".join(file.with_suffix("").parts)
        written = " or ".join(f"{name}:{each}" for each in ids_of_module(name))
        hint = f"write {written}" if written else f"{name} {list_of([])}"
        raise ArgumentTypeError(f"{text!r} is a file: {hint}")
    if text.endswith(".py"):
        raise ArgumentTypeError(f"there is no file {text!r}")
    nearest = nearest_id(env_id)
    hint = f", did you mean {nearest}?" if nearest else ";"
    if is_atari(env_id):
        hint = f"; with the package ale-py it is {ATARI} and the like;"
    raise ArgumentTypeError(
        f"unknown environment {env_id!r}{hint} `rlcpu list` has all {len(known)}"
    )


#: Ids of environments by the module of the user's that registered them as it was imported here.
_REGISTERED: weakref.WeakKeyDictionary[types.ModuleType, list[str]] = weakref.WeakKeyDictionary()


def ids_of_module(module: str) -> list[str]:
    """Import a module of the user's, and return the ids of the environments that it registers."""
    import gymnasium

    from rlcpu.envs.registration import registered_by_users

    before = {*registered_by_users(), *gymnasium.registry}
    was_imported = module in sys.modules
    imported = import_user_module(module)
    ours = registered_by_users()
    if imported not in _REGISTERED:
        if was_imported:  # elsewhere, and not run again: its own are among those of all modules
            return ours
        others = [id for id in gymnasium.registry if not id.startswith("rlcpu/")]
        _REGISTERED[imported] = [id for id in ours + others if id not in before]
    return _REGISTERED[imported]


def list_of(ids: list[str]) -> str:
    """Return what a module does that registers environments of these ids."""
    return f"registers {' and '.join(ids)}" if ids else "registers no environment"


def known_environments() -> list[str]:
    """Return the ids of the environments that there are, sorted."""
    from rlcpu.envs.registration import registered

    return sorted(registered())


def import_user_module(module: str) -> types.ModuleType:
    """Return the module that registers a user's environment; the working folder comes first."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ArgumentTypeError(describe_import_error(module, error)) from None


def describe_import_error(module: str, error: BaseException) -> str:
    """Return one line on why a user's module cannot be imported: file, line, exception.

    The line is the last one of the user's own code: `Dynamics` refuses a function in a line of this
    library, and the user looks for the line that called it.
    """
    kind, message = type(error).__name__, " ".join(str(error).split())
    # Where a trial of the user's function failed, the cause knows the line in it.
    causes = [cause for cause in (error.__cause__, error) if cause is not None]
    places = [last_line_of_user(module, cause) for cause in causes]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        places, message = [(error.filename, error.lineno)], error.msg
    place = next(filter(None, places), None)
    if place is None:
        hint = f", write {module[:-3]}:..." if module.endswith(".py") else ""
        return f"cannot import {module!r}: {kind}: {message}{hint}"
    file, line = place
    with contextlib.suppress(ValueError):  # on another drive
        file = min(file, os.path.relpath(file), key=len)
    return f"{file}, line {line}: {kind}: {message}"


def last_line_of_user(module: str, error: BaseException) -> tuple[str, int] | None:
    """Return file and line of the last call in the user's code; None if it was never reached."""
    paths = sysconfig.get_paths()
    folders = [os.path.dirname(os.path.abspath(rlcpu.__file__))]
    folders += [paths[name] for name in ("stdlib", "purelib", "platlib")]
    package, place = module.partition(".")[0], None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = os.path.abspath(frame.f_code.co_filename)
        is_library = any(file.startswith(folder + os.sep) for folder in folders)
        is_generated = frame.f_code.co_filename.startswith("<")
        is_of_module = frame.f_globals.get("__name__", "").partition(".")[0] == package
        if is_of_module or not (is_library or is_generated):
            place = file, line
    return place


# ---------------------------------------------------------------- files


def output_file(text: str) -> Path:
    """Return the path of a file that can be written, or ArgumentTypeError before any training."""
    from rlcpu.train.keeping.files import check_writable

    try:
        check_writable(text)
    except OSError as error:
        reason = f"cannot write {text!r}: {error.strerror}" if error.strerror else str(error)
        raise ArgumentTypeError(reason) from None
    return Path(text)


def policy_file(text: str) -> Path:
    """Return the path of a file that a policy can be exported to."""
    from rlcpu.train.keeping.saved import FORMATS

    path = output_file(text)
    if path.suffix not in FORMATS:
        raise ArgumentTypeError(f"{text!r}: expected an ending of {', '.join(FORMATS)}")
    return path


def picture_file(text: str) -> Path:
    """Return the path of a picture that matplotlib can write."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = f"matplotlib cannot be imported ({error}); try pip install matplotlib"
        raise ArgumentTypeError(message) from error
    known = sorted(Figure().canvas.get_supported_filetypes())
    path = output_file(text)
    if path.suffix[1:].lower() not in known:
        raise ArgumentTypeError(f"{text!r} does not end in one of {', '.join(known)}")
    return path


def video_file(text: str) -> Path:
    """Return the path of a film: .gif by Pillow, .mp4 by moviepy, as Gymnasium's recorder."""
    needed = {".gif": ("PIL", "pillow"), ".mp4": ("moviepy", "moviepy")}
    suffix = Path(text).suffix.lower()
    if suffix not in needed:
        raise ArgumentTypeError(f"{text!r} does not end in .gif or .mp4")
    module, package = needed[suffix]
    if importlib.util.find_spec(module) is None:
        raise ArgumentTypeError(
            f"{suffix} needs {module}, which is not installed; try pip install {package}"
            + (", or name a .gif" if suffix == ".mp4" else "")
        )
    return output_file(text)
