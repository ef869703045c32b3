"""The results of `simulate` and `collect`: `Statistics` and `Rollout`.

A rollout's memory is `records`, flat arrays (`rlcpu.envs.engine.form.Records`), in which an
observation is a row of `form.rows` floats, the action mask among them. `form.view` makes of such
rows observations as users get them (`decode`), inputs of networks (`inputs`), or masks (`masks`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlcpu import backends
from rlcpu.envs.acting.networks import NetworkPolicy
from rlcpu.envs.acting.running import run_sequences
from rlcpu.envs.contract.policies import Array, Policy
from rlcpu.envs.engine.episode import SIZE, Episode
from rlcpu.envs.engine.form import Form
from rlcpu.envs.engine.observations import each_part
from rlcpu.nn.layers.embedding import Ones


@dataclasses.dataclass
class Statistics:
    """Results of `simulate`.

    Attributes:
        num_steps: environment steps taken, N * K.
        num_episodes: episodes that ended.
        mean_return, std_return: of the returns of those episodes; NaN without any. A deviation
            below 3e-4 of the mean is lost in float32, in which squares are added up; `collect`
            gives every return.
        mean_length: of their lengths in steps.
        num_cut_off: episodes that were running when `num_steps` were over. They are in no mean,
            and the long ones among all: the more, the further the means are biased to short ones.
    """

    num_steps: int
    num_episodes: int
    mean_return: float
    std_return: float
    mean_length: float
    num_cut_off: int = 0

    @classmethod
    def of_sums(cls, num_steps: int, sums: Sequence[float], num_cut_off: int) -> Statistics:
        """Return the statistics of the five sums that `Runner.simulate` returns, in their order."""
        num_episodes, returns, squares, _, lengths = sums
        mean = std = mean_length = math.nan
        if num_episodes > 0:
            mean, mean_length = returns / num_episodes, lengths / num_episodes
            std = math.sqrt(max(squares / num_episodes - mean * mean, 0.0))
        return cls(num_steps, int(num_episodes), mean, std, mean_length, num_cut_off)

    def _repr_html_(self) -> str:
        """Return a table, for notebooks."""
        return show_table("Statistics", dataclasses.asdict(self).items())


def show_table(caption: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a plain table in HTML."""
    import html  # 1.6 ms

    lines = [[html.escape(str(cell)) for cell in row] for row in rows]
    body = "".join(f"<tr><td>{'</td><td>'.join(line)}</td></tr>" for line in lines)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


#: Fields of a transition, as buffers name them.
_TRANSITION = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
_MASKS = ("action_mask", "next_action_mask")


class Critic:
    """A copy of a policy's value head as it was when the policy acted, before it learns.

    Args:
        policy: one with a value head. Later only the numbers in its arrays may change: other
            changes need a new `Critic`.
    """

    def __init__(self, policy: NetworkPolicy) -> None:
        parameters = "parameters" if policy.value == "shared" else "value_parameters"
        names = parameters, "observation_mean", "observation_scale", "observation_limit"
        # With networks and arrays of its own: those of the policy go on to learn.
        self._policy = copied = policy.with_own_networks()
        for name in names:
            setattr(copied, name, np.array(getattr(policy, name), np.float32))
        self._arrays = {name: getattr(copied, name) for name in names}

    def take(self, policy: NetworkPolicy) -> None:
        """Copy the present numbers of the policy."""
        for name, array in self._arrays.items():
            array[...] = getattr(policy, name)

    def evaluate(self, observations: Array) -> Array:
        """Return values (n,) float32 of observations (n, observation_size)."""
        return self._policy.evaluate(observations)

    def evaluate_sequences(self, observations: Array, states: Array) -> Array:
        """Return values (T, n) float32 of sequences of observations, with memory.

        Args:
            observations: (T, n, observation_size).
            states: (n, any), what the policy remembers before them; see `Rollout.states`.
        """
        name = "value" if self._policy.value == "separate" else "policy"
        return run_sequences(self._policy, name, observations, states)[..., -1]


