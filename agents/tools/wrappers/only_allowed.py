"""Replaces actions that a mask forbids."""

from typing import Any

import gymnasium
import numpy as np


class OnlyAllowed(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    """Replace actions that the last observation forbids by allowed ones.

    For whatever does not look at the mask, such as random actions or `check_env`. In the place of a
    forbidden value comes the next one that is allowed, after the highest the lowest; a mask that
    allows nothing is left out of account.
    """

    def __init__(self, env: gymnasium.Env, action_mask: str) -> None:
        """Wrap an environment.

        Args:
            env: Environment to wrap, with Dict observations, and actions that are Discrete or
                MultiDiscrete.
            action_mask: Key of the mask, which has one number for each value of an action, 0 for
                forbidden.

        Raises:
            ValueError: The observations have no such key, or the mask has another length.
            TypeError: The actions are of another kind.
        """
        gymnasium.utils.RecordConstructorArgs.__init__(self, action_mask=action_mask)
        super().__init__(env)
        space, seen = env.action_space, env.observation_space
        if isinstance(space, gymnasium.spaces.Discrete):
            self._sizes = np.array([space.n])
        elif isinstance(space, gymnasium.spaces.MultiDiscrete):
            self._sizes = space.nvec.reshape(-1)
        else:
            raise TypeError(f'Actions must be Discrete or MultiDiscrete to be masked, got {space}.')
        if not isinstance(seen, gymnasium.spaces.Dict) or action_mask not in seen.spaces:
            raise ValueError(
                f'The action_mask must be a key of a Dict space of observations, got '
                f'action_mask={action_mask!r} for {seen}.'
            )
        if seen[action_mask].shape != (self._sizes.sum(),):
            raise ValueError(
                f'The mask must have shape ({self._sizes.sum()},), one number for each value of an '
                f'action, got {seen[action_mask]}.'
            )
        self._key, self._mask = action_mask, np.ones(self._sizes.sum(), bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, and keep the mask."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._mask = np.array(obs[self._key]) != 0
        return obs, info

    def step(self, action: Any) -> Any:
        """Step with the action, or with one that is allowed."""
        result = self.env.step(self._allow(action))
        self._mask = np.array(result[0][self._key]) != 0
        return result

    def get_state(self) -> np.ndarray:
        """Return the mask of the next action."""
        return self._mask

    def set_state(self, state: np.ndarray) -> None:
        """Set the mask of the next action."""
        self._mask = np.array(state)

    def _allow(self, action: Any) -> Any:
        space: Any = self.action_space
        numbers = (np.asarray(action) - space.start).reshape(-1)
        masks = np.split(self._mask, np.cumsum(self._sizes)[:-1])
        for index, mask in enumerate(masks):
            allowed = np.flatnonzero(mask)
            if allowed.size:
                numbers[index] = allowed[np.searchsorted(allowed, numbers[index]) % allowed.size]
        numbers = numbers.reshape(space.shape) + space.start
        return numbers if space.shape else space.dtype.type(numbers)
