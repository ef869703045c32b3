"""Save a buffer again and again in processes that are killed; say what was found after each.

python killed.py FOLDER SEED ROUNDS
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from rlcpu.replay import checkpoint
from rlcpu.replay.checkpoint import Section, reading, save

SIZE = 60_000


def change(data: np.ndarray, step: int) -> tuple[int, int]:
    """What step number `step` does to the bytes, and where."""
    begin = step * 7919 % (SIZE - 3000)
    data[begin : begin + 3000] = step % 251
    return begin, begin + 3000


def make(step: int) -> np.ndarray:
    data = np.zeros(SIZE, np.uint8)
    for number in range(1, step + 1):
        change(data, number)
    return data


def save_for_ever(path: Path, pipe: int) -> None:
    """Go on from the checkpoint; report each step once it is saved."""
    step, data, token = 0, np.zeros(SIZE, np.uint8), None
    if (path / "manifest.json").exists():
        with reading(path) as reader:
            reader.read_into("data", data)
            step, token = reader.header["step"], reader.token
    while True:
        step += 1
        where = change(data, step)
        token = save(path, {"step": step}, [Section("data", data, [where])], token)
        os.write(pipe, b"%d\n" % step)


def unnamed(path: Path) -> set[str]:
    """What an interrupted save left."""
    text = (path / "manifest.json").read_text() if (path / "manifest.json").exists() else ""
    return {name for name in os.listdir(path) if name not in text}


def start_and_kill(path: Path, seconds: float) -> int:
    """The last step that a process said it had saved, 0 for none."""
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            save_for_ever(path, target)
        finally:
            os._exit(1)
    os.close(target)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with os.fdopen(source) as lines:
        return int((lines.read().split() or ["0"])[-1])


def main(folder: str, seed: str, rounds: str) -> None:
    checkpoint.BLOCK = 1024
    path, rng, last, unfinished = Path(folder), random.Random(seed), 0, 0
    begin = time.perf_counter()
    for _ in range(3):
        save(path.with_name("timed"), {}, [Section("data", make(1))])
    each = (time.perf_counter() - begin) / 3  # of a machine that may be busy with other work
    path.mkdir()
    for _ in range(int(rounds)):
        last = max(last, start_and_kill(path, rng.uniform(0.0, 4 * each)))
        unfinished += any(name.startswith("rlcpu-") for name in unnamed(path))
        if last == 0 and not (path / "manifest.json").exists():
            continue
        data = np.zeros(SIZE, np.uint8)
        with reading(path) as reader:
            reader.read_into("data", data)
            assert last <= reader.header["step"] <= last + 1
            last = reader.header["step"]
        assert (data == make(last)).all()
    print(json.dumps({"steps": last, "unfinished": unfinished}))


if __name__ == "__main__":
    main(*sys.argv[1:])
