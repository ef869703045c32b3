"""The queue against a list."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlcpu.replay import TrajectoryQueue


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_first_in_first_out(tmp_path_factory, data):
    envs, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9))
    taken = data.draw(st.integers(1, length))
    queue, waiting, number = TrajectoryQueue(envs, length, {"x": 0}, taken), [], 0
    for num_steps in data.draw(st.lists(st.integers(0, 9), max_size=12)):
        batch = np.arange(number, number + num_steps * envs).reshape(num_steps, envs)
        if num_steps <= length - len(waiting):
            assert num_steps == 0 or queue.can_add(num_steps)
            queue.add({"x": batch})
            waiting += batch.tolist()
            number += batch.size
        else:
            assert not queue.can_add(num_steps)
            with pytest.raises(ValueError, match=f"{num_steps} steps: expected at most"):
                queue.add({"x": batch})
        assert len(queue) == len(waiting) * envs
        assert queue.can_sample() == (len(waiting) >= taken)
        if data.draw(st.booleans()):
            continue
        if len(waiting) < taken:
            with pytest.raises(ValueError, match="wait, expected"):
                queue.sample()
        else:
            assert queue.sample()["x"].tolist() == waiting[:taken]
            del waiting[:taken]
    path = tmp_path_factory.mktemp("queue") / "saved"
    queue.save(path)
    loaded = TrajectoryQueue.load(path)
    assert len(loaded) == len(queue)
    while loaded.can_sample():
        assert loaded.sample()["x"].tolist() == queue.sample()["x"].tolist()


def test_bad_arguments():
    with pytest.raises(ValueError, match="length=2"):
        TrajectoryQueue(1, 2, {"x": 0}, 3)
    queue = TrajectoryQueue(1, 2, {"x": 0}, 1)
    with pytest.raises(ValueError, match="leading axes"):
        queue.add({"x": np.zeros((2, 2), int)})
    queue.add({"x": np.zeros((1, 1), int)})
    with pytest.raises(ValueError, match="out=int"):
        queue.sample(out=3)
    assert len(queue) == 1
