"""Tasks of Brax, https://github.com/google/brax."""

from typing import Any

import gymnasium
import numpy as np
from brax import envs

from agents.envs.environment import Environment
from agents.envs.jax_bridge import from_jax
from agents.envs.jax_setup import jax
from agents.envs.registry import TaskError


def make(
    name: str, max_episode_steps: int = 1000, backend: str = 'spring', **kwargs: Any
) -> Environment:
    """Make an environment.

    Args:
        name: Name in Brax's registry, such as ant.
        max_episode_steps: Time limit, steps.
        backend: Physics: spring, positional, generalized or mjx.
        **kwargs: Other arguments of the task.

    Raises:
        TaskError: Brax has no such task.
        ContractError: TensorFlow cannot run it; backend=generalized, for one, needs linear algebra.
    """
    try:
        env = envs.get_environment(name, backend=backend, **kwargs)
    except KeyError:
        raise TaskError(f'Brax has no task {name!r}.') from None
    return with_time_limit(env, max_episode_steps, f'brax/{name}')


def with_time_limit(env: Any, max_episode_steps: int, name: str) -> Environment:
    """Make an environment of an object with the interface of `brax.envs.Env`.

    Args:
        env: Has `reset(key)` and `step(state, action)`, whose states have obs, reward and done.
        max_episode_steps: Time limit, steps.
        name: What to call it in errors.

    Raises:
        TaskError: Its observations are not one array.
        ContractError: TensorFlow cannot run it.
    """
    size = env.observation_size
    if not isinstance(size, int):
        raise TaskError(f'{name}: observations must be one array, got {size}.')

    def reset(seed: Any) -> tuple[Any, Any]:
        state = env.reset(seed)
        return (state, jax.numpy.int32(0)), state.obs

    def step(state: Any, action: Any, seed: Any) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start, or has a key in its state.
        state, steps = env.step(state[0], action), state[1] + 1
        terminated, truncated = state.done > 0.5, steps >= max_episode_steps
        return (state, steps), state.obs, state.reward, terminated, truncated

    return from_jax(
        jax.vmap(reset),
        jax.vmap(step),
        gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32),
        gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32),
        name,
    )
