"""Folders of clusters: those of learners that a signal ended are removed by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rlcpu.distributed.actors import make_folder

LEARNER = """
import sys, time
from rlcpu.distributed.actors import make_folder
print(make_folder()[0], flush=True)
time.sleep(100)
"""


def test_folder_of_a_learner_that_was_ended_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    learner = subprocess.Popen([sys.executable, "-c", LEARNER], stdout=subprocess.PIPE, text=True)
    with learner:
        folder = Path(learner.stdout.readline().strip())
        own, _ = make_folder()
        assert folder.exists()  # while it runs, it stays
        learner.send_signal(signal.SIGTERM)
    assert folder.exists()
    other, _ = make_folder()
    assert not folder.exists()
    assert {path.name for path in tmp_path.iterdir()} == {Path(own).name, Path(other).name}
