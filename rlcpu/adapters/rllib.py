"""RLlib: prioritised replay of episodes, for the new API stack.

Environments need no adapter: RLlib makes a `rlcpu.VectorEnv` of the id "rlcpu:rlcpu/CartPole-v1"
with `gym_env_vectorize_mode="vector_entry_point"`.

Importing this module imports ray, the extra `rllib`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tree
from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils import replay_buffers
from ray.rllib.utils.spaces.space_utils import batch as stack

from rlcpu.replay import PrioritizedReplayBuffer
from rlcpu.replay.checks import check_count
from rlcpu.replay.items import NStep

Array = npt.NDArray[Any]


class PrioritizedEpisodeReplayBuffer(replay_buffers.PrioritizedEpisodeReplayBuffer):
    """RLlib's buffer of that name over a `rlcpu.replay.PrioritizedReplayBuffer`.

    RLlib takes it by name, in DQN: `replay_buffer_config={"type":
    "rlcpu.adapters.rllib.PrioritizedEpisodeReplayBuffer", ...}`; its SAC takes no classes but its
    own. It keeps transitions and no episodes: the oldest transition makes room, not an episode.
    Sums of n rewards end where a chunk of an episode ends that was added at once, with `n_step` of
    the sample as many as there were. Infos and outputs of modules are not kept.

    Args:
        capacity: transitions that are kept, the newest ones.
        batch_size_B: transitions of a sample that names no number.
        alpha: 0 draws uniformly, 1 in proportion to the priority.
        epsilon: added to each priority.
        seed: of the draws; None takes a new one.
        **options: others of RLlib's class.

    Raises:
        TypeError, ValueError: see `rlcpu.replay.PrioritizedReplayBuffer`.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        batch_size_B: int = 16,
        alpha: float = 1.0,
        epsilon: float = 1e-6,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            1, batch_size_B=batch_size_B, alpha=alpha, **options
        )  # no trees of its own
        self.capacity = check_count("capacity", capacity)
        self._settings: dict[str, Any] = {"alpha": alpha, "epsilon": epsilon, "seed": seed}
        self._buffer: PrioritizedReplayBuffer | None = None
        #: Number of the transition after an episode's last one; the episode that was added to last
        #: is the last.
        self._ends: dict[str, int] = {}
        self._drawn: Any = None

    # ------------------------------------------------------------ adding

    def add(self, episodes: Any, weight: float | None = None) -> None:
        """Store the transitions of one `SingleAgentEpisode` or a list of them, whole or in chunks.

        Args:
            episodes: they are copied.
            weight: their priority; None for the largest one given so far.
        """
        episodes = episodes if isinstance(episodes, list) else [episodes]
        steps = new = 0
        held = len(self._ends)
        for episode in episodes:
            if len(episode) == 0:
                continue
            self._write(_transitions(episode), weight)
            steps += len(episode)
            self._num_timesteps_added += len(episode)
            new += self._ends.pop(episode.id_, None) is None
            self._ends[episode.id_] = self._num_timesteps_added
        oldest = self._num_timesteps_added - self.capacity
        while self._ends and next(iter(self._ends.values())) <= oldest:
            del self._ends[next(iter(self._ends))]
        gone = held + new - len(self._ends)
        self._num_episodes_evicted += gone
        overwritten = max(steps - max(self.capacity - (self._num_timesteps_added - steps), 0), 0)
        self._note_added(new, steps, gone, overwritten)

    def _write(self, columns: dict[str, Any], weight: float | None) -> None:
        """Add the columns of transitions, with a priority if it is given."""
        if self._buffer is None:
            example = tree.map_structure(lambda array: array[0], columns)
            self._buffer = PrioritizedReplayBuffer(self.capacity, example, **self._settings)
        slot, count = self._buffer.num_added % self.capacity, len(columns["reward"])
        self._buffer.add(columns)
        if weight is not None:
            indices = (slot + np.arange(max(count - self.capacity, 0), count)) % self.capacity
            self._buffer.update_priorities(indices, weight)

    def _note_added(self, new: int, steps: int, gone: int, overwritten: int) -> None:
        """Keep RLlib's metrics of an add."""
        named: dict[str, Any] = {}
        for owner, key in (("agent", DEFAULT_AGENT_ID), ("module", DEFAULT_MODULE_ID)):
            named[f"{owner}_to_num_episodes_added"] = {key: new}
            named[f"{owner}_to_num_steps_added"] = {key: steps}
            named[f"{owner}_to_num_episodes_evicted"] = {key: gone}
            named[f"{owner}_to_num_steps_evicted"] = {key: overwritten}
        self._update_add_metrics(
            num_episodes_added=new,
            num_env_steps_added=steps,
            num_episodes_evicted=gone,
            num_env_steps_evicted=overwritten,
            **named,
        )

    # ------------------------------------------------------------ sampling

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: int | tuple[int, int] | None = None,
        beta: float | None = 0.0,
        gamma: float = 0.99,
        include_infos: bool = False,
        include_extra_model_outputs: bool = False,
        to_numpy: bool = False,
        **options: Any,
    ) -> list[SingleAgentEpisode]:
        """Draw transitions by priority.

        Args:
            num_items: how many.
            batch_size_B: the same.
            batch_length_T: 0 or 1.
            n_step: steps whose rewards are added up; of a pair, one from the first to below the
                second is drawn for the batch.
            beta: 0 to 1, how much of the bias the weights correct.
            gamma: discount of the sums.
            include_infos: False.
            include_extra_model_outputs: False.
            to_numpy: of the episodes.
            **options: RLlib's others, of no meaning here.

        Returns:
            Episodes of one step, with `weights` and `n_step` among their extra model outputs.

        Raises:
            ValueError: the buffer is empty, or something is asked for that is not kept.
        """
        if include_infos or include_extra_model_outputs or (batch_length_T or 1) != 1:
            raise ValueError(
                f"include_infos={include_infos}, include_extra_model_outputs="
                f"{include_extra_model_outputs}, batch_length_T={batch_length_T}: expected False, "
                "False and 1, for transitions alone are kept"
            )
        if self._buffer is None:
            raise ValueError("sample: the buffer is empty")
        size = num_items or batch_size_B or self.batch_size_B
        n = int(self.rng.integers(*n_step)) if isinstance(n_step, tuple) else n_step or 1
        if (n, gamma) != (self._buffer.n_step, self._buffer.gamma):
            # The steps of a sum are asked for here, and not when the buffer is made.
            self._buffer._n_step = NStep(self._buffer.structure, n, gamma, True)
            self._buffer.n_step, self._buffer.gamma = n, gamma
        drawn = self._buffer.sample(size, beta=beta or 0.0)
        self._drawn = drawn.indices
        self.sampled_timesteps += size
        episodes = _episodes(drawn, n, gamma)
        if to_numpy:
            episodes = [episode.to_numpy() for episode in episodes]
        self._note_sampled(size, len(np.unique(drawn.indices)), n)
        return episodes

    def _note_sampled(self, size: int, different: int, n: int) -> None:
        """Keep RLlib's metrics of a sample."""
        named: dict[str, Any] = {}
        for owner, key in (("agent", DEFAULT_AGENT_ID), ("module", DEFAULT_MODULE_ID)):
            named[f"{owner}_to_num_steps_sampled"] = {key: size}
            named[f"{owner}_to_num_episodes_per_sample"] = {key: different}
            named[f"{owner}_to_num_steps_per_sample"] = {key: different}
            named[f"{owner}_to_sampled_n_step"] = {key: float(n)}
            named[f"{owner}_to_num_resamples"] = {key: 0}
        self._update_sample_metrics(
            num_env_steps_sampled=size,
            num_episodes_per_sample=different,
            num_env_steps_per_sample=different,
            sampled_n_step=float(n),
            num_resamples=0,
            **named,
        )

    def update_priorities(self, priorities: npt.ArrayLike, module_id: Any = None) -> None:
        """Give the transitions of the last sample new priorities, sizes of temporal differences.

        Raises:
            ValueError: nothing was drawn, or another number of them; a priority is NaN.
        """
        if self._buffer is None or self._drawn is None:
            raise ValueError("update_priorities: expected a sample before")
        self._buffer.update_priorities(self._drawn, np.abs(np.asarray(priorities)))

    # ------------------------------------------------------------ what there is

    def get_num_timesteps(self, module_id: Any = None) -> int:
        """Return the number of transitions that are held."""
        return 0 if self._buffer is None else len(self._buffer)

    def get_num_episodes(self, module_id: Any = None) -> int:
        """Return the number of episodes of which a transition is held."""
        return len(self._ends)

    __len__ = get_num_episodes

    def get_state(self) -> dict[str, Any]:
        """Return the state that a checkpoint of RLlib's pickles."""
        names = ("_buffer", "_ends", "_num_timesteps_added", "sampled_timesteps")
        return {name: copy.deepcopy(getattr(self, name)) for name in names}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state of `get_state`."""
        for name, value in state.items():
            setattr(self, name, copy.deepcopy(value))
        self._drawn = None


def _transitions(episode: SingleAgentEpisode) -> dict[str, Any]:
    """Return arrays (length of the episode, ...) by name."""
    observations, actions = episode.get_observations(), episode.get_actions()
    observations = stack(observations) if isinstance(observations, list) else observations
    actions = stack(actions) if isinstance(actions, list) else actions
    terminated, cut = np.zeros((2, len(episode)), np.bool_)
    terminated[-1], cut[-1] = episode.is_terminated, not episode.is_terminated
    return {
        "observation": tree.map_structure(lambda array: np.asarray(array)[:-1], observations),
        "action": tree.map_structure(np.asarray, actions),
        "reward": np.asarray(episode.get_rewards(), np.float32),
        "next_observation": tree.map_structure(lambda array: np.asarray(array)[1:], observations),
        "terminated": terminated,
        "truncated": cut,
    }


def _episodes(drawn: Any, n: int, gamma: float) -> list[SingleAgentEpisode]:
    """Return one episode of one step for each transition of a batch."""
    summed = np.full(len(drawn), n)
    if drawn.discounts is not None and 0.0 < gamma < 1.0:
        summed = np.rint(np.log(drawn.discounts) / math.log(gamma)).astype(np.int64)
    data = drawn.data
    made = []
    for b in range(len(drawn)):
        one = tree.map_structure(lambda array, b=b: array[b], data)
        outputs = {"weights": [drawn.weights[b]], "n_step": [int(summed[b])]}
        made.append(
            SingleAgentEpisode(
                observations=[one["observation"], one["next_observation"]],
                actions=[one["action"]],
                rewards=[one["reward"]],
                terminated=bool(one["terminated"]),
                truncated=bool(one["truncated"]),
                extra_model_outputs=outputs,
                len_lookback_buffer=0,
            )
        )
    return made
