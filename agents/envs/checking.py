"""Check that the functions of an environment do what its spaces and their contract say."""

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.envs.environment import Environment
from agents.tools import memory, spaces
from agents.tools.transition import Nest


class ContractError(ValueError):
    """A function of an environment is not what it must be; the message is all that one needs."""


def check(environment: Environment, num_envs: int, jit_compile: bool) -> None:
    """Trace both functions, which runs nothing, and compare shapes and dtypes.

    Args:
        environment: What to check.
        num_envs: Number of environments B.
        jit_compile: Whether XLA must be able to compile them.

    Raises:
        TypeError: Batches cannot hold a space.
        ContractError: A shape, a dtype or a structure is not what it must be, or XLA lacks an
            operation.
        MemoryError: There are more environments than memory holds.
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
    # At least: what is kept, what a step makes of it, and what a reset would.
    memory.check(
        tf.nest.flatten((state, obs)), 3, f'{num_envs:,} environments', 'Use fewer: num_envs.'
    )
    wanted_obs = _specs(spaces.zeros(environment.observation_space, rows))
    _compare(f'{name}: observation of reset', obs, wanted_obs, 'its observation_space')
    action = _specs(spaces.zeros(environment.action_space, rows))
    results = _trace(environment.step, state, action, seed)
    if not isinstance(results, tuple | list) or len(results) != 5:
        raise ContractError(
            f'{name}: step must return state, obs, reward, terminated and truncated, got {results}.'
        )
    _compare(f'{name}: state of step', results[0], state, 'the state of reset')
    _compare(f'{name}: observation of step', results[1], wanted_obs, 'its observation_space')
    flag, number = tf.TensorSpec(rows, tf.bool), tf.TensorSpec(rows, tf.float32)
    for what, got, wanted in zip(
        ('reward', 'terminated', 'truncated'), results[2:], (number, flag, flag), strict=True
    ):
        _compare(f'{name}: {what} of step', got, wanted, 'one value per environment')
    if jit_compile:
        _check_compiles(f'{name}: reset', environment.reset, seed)
        _check_compiles(f'{name}: step', environment.step, state, action, seed)


def _check_compiles(what: str, function: Callable, *specs: Nest) -> None:
    """Lower a function to XLA's language, a tenth of a second, in which an operation may fail."""

    def flat(*leaves: tf.Tensor) -> list[tf.Tensor]:
        return tf.nest.flatten(function(*tf.nest.pack_sequence_as(specs, leaves)))

    lowered = tf.function(flat, autograph=False, jit_compile=True)
    try:
        lowered.experimental_get_compiler_ir(*tf.nest.flatten(specs))(stage='hlo')
    except ValueError as error:  # TensorFlow's own, of many lines.
        raise ContractError(
            f'{what} must be a program that XLA can compile, but {_explain(str(error))}. Use other '
            'operations, or run it uncompiled: CompiledBatchEnv(…, jit_compile=False), or '
            '--compile=minibatch when training.'
        ) from None


def _explain(text: str) -> str:
    """Find in an error of the compiler which operation it is about, and where that was made."""
    if lacking := re.search(r'unsupported operations.*? on \w+: (\w+)', text):
        problem = f'XLA has no operation {lacking[1]}'
    else:
        problem = re.sub(r".*?HLO text: '", '', text).splitlines()[0].rstrip('. ')
    places = re.findall(r'File (".*", line \d+, in \w+)', text)
    return f'{problem}, made in {places[-1]}' if places else problem


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
        raise ContractError(
            f'{what} must have the structure of {reason}, {wanted}, got {got}.'
        ) from None
    for index, (x, y) in enumerate(zip(tf.nest.flatten(got), tf.nest.flatten(wanted), strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            part = f' (part {index})' if tf.nest.is_nested(wanted) else ''
            raise ContractError(
                f'{what}{part} must be {y.dtype.name} {list(y.shape)} as {reason}, got '
                f'{x.dtype.name} {x.shape.as_list()}.'
            )
