"""Tasks of gymnax, https://github.com/RobertTLange/gymnax, version 1."""

import dataclasses
import difflib
from typing import Any

import gymnasium
import gymnax
import numpy as np

from agents.envs.environment import Environment
from agents.envs.jax_bridge import from_jax
from agents.envs.jax_setup import jax
from agents.envs.registry import TaskError


def make(name: str, **kwargs: Any) -> Environment:
    """Make an environment.

    Args:
        name: Name in gymnax's registry.
        **kwargs: Fields of the environment's parameters, such as `max_steps_in_episode`, and
            arguments of `gymnax.make`.

    Raises:
        TaskError: gymnax has no such task, or is of a version before 1, where a time limit could
            not be told from the world's end.
    """
    if name not in gymnax.registered_envs:
        close = difflib.get_close_matches(name, gymnax.registered_envs) or gymnax.registered_envs
        raise TaskError(f'gymnax has no task {name!r}. There is {", ".join(close)}.')
    _, params = gymnax.make(name)
    fields = {field.name for field in dataclasses.fields(params)}
    env, params = gymnax.make(name, **{k: v for k, v in kwargs.items() if k not in fields})
    params = params.replace(**{k: v for k, v in kwargs.items() if k in fields})
    if not hasattr(env, 'is_truncated'):
        raise TaskError("gymnax must be of version 1 or later: pip install -U 'gymnax>=1'.")
    observation_space = to_gymnasium(env.observation_space(params))

    def reset(seed: Any) -> tuple[Any, Any]:
        obs, state = env.reset_env(seed, params)
        return state, obs.astype(observation_space.dtype)

    def step(state: Any, action: Any, seed: Any) -> tuple[Any, ...]:
        # Unlike `env.step`, this one resets nothing.
        obs, state, reward, terminated, _ = env.step_env(seed, state, action, params)
        truncated = env.is_truncated(state, params)
        obs, reward = obs.astype(observation_space.dtype), jax.numpy.float32(reward)
        return state, obs, reward, jax.numpy.bool_(terminated), jax.numpy.bool_(truncated)

    return from_jax(
        jax.vmap(reset),
        jax.vmap(step),
        observation_space,
        to_gymnasium(env.action_space(params)),
        f'gymnax/{name}',
    )


def to_gymnasium(space: Any) -> gymnasium.Space:
    """Make Gymnasium's space of gymnax's; the largest float stands for no bound there.

    Args:
        space: Box or Discrete of gymnax.

    Raises:
        TaskError: The space is of another kind.
    """
    kind = type(space).__name__
    if kind == 'Discrete':
        return gymnasium.spaces.Discrete(int(space.n))
    if kind != 'Box':
        raise TaskError(f'A task of gymnax must have spaces Box or Discrete, got {kind}.')
    dtype = np.dtype(space.dtype)
    low, high = (np.broadcast_to(np.asarray(x), space.shape) for x in (space.low, space.high))
    if dtype.kind == 'f':
        largest = np.finfo(dtype).max
        low, high = np.where(low <= -largest, -np.inf, low), np.where(high >= largest, np.inf, high)
    return gymnasium.spaces.Box(low.astype(dtype), high.astype(dtype), space.shape, dtype)
