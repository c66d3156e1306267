"""A task whose observations are a Dict."""

from typing import Any

import gymnasium
import numpy as np


class Target(gymnasium.Env):
    """Move a point on a square to a target, and stay there.

    The reward of a step is minus the distance after it, so 0 is the highest score. An episode is
    truncated after 50 steps.

    Observations: `position` and `target`, float32 [2] each, in [-1, 1]. Actions: velocity, float32
    [2]; a tenth of it is added to the position in a step.
    """

    observation_space = gymnasium.spaces.Dict(
        position=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        target=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    _STEP, _LENGTH = np.float32(0.1), 50

    def __init__(self) -> None:
        self._position = self._target = np.zeros(2, np.float32)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Draw both places."""
        super().reset(seed=seed)
        self._position, self._target = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Move, at most to the edge."""
        velocity = np.clip(np.asarray(action, np.float32), -1, 1)
        self._position = np.clip(self._position + self._STEP * velocity, -1, 1)
        self._time += 1
        reward = -float(np.linalg.norm(self._target - self._position))
        return self._observe(), reward, False, self._time >= self._LENGTH, {}

    def get_state(self) -> dict[str, Any]:
        """Return where the episode is."""
        return {'position': self._position, 'target': self._target, 'time': self._time}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._position, self._target = state['position'], state['target']
        self._time = state['time']

    def _observe(self) -> dict[str, np.ndarray]:
        return {'position': self._position.copy(), 'target': self._target.copy()}
