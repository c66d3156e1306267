"""What an environment that is a tensor program consists of: two pure functions and two spaces."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium

from agents.tools.transition import Nest


@dataclasses.dataclass(frozen=True)
class Environment:
    """A batch of environments as two pure functions in TensorFlow.

    There is one form, over a batch, with a seed for each of its B environments:

        state, obs = reset(seed)
        state, obs, reward, terminated, truncated = step(state, action, seed)

    Row i of the results depends on row i of the arguments only. Nothing is reset in `step`: the
    batch replaces the rows whose episodes ended. A time limit is the environment's own, as a
    counter in its state.

    Attributes:
        reset: Function of seeds, int32 [B, 2]. Returns the state, nest [B, ...], and the first
            observations, nest [B, ...].
        step: Function of the state, the actions, nest [B, ...], and fresh seeds, int32 [B, 2].
            Returns the state, the next observations, reward, float32 [B], and terminated and
            truncated, bool [B].
        observation_space: Space of one environment's observation.
        action_space: Space of one environment's action.
        name: What to call it in errors.
    """

    reset: Callable[[Any], tuple[Nest, Nest]]
    step: Callable[[Nest, Nest, Any], tuple[Nest, Nest, Any, Any, Any]]
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    name: str = 'environment'
