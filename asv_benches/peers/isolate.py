"""A function call in a process of its own, under a time limit.

Peers hang (`jit(vjp(lax.linalg.tridiagonal_solve))` of jax 0.10.2 does, on two cores), crash, and
leave thread pools behind that spin. None of that may reach the next row.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What became of a call.

    Attributes:
        value: the function's return value, None where there is a problem.
        status: "", or the problem in two words.
        detail: the problem's own text.
    """

    value: Any
    status: str = ""
    detail: str = ""


def explain(error: Exception) -> tuple[str, str]:
    """Status and detail of an exception: a peer that is missing, or one that fails."""
    if isinstance(error, ModuleNotFoundError):
        return "not installed", str(error)
    return "failed", f"{type(error).__name__}: {error}"


def call(function: Callable[..., Any], *arguments: Any, limit_s: float) -> Outcome:
    """Calls `function(*arguments)` in a fresh process and waits `limit_s` seconds at most.

    Args:
        function: picklable (module-level, or an instance with `__call__`).
        arguments: picklable.
        limit_s: seconds after which the process is killed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            return Outcome(None, "timed out", f"no answer within {limit_s:g} s")
        return Outcome(*receiver.recv())
    except EOFError:
        process.join()
        return Outcome(None, "crashed", f"exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


def _answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send((function(*arguments),))
    except Exception as error:  # a peer may fail in any way; the table says which
        sender.send((None, *explain(error)))
