"""What a batch of environments is, wherever they are."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from agents.tools import spaces


class Arrays(NamedTuple):
    """Memory that a batch of environments reads its actions from and writes its results to.

    Attributes:
        action: Action for each environment, nest [B, ...].
        obs: What to act on next, nest [B, ...].
        last_obs: Last observation, valid in rows whose episode ended in this step, nest [B, ...].
        reward: Reward for the action, float32 [B].
        terminated: The world ended, bool [B].
        truncated: The episode was cut, bool [B].
        valid: A real step happened, bool [B].
    """

    action: Any
    obs: Any
    last_obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray


def make_arrays(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    num_envs: int,
    allocate: Callable[..., Any] = np.zeros,
) -> Arrays:
    """Make the memory of a batch; the order of allocations depends on the arguments only.

    Args:
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        num_envs: Number of environments.
        allocate: Function of shape and dtype that makes one array.

    Returns:
        Arrays of the batch.
    """
    batch = (num_envs,)
    return Arrays(
        action=spaces.zeros(action_space, batch, allocate),
        obs=spaces.zeros(observation_space, batch, allocate),
        last_obs=spaces.zeros(observation_space, batch, allocate),
        reward=allocate(batch, np.dtype(np.float32)),
        terminated=allocate(batch, np.dtype(bool)),
        truncated=allocate(batch, np.dtype(bool)),
        valid=allocate(batch, np.dtype(bool)),
    )


class Batch(Protocol):
    """What a `BatchEnv` is made of: `LocalBatch`, or `RemoteBatch` for those of another process.

    Attributes:
        num_envs: Number of environments.
        failures: How often they failed and were started anew.
    """

    num_envs: int
    failures: int

    @property
    def first_index(self) -> int:
        """Number of the first environment, for error messages; can be set."""

    @first_index.setter
    def first_index(self, value: int) -> None: ...

    @property
    def observation_space(self) -> spaces.Space:
        """Observation space of one environment."""

    @property
    def action_space(self) -> spaces.Space:
        """Action space of one environment."""

    @property
    def arrays(self) -> Arrays:
        """Results of the last reset or step; the next one overwrites them."""

    def reset_async(self, seeds: Sequence[int | None]) -> None:
        """Begin to reset all environments, with one seed for each."""

    def reset_wait(self) -> None:
        """Finish `reset_async`."""

    def step_async(self, action: Any) -> None:
        """Begin to step all environments with checked actions, dtype of the space [B, ...]."""

    def step_wait(self) -> bool:
        """Finish `step_async` and return whether any episode ended."""

    def call_async(self, kind: str, name: str, args: tuple, kwargs: dict) -> None:
        """Begin to do something with an attribute of each environment.

        Args:
            kind: 'call', 'get', 'set', 'get_state' or 'set_state'.
            name: Attribute of the environment or of one of its wrappers.
            args: Positional arguments of the call, or the one value to set, or all states.
            kwargs: Named arguments of the call.
        """

    def call_wait(self) -> tuple:
        """Finish `call_async` and return one result for each environment."""

    @staticmethod
    def close_all(batches: Any, timeout: float) -> list[Exception]:
        """Close several batches of this kind and return what their environments raised."""
