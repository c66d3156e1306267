"""What one step of a batch of environments returns, and what an algorithm sees of it."""

from typing import Any, NamedTuple

Nest = Any  # A tensor or array, or a structure of them as the space says.


class StepResult(NamedTuple):
    """Results of stepping every environment of a batch once.

    Attributes:
        obs: What to act on next: the first observation of a new episode where one ended,
            nest [B, ...].
        reward: Reward for the action, float32 [B].
        terminated: The world ended, bool [B].
        truncated: The episode was cut, as by a time limit, bool [B].
        next_obs: True next observation: the last one of its episode where one ended,
            nest [B, ...].
        valid: A real step happened, bool [B].
    """

    obs: Nest
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Nest
    valid: Any


class Transition(NamedTuple):
    """One real step of every environment, as an algorithm sees it.

    Attributes:
        obs: Observation that was acted on, nest [B, ...].
        action: Action that the environment received, nest [B, ...].
        reward: Reward for the action, float32 [B].
        terminated: The world ended, bool [B].
        truncated: The episode was cut, as by a time limit, bool [B].
        next_obs: True next observation, also where the episode ended, nest [B, ...].
        first: The episode began at this row, bool [B].
        valid: A real step happened; other rows take part in nothing, bool [B].
    """

    obs: Nest
    action: Nest
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Nest
    first: Any
    valid: Any