class Rollout:
    """T steps of N environments, time-major; F is the number of episodes that ended.

    `last_values` and all that is named after an end are computed when they are first asked for, of
    the policy as it was when it acted: a loop of single steps does not pay for a second pass
    through the network and for searches that it does not need. On a device, what has T or N in its
    shape is an array there; the four arrays of length F are on the host.

    Attributes:
        observations: (T, N, ...), before each step, as `VectorEnv.step` returns them. Planes are
            kept as bits, and expanded when they are first asked for. Those of a `Dict` are a dict
            of arrays, each in its own dtype.
        actions: (T, N) int64 of a `Discrete`, (T, N, action_size) int64 of a `MultiDiscrete` or
            float32 of a `Box`: as the policy drew them; the environment got the last ones clipped
            to its bounds.
        log_probs: (T, N) float32, of the actions; of actions that a policy scales to their bounds,
            of the numbers in [-1, 1] that it scales.
        values: (T, N) float32, the policy's values of `observations`; 0 without a value head.
        rewards: (T, N), of the environment's dtype.
        terminated, truncated: (T, N) bool, whether the episode ended with this step; both may hold.
        last_observations: (N, ...), after the last step.
        action_masks, last_action_masks: (T, N, num_actions) and (N, num_actions) bool, the actions
            that were allowed before each step and after the last; None without `action_mask`.
        num_steps: T.
        form, records, outputs: what decides its arrays, its memory, and that as kernels take it: a
            plain tuple, with flags as bytes.
        states: (N, state_size) float32, what a policy with memory remembered before the first step:
            of its network, then of that of its value; None without memory.
    """

    actions: Array
    log_probs: Array
    values: Array
    rewards: Array
    terminated: Array
    truncated: Array

    def __init__(self, form: Form, num_steps: int) -> None:
        self.form, self.num_steps = form, num_steps
        self.records = form.allocate(num_steps)
        self._critic: Critic | None = None
        self.states: Array | None = None
        self._last_states: Array | None = None
        self._bind()
        self.__dict__.update(self._views)

    def __repr__(self) -> str:
        returns = self.episode_returns
        mean = f", mean return {returns.mean():.4g}" if returns.size else ""
        steps = f"{self.num_steps:,} steps of {self.form.num_envs:,} environments"
        return f"Rollout({steps}, {returns.size:,} episodes ended{mean})"

    def _repr_html_(self) -> str:
        """Return a table of the arrays, for notebooks."""
        arrays: dict[str, Any] = {"observations": self.observations, **self._views}
        if isinstance(self.observations, dict):
            del arrays["observations"]
            arrays |= {f"observations: {k}": x for k, x in self.observations.items()}
        rows = ((name, array.dtype, array.shape) for name, array in arrays.items())
        return show_table(repr(self), [("array", "dtype", "shape"), *rows])

    def _bind(self) -> None:
        """Set the attributes that depend on this process and these arrays; a copy needs others."""
        self._arrays = backends.arrays_of(self.form.device)  # functions of NumPy's or CuPy's arrays
        #: Attributes that are views of `records` and need no computation, by name.
        self._views = self.form.shaped(self.records, self.num_steps)
        #: A NamedTuple of arrays costs a call of a kernel 0.6 us more.
        self.outputs = tuple(self.records._replace(flags=self.records.flags.view(np.uint8)))
        self._source: object = None  # that of the last `renew`, for which `_critic` was made

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but those that `_bind` sets."""
        bound = ("_arrays", "_views", "_source", "outputs")
        return {name: value for name, value in self.__dict__.items() if name not in bound}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    def renew(
        self,
        policy: Policy,
        source: object,
        states: Array | None = None,
        last_states: Array | None = None,
    ) -> None:
        """Forget what was computed of the arrays, after `collect` has overwritten them.

        Args:
            policy: the policy that acted; its value head is copied.
            source: any object; the same one means that only numbers of the policy have changed
                since the last call.
            states: recurrent states of the policy before the first step, or None without memory.
            last_states: those after the last step.
        """
        self.states, self._last_states = states, last_states
        attributes = self.__dict__
        for name in _CACHED.intersection(attributes):
            del attributes[name]
        attributes.update(self._views)  # among them observations, if they need no decoding
        if self.form.device != "cpu":  # there a kernel computed the values
            return
        if source is not self._source:
            self._source = source
            has_values = isinstance(policy, NetworkPolicy) and policy.value is not None
            self._critic = Critic(policy) if has_values else None  # type: ignore[arg-type]
        elif self._critic is not None:
            self._critic.take(policy)  # type: ignore[arg-type]

    @functools.cached_property
    def observations(self) -> Any:
        """Return the observations before each step; see the class."""
        return self._decode(self.records.observations, self.num_steps, self.form.num_envs)

    @functools.cached_property
    def last_observations(self) -> Any:
        """Return the observations after the last step; see the class."""
        return self._decode(self.records.last, self.form.num_envs)

    @functools.cached_property
    def action_masks(self) -> Array | None:
        """Return which actions were allowed before each step; see the class."""
        return self._masks(self.records.observations, self.num_steps, self.form.num_envs)

    @functools.cached_property
    def last_action_masks(self) -> Array | None:
        """Return which actions are allowed after the last step; see the class."""
        return self._masks(self.records.last, self.form.num_envs)

    def _masks(self, rows: Any, *shape: int) -> Array | None:
        """Return the action masks in rows of observations, (*shape, num_actions) bool, or None."""
        view = self.form.view
        return view.masks(rows.reshape(*shape, self.form.rows)) if view.num_masked else None

    def _decode(self, rows: Any, *shape: int) -> Any:
        """Return observations, (*shape, ...), of the rows that hold them."""
        return self.form.view.decode(rows.reshape(*shape, self.form.rows))

    @property
    def inputs(self) -> Array:
        """Return `observations` as networks get them, (T, N, observation_size) float32.

        A choice is zeros and a one, planes are flat.
        """
        rows = self.records.observations.reshape(-1, self.form.rows)
        inputs: Array = self.form.view.inputs(rows)
        return inputs.reshape(self.num_steps, self.form.num_envs, -1)

    @property
    def ones(self) -> Ones | None:
        """Return which `inputs` of T * N samples are one; None unless a choice or planes."""
        return self.form.view.ones(self.records.observations.reshape(-1, self.form.rows))

    @functools.cached_property
    def last_values(self) -> Array:
        """Return the values of `last_observations`, (N,) float32."""
        if self._critic is None:
            return np.zeros(self.form.num_envs, np.float32)
        rows = self.records.last.reshape(self.form.num_envs, -1)
        inputs = self.form.view.inputs(rows)
        if self._last_states is not None:
            return self._critic.evaluate_sequences(inputs[None], self._last_states)[0]
        return self._critic.evaluate(inputs)

    @property
    def starts(self) -> Array:
        """Tell where a new episode begins after another one of this rollout, (T, N) bool.

        Where one begins with the first step, `states` has zeros.
        """
        begins = np.zeros((self.num_steps, self.form.num_envs), np.bool_)
        np.logical_or(self.terminated[:-1], self.truncated[:-1], out=begins[1:])
        return begins

    @functools.cached_property
    def _ends(self) -> Array:
        """Return the sample, step * N + environment, of each end of an episode, (F,) int64."""
        terminated, truncated = self._arrays.to_host(self.records.flags).reshape(2, -1)
        return np.flatnonzero(terminated | truncated)

    @functools.cached_property
    def final_indices(self) -> Array:
        """Return [step, environment] of each end of an episode, (F, 2) int64, time-major."""
        shape = self.num_steps, self.form.num_envs
        return np.stack(np.unravel_index(self._ends, shape), axis=1)

    @functools.cached_property
    def final_observations(self) -> Any:
        """Return the observations to which the steps led that ended an episode, (F, ...).

        `observations` does not have them: its next row begins a new episode.
        """
        return self._decode(self._final_rows, len(self._ends))

    @property
    def _final_rows(self) -> Array:
        """Return the rows of `final_observations`, (F, rows) float32."""
        return self._at_ends(self.records.finals.reshape(-1, self.form.rows))

    @functools.cached_property
    def final_values(self) -> Array:
        """Return the values of final observations where an episode was truncated, (T, N) float32.

        Returns are bootstrapped with them. They are 0 elsewhere, and where the episode terminated
        as well.
        """
        values, is_cut = self._final_values_memory, self._is_cut
        values.fill(0.0)
        if self._critic is not None and is_cut.any():
            if self.states is None:
                inputs = self.form.view.inputs(self._final_rows[is_cut])
                final_values = self._critic.evaluate(inputs)
            else:
                final_values = self._run_to_cuts(self._critic.evaluate_sequences)
            values.ravel()[self._ends[is_cut]] = final_values
        return values

    @functools.cached_property
    def _is_cut(self) -> Array:
        """Return which of the episodes that ended were truncated and not terminated, (F,) bool."""
        is_cut: Array = (self.truncated & ~self.terminated).ravel()[self._ends]
        return is_cut

    def outputs_after(self, run: Callable[..., Array]) -> Array:
        """Return the outputs of a network with memory for the observation to which each step led.

        Args:
            run: (inputs (t, n, observation_size), states (n, any), starts (t, n)) -> outputs (t, n,
                any) of the network; states are those of the rollout.

        Returns:
            (T, N, any); of the final observation where an episode was truncated. Where it
            terminated nothing follows, and the numbers mean nothing.
        """
        last = self.form.view.inputs(self.records.last.reshape(self.form.num_envs, -1))
        # One pass over T + 1 observations: the output for each is that after the step before it.
        inputs = np.concatenate([self.inputs, last[None]])
        starts = np.concatenate([self.starts, np.zeros((1, self.form.num_envs), np.bool_)])
        outputs = run(inputs, self.states, starts)[1:]
        if self._is_cut.any():  # there the next observation begins a new episode
            steps, envs = self.final_indices[self._is_cut].T
            outputs[steps, envs] = self._run_to_cuts(run)
        return outputs

    def _run_to_cuts(self, run: Callable[..., Array]) -> Array:
        """Return outputs (n, ...) of a network with memory for the end of each cut episode.

        `run` is (sequences (t, n, observation_size), states (n, any)) -> outputs (t, n, ...). A
        sequence is the rollout's observations of such an episode, the final one, and zeros.
        """
        finals = self.form.view.inputs(self._final_rows[self._is_cut])
        steps, envs = self.final_indices[self._is_cut].T
        starts, inputs, sequence = self.starts, self.inputs, np.arange(len(steps))
        begins = np.zeros_like(steps)  # step of the rollout with which each episode begins in it
        for k in sequence:
            starts_before = np.flatnonzero(starts[: steps[k] + 1, envs[k]])
            begins[k] = starts_before[-1] if starts_before.size else 0
        lengths = steps + 1 - begins
        sequences = np.zeros((int(lengths.max()) + 1, *finals.shape), np.float32)
        for k in sequence:
            sequences[: lengths[k], k] = inputs[begins[k] : steps[k] + 1, envs[k]]
        sequences[lengths, sequence] = finals
        states: Any = self.states
        # Episodes that run since the rollout began go on from its states, others from zeros.
        first_states = np.where((begins == 0)[:, None], states[envs], np.float32(0))
        outputs: Array = run(sequences, first_states)[lengths, sequence]
        return outputs

    @functools.cached_property
    def _final_values_memory(self) -> Array:
        """Return the array that `final_values` overwrites and returns each time."""
        return np.empty((self.num_steps, self.form.num_envs), np.float32)

    @functools.cached_property
    def episode_returns(self) -> Array:
        """Return the undiscounted returns of the episodes that ended, (F,) float64."""
        return self._counted("total")

    @functools.cached_property
    def episode_lengths(self) -> Array:
        """Return the steps of the episodes that ended, (F,) int64."""
        return self._at_ends(self.records.lengths).astype(np.int64)

    def _counted(self, name: str) -> Array:
        """Return a field of the `Episode` of each episode that ended, (F,) float64."""
        totals = self.records.totals.reshape(SIZE, -1)[Episode._fields.index(name)]
        return self._at_ends(totals).astype(np.float64)

    def _at_ends(self, array: Any) -> Array:
        """Return the rows of a flat array (T * N, ...) at which episodes ended, on the host."""
        rows: Array = self._arrays.to_host(array[self._arrays.asarray(self._ends)])
        return rows

    def transitions(
        self, names: Iterable[str] = _TRANSITION, *, as_inputs: bool = False, packed: bool = False
    ) -> dict[str, Any]:
        """Return the T * N transitions for a buffer: step after step, all environments of each.

        Args:
            names: which of `observation`, `action`, `reward`, `next_observation`, `terminated`,
                `truncated` (these six by default), `log_prob`, `value`, and where the environment
                has them `action_mask` and `next_action_mask`; a buffer's example, a dict of these,
                will do.
            as_inputs: give observations as networks see them, (T * N, observation_size) float32.
            packed: give planes by their bits, (T * N, planes, 4) uint32, a choice as int32, and
                floats as float32: what agents keep. The parts of a group are a dict in any case.

        Returns:
            Arrays (T * N, ...) by name. `next_observation` and `next_action_mask` are what the step
            led to, those of the end where an episode ended. Most are views of the rollout's memory.

        Raises:
            ValueError: another name.

        Example:
            >>> import rlcpu
            >>> env = rlcpu.make_vec("CartPole-v1", num_envs=8)
            >>> rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), 100)
            >>> rollout.transitions()["next_observation"].shape
            (800, 4)
        """
        chosen = dict.fromkeys(names)
        known = *_TRANSITION, "log_prob", "value", *(_MASKS if self.form.view.num_masked else ())
        for name in chosen:
            if name not in known:
                raise ValueError(f"names: {name!r} is none of {', '.join(known)}")
        view = self.form.view
        convert = view.to_stored if packed else view.inputs if as_inputs else view.decode
        return {name: self._transition(name, convert, as_inputs or packed) for name in chosen}

    def _transition(self, name: str, convert: Callable[[Array], Any], is_converted: bool) -> Any:
        """Return one field of `transitions`, (T * N, ...).

        `convert` gives rows of observations, (T * N, rows), the wanted form; `is_converted` says
        whether that is another form than that of `observations`.
        """
        if name.startswith("next_"):
            rows = self._next_rows()
            return self.form.view.masks(rows) if name in _MASKS else convert(rows)
        if name == "observation" and is_converted:
            return convert(self.records.observations.reshape(-1, self.form.rows))
        # Attributes have the names in the plural: `rewards`, but `terminated`, `truncated`.
        arrays: Any = getattr(self, name if name.endswith("ated") else f"{name}s")
        return each_part(lambda array: array.reshape(-1, *array.shape[2:]), arrays)

    def _next_rows(self) -> Array:
        """Return the rows of the observations to which the steps led, (T * N, rows)."""
        asarray, n = self._arrays.asarray, self.form.num_envs
        rows = self.records.observations.reshape(-1, self.form.rows)
        next_rows: Array = self._arrays.empty(rows.shape, rows.dtype)
        next_rows[:-n] = rows[n:]
        next_rows[-n:] = self.records.last.reshape(n, -1)
        if self._ends.size:
            next_rows[asarray(self._ends)] = asarray(self._final_rows)
        return next_rows


#: Attributes of a rollout that are computed at first use, and kept until it is overwritten.
_CACHED = frozenset(
    name for name, each in vars(Rollout).items() if isinstance(each, functools.cached_property)
) - {"_final_values_memory"}
