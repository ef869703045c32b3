"""Policies by networks, run outside of rollouts: for observations, and for sequences of them.

"Inputs" are observations as networks get them, (..., num_inputs) float32. "States" are the
recurrent states of networks with memory, a row for each environment.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.contract.policies import Array
from rlcpu.envs.contract.unfit import refuse_policy
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.kernels.checks import as_numbers
from rlcpu.nn.network.graph import Network
from rlcpu.nn.network.scaling import Scaling


class RunsNetworks:
    """Base of policies by networks, with or without memory.

    Attributes:
        view: of observations.
        observation_mean, observation_scale, observation_limit: (observation_size,) float32, and ()
            float32: networks get (observation - mean) * scale, within +-limit.
    """

    view: ObservationView
    observation_mean: Array
    observation_scale: Array
    observation_limit: Array

    @property
    def scaling(self) -> Scaling:
        """Return the arrays by which the networks get observations scaled."""
        return Scaling(self.observation_mean, self.observation_scale, self.observation_limit)

    def networks(self) -> dict[str, Network]:
        """Return the networks by name, "policy" first."""
        raise NotImplementedError

    def _acting(self, name: str) -> Any:
        """Return a network, by its name, ready to act with its present parameters."""
        raise NotImplementedError

    @property
    def state_sizes(self) -> dict[str, int]:
        """Return the size of each network's recurrent state by its name, 0 without memory."""
        return {name: network.state_size for name, network in self.networks().items()}

    @functools.cached_property
    def mark(self) -> int:
        """Return a number that identifies the recurrent states of this policy and its copies.

        It is random, and 0 without memory.
        """
        return secrets.randbits(62) + 1 if any(self.state_sizes.values()) else 0

    def initial_state(self, num_envs: int) -> Array:
        """Return the state of a policy with memory before episodes, zeros (num_envs, state_size).

        It is what the network "policy" remembers; that of a value has a memory of its own.
        """
        return np.zeros((num_envs, self.state_sizes["policy"]), np.float32)

    @property
    def _num_read(self) -> int:
        """Return how many outputs of the network "policy" the head reads, the first ones."""
        raise NotImplementedError

    def outputs(
        self,
        observations: npt.ArrayLike,
        state: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
    ) -> Any:
        """Return the outputs that the head reads, such as logits (n, num_actions) or means.

        Args:
            observations: (n, observation_size), of n environments.
            state: (n, state_size) of a policy with memory, from `initial_state` or the last call.
            starts: (n,) bools, where an episode begins, and the state counts as 0; None for
                nowhere.

        Returns:
            The outputs; of a policy with memory these, and the state afterwards.

        Raises:
            ValueError: observations or a state have another shape, or the state is missing.
            FloatingPointError: observations, parameters or outputs are NaN or infinite.
        """
        if not np.isfinite(getattr(self, "log_std", 0.0)).all():
            refuse_policy(self, "actions that are not finite")
        outputs, after = self._run("policy", observations, state, starts)
        outputs = outputs[:, : self._num_read]
        return (outputs, after) if self.state_sizes["policy"] else outputs

    def _run(
        self, name: str, observations: npt.ArrayLike, state: Any = None, starts: Any = None
    ) -> tuple[Array, Array]:
        """Return all outputs (n, any) of a network, and its state (n, any) afterwards.

        `name` is that of the network; the other arguments are those of `outputs`.
        """
        inputs, size = as_inputs(observations, self.view), self.view.num_inputs
        if not np.isfinite(inputs).all():
            place = np.argwhere(~np.isfinite(inputs))[0].tolist()
            number = inputs[tuple(place)]
            raise FloatingPointError(f"observations{place}={number}: expected finite numbers")
        acting = self._acting(name)
        mean, scale, _ = scaling = self.scaling
        if not mean.size == scale.size == size:
            raise ValueError(
                f"policy.observation_mean has shape {mean.shape}, policy.observation_scale "
                f"{scale.shape}: expected ({size},)"
            )
        states, begins = check_state(state, starts, len(inputs), self.state_sizes[name])
        outputs = acting.outputs(scaling.apply(inputs), states, begins)  # overwrites `states`
        if not np.isfinite(outputs).all():
            refuse_policy(self, "outputs that are not finite")
        return outputs, states


def check_limit(value: Any) -> Array:
    """Return the limit of a policy's observations as an array () of its own, float32.

    Anything but one number above 0, or infinity, is a TypeError or ValueError.
    """
    with np.errstate(over="ignore"):
        limit = np.array(as_numbers("policy.observation_limit", value), np.float32)
    if limit.shape != () or not limit > 0:
        raise ValueError(f"policy.observation_limit={value!r}: expected a number above 0, or inf")
    return limit


def run_sequences(
    policy: RunsNetworks, name: str, inputs: Array, states: Array, starts: Array | None = None
) -> Array:
    """Return all outputs (T, n, any) of one of a policy's networks, by its name, for sequences.

    Args:
        policy: has the networks.
        name: of the network.
        inputs: (T, n, observation_size).
        states: (n, any), of all networks before the sequences; see `Rollout.states`.
        starts: (T, n) bools, where an episode begins; None for nowhere.
    """
    network, scaled = policy.networks()[name], policy.scaling.apply(inputs)
    if network.state_size:
        outputs, _ = network.outputs(scaled, states_of(policy, name, states), starts)
    else:
        outputs = network.outputs(scaled.reshape(-1, scaled.shape[-1]))
    if isinstance(outputs, dict):  # several outputs by name
        outputs = np.concatenate(list(outputs.values()), axis=-1)
    return outputs.reshape(*inputs.shape[:2], -1)


