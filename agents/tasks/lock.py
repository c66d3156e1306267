"""A task whose actions are several choices at once."""

from typing import Any

import gymnasium
import numpy as np


class Lock(gymnasium.Env):
    """Turn all wheels of a combination lock to the right digits at once.

    The note beside the lock shows the digits, one too high each, and 0 for the highest. The reward
    of a step is the share of wheels that are right; then there is another note. An episode is
    truncated after 20 steps, and the highest score is 20.

    Observations: the note, MultiDiscrete. Actions: the digits, MultiDiscrete.
    """

    observation_space = gymnasium.spaces.MultiDiscrete([5, 5, 5])
    action_space = gymnasium.spaces.MultiDiscrete([5, 5, 5])
    _LENGTH = 20

    def __init__(self) -> None:
        self._digits = np.zeros(3, np.int64)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Write the first note."""
        super().reset(seed=seed)
        self._digits, self._time = self.np_random.integers(0, 5, 3), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Compare the digits, and write another note."""
        reward = float(np.mean(np.asarray(action) == self._digits))
        self._digits = self.np_random.integers(0, 5, 3)
        self._time += 1
        return self._observe(), reward, False, self._time >= self._LENGTH, {}

    def get_state(self) -> dict[str, Any]:
        """Return where the episode is."""
        return {'digits': self._digits, 'time': self._time}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._digits, self._time = state['digits'], state['time']

    def _observe(self) -> np.ndarray:
        return (self._digits + 1) % 5
