"""Check that the functions of an environment do what its spaces and their contract say."""

from typing import Any

import tensorflow as tf

from agents.envs.environment import Environment
from agents.tools import spaces
from agents.tools.transition import Nest


def check(environment: Environment, num_envs: int) -> None:
    """Trace both functions, which runs nothing, and compare shapes and dtypes.

    Args:
        environment: What to check.
        num_envs: Number of environments B.

    Raises:
        TypeError: A space is neither Box nor Discrete.
        ValueError: A shape, a dtype or a structure is not what it must be.
    """
    name = environment.name
    for what, space in (
        ('Observation space', environment.observation_space),
        ('Action space', environment.action_space),
    ):
        spaces.check_supported(space, what, 0)
    rows = (num_envs,)
    seed = tf.TensorSpec([num_envs, 2], tf.int32)
    state, obs = _trace(environment.reset, seed)
    wanted_obs = _specs(spaces.zeros(environment.observation_space, rows))
    _compare(f'{name}: observation of reset', obs, wanted_obs, 'its observation_space')
    action = _specs(spaces.zeros(environment.action_space, rows))
    results = _trace(environment.step, state, action, seed)
    if not isinstance(results, tuple | list) or len(results) != 5:
        raise ValueError(
            f'{name}: step must return state, obs, reward, terminated and truncated, got {results}.'
        )
    _compare(f'{name}: state of step', results[0], state, 'the state of reset')
    _compare(f'{name}: observation of step', results[1], wanted_obs, 'its observation_space')
    flag, number = tf.TensorSpec(rows, tf.bool), tf.TensorSpec(rows, tf.float32)
    for what, got, wanted in zip(
        ('reward', 'terminated', 'truncated'), results[2:], (number, flag, flag), strict=True
    ):
        _compare(f'{name}: {what} of step', got, wanted, 'one value per environment')


def _trace(function: Any, *specs: Nest) -> Nest:
    """Return shapes and dtypes of what a function returns."""
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return _specs(traced.structured_outputs)


def _specs(nest: Nest) -> Nest:
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), nest)


def _compare(what: str, got: Nest, wanted: Nest, reason: str) -> None:
    try:
        tf.nest.assert_same_structure(got, wanted)
    except (TypeError, ValueError):
        raise ValueError(
            f'{what} must have the structure of {reason}, {wanted}, got {got}.'
        ) from None
    for index, (x, y) in enumerate(zip(tf.nest.flatten(got), tf.nest.flatten(wanted), strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            part = f' (part {index})' if tf.nest.is_nested(wanted) else ''
            raise ValueError(
                f'{what}{part} must be {y.dtype.name} {list(y.shape)} as {reason}, got '
                f'{x.dtype.name} {x.shape.as_list()}.'
            )