def states_of(policy: RunsNetworks, name: str, states: Array) -> Array:
    """Return the columns of a policy's states, (n, any), that belong to one of its networks."""
    begin = 0
    for key, size in policy.state_sizes.items():
        if key == name:
            return states[:, begin : begin + size]
        begin += size
    raise KeyError(name)


def check_state(state: Any, starts: Any, count: int, size: int) -> tuple[Array, Array | None]:
    """Return a copy of the states of `count` environments, and where episodes begin, after checks.

    A state is (count, size), or None without memory; `starts` are (count,) bools, or None. Raises
    ValueError for another shape or a missing state.
    """
    if size == 0 and state is not None:
        raise ValueError("state: the policy has no memory, expected None")
    if state is None and size:
        raise ValueError(
            f"state: the policy has memory, expected an array ({count}, {size}), such as "
            f"policy.initial_state({count})"
        )
    rows = np.zeros((count, 0)) if state is None else as_numbers("state", state)
    if rows.shape != (count, size):
        raise ValueError(f"state has shape {rows.shape}: expected ({count}, {size})")
    begins = None if starts is None else np.asarray(starts)
    if begins is not None and begins.shape != (count,):
        raise ValueError(f"starts have shape {begins.shape}: expected ({count},)")
    return rows.astype(np.float32), begins


def as_inputs(observations: Any, view: ObservationView) -> Array:
    """Return one observation, or several, as inputs of networks, (n, num_inputs) float32.

    They are (n, ...) or one, as an environment returns them; of a `Dict` a mapping of these; or
    already (n, num_inputs).

    Raises:
        TypeError, ValueError: another kind or shape, other parts, or a choice outside of its space.
    """
    if isinstance(observations, Mapping):
        return _parts_as_inputs(observations, view)
    array, size = _as_single("observations", observations), view.num_inputs
    shape = view.shape if view.kind != "group" else (size,)  # of one observation
    is_one, are_several = array.shape == shape, array.ndim > 0 and array.shape[1:] == shape
    if view.kind in ("choice", "choices") and (is_one or are_several):
        return _check_choices(array.reshape(-1, *shape), view)
    if is_one or array.shape == (size,):
        return array.reshape(1, size)
    if are_several or array.shape[1:] == (size,):
        return array.reshape(-1, size)
    expected = ", ".join(map(str, ("n", *shape)))
    comma = "," if not shape else ""
    raise ValueError(f"observations have shape {array.shape}: expected ({expected}{comma})")


def _as_single(name: str, values: Any) -> Array:
    """Return numbers as a float32 array, the same one if it is; `name` is theirs in errors."""
    if type(values) is np.ndarray and values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):
        return as_numbers(name, values).astype(np.float32)


def _check_choices(chosen: Array, view: ObservationView) -> Array:
    """Return choices (n, ...) as zeros and ones; raise ValueError if one is out of range.

    Choice k of an observation is one of `view.size[k]` ints from `view.start[k]` on.
    """
    low, rows = np.array(view.start), chosen.reshape(len(chosen), -1)
    high = low + np.array(view.size) - 1
    is_bad = ~((rows >= low) & (rows <= high) & (rows % 1 == 0))
    if is_bad.any():
        k = int(np.argwhere(is_bad)[0, 1])
        raise ValueError(f"observations={chosen}: expected ints {low[k]} to {high[k]}")
    flat: Array = view.flatten(chosen.astype(np.int64))
    return flat


def _parts_as_inputs(observations: Mapping[str, Any], view: ObservationView) -> Array:
    """Return observations of a `Dict` as inputs.

    Raises:
        TypeError, ValueError: parts are missing, or one, as named, has another dtype or shape.
    """
    names = [part.name for part in view.parts]
    if not names or set(observations) != set(names):
        expected = f"the parts {', '.join(names)}" if names else "an array"
        received = ", ".join(map(str, observations))
        raise ValueError(f"observations have the parts {received}: expected {expected}")
    rows = []
    for name, _, part in view.parts:
        try:
            rows.append(as_inputs(observations[name], part))
        except (TypeError, ValueError) as error:
            what = str(error).replace("observations", f"observations[{name!r}]", 1)
            raise type(error)(what.replace("] have shape", "] has shape")) from None
    counts = {name: len(each) for name, each in zip(names, rows, strict=True)}
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"observations have parts of {sizes} environments: expected as many")
    return np.concatenate(rows, axis=1)


def is_one(observations: Any, view: ObservationView) -> bool:
    """Tell whether these are the observation of one environment, not of several."""
    if isinstance(observations, Mapping) and view.kind == "group":
        name, _, part = view.parts[0]
        return np.ndim(observations.get(name, ())) == len(part.shape)
    return np.ndim(observations) == (1 if view.kind == "group" else len(view.shape))
