"""A task for memory."""

from typing import Any

import gymnasium
import numpy as np


class Recall(gymnasium.Env):
    """Shows one of several cues, then noise, and then asks which one it was.

    The reward of the answer is 1 if it is right, else 0; there is no other. A policy without memory
    answers by chance: its mean score is at most 1 / cues.

    step           0          1 … delay      delay + 1
    observation    cue, 0     noise, 0       zeros, 1      the last number says that it asks
    reward         -          0              0 …           for the action of the last step

    Observations: float32 [cues + 1]. Actions: one of the cues.
    """

    def __init__(self, cues: int = 4, delay: int = 8):
        """Set the difficulty.

        Args:
            cues: Number of different cues, >= 2.
            delay: Steps of noise between cue and question, >= 0.

        Raises:
            ValueError: A number is too small.
        """
        if cues < 2 or delay < 0:
            raise ValueError(
                f'Recall needs at least 2 cues and no negative delay, got {cues=}, {delay=}.'
            )
        self.observation_space = gymnasium.spaces.Box(-1, 1, (cues + 1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(cues)
        self._cues, self._delay = cues, delay
        self._cue = self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a cue."""
        super().reset(seed=seed)
        self._cue, self._time = int(self.np_random.integers(self._cues)), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go on; the action counts only where it is asked."""
        asked = self._time == self._delay + 1
        reward = float(asked and int(action) == self._cue)
        self._time += 1
        return self._observe(), reward, asked, False, {}

    def get_state(self) -> dict[str, int]:
        """Return where the episode is."""
        return {'cue': self._cue, 'time': self._time}

    def set_state(self, state: dict[str, int]) -> None:
        """Go on from a state."""
        self._cue, self._time = state['cue'], state['time']

    def _observe(self) -> np.ndarray:
        obs = np.zeros(self._cues + 1, np.float32)
        if self._time == 0:
            obs[self._cue] = 1
        elif self._time <= self._delay:
            obs[:-1] = self.np_random.uniform(-1, 1, self._cues)
        else:
            obs[-1] = 1
        return obs
