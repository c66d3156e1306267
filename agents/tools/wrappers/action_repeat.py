"""Repeats each action for several steps of the environment."""

from typing import Any, SupportsFloat

import gymnasium


class ActionRepeat(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    """Repeat each action until `amount` steps are made or the episode ends.

    The reward is the sum over the repeated steps; observation, flags and info are those of the last
    one.
    """

    def __init__(self, env: gymnasium.Env, amount: int) -> None:
        """Wrap an environment.

        Args:
            env: Environment to wrap.
            amount: Steps of `env` for each action, at least 1.

        Raises:
            ValueError: The amount is below 1.
            TypeError: The amount is not an integer.
        """
        if not isinstance(amount, int):
            raise TypeError(f'Action repeat must be an integer, got amount={amount!r}.')
        if amount < 1:
            raise ValueError(f'Action repeat must be at least 1, got amount={amount}.')
        gymnasium.utils.RecordConstructorArgs.__init__(self, amount=amount)
        super().__init__(env)
        self._amount = amount

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Repeat the action.

        Args:
            action: Action for the wrapped environment.

        Returns:
            Last observation, sum of rewards, terminated, truncated, and last info.
        """
        total: Any = 0.0
        for _ in range(self._amount):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total = total + reward
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
