"""Environments written in JAX: their functions become operations of TensorFlow."""

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import tensorflow as tf

from agents.envs.checking import ContractError
from agents.envs.environment import Environment
from agents.envs.jax_setup import jax, jax2tf
from agents.tools import spaces
from agents.tools.transition import Nest

_PROBE = 2  # Environments for which the functions are checked before it is known how many.

# Names of custom calls that TensorFlow's compiler handles itself: annotations, and operations that
# have no other form in a stored program.
_KNOWN_CALLS = re.compile(
    r'ApproxTopK|Sharding|SPMD\w+|shape_assertion|annotate_device_placement|(stablehlo|mhlo|chlo)\..*'
)


def from_jax(
    reset: Callable[[Any], Any],
    step: Callable[[Any, Any, Any], Any],
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    name: str = 'environment',
) -> Environment:
    """Make an environment of two pure functions in JAX, over a batch of B environments.

    They have the form of `Environment`, but for JAX's arrays:

        state, obs = reset(seed)
        state, obs, reward, terminated, truncated = step(state, action, seed)

    Each row of the seeds is a key for `jax.random`, so functions of one environment become these by
    `jax.vmap`. JAX computes in 32 bits unless told otherwise: what a space has in 64 bits, as
    `Discrete` does, is converted on the way in and out.

    Args:
        reset: Function of seeds, uint32 [B, 2]. Returns the state, any tree of arrays [B, ...], and
            the first observations, nest [B, ...].
        step: Function of the state, the actions, nest [B, ...], and fresh seeds, uint32 [B, 2].
            Returns the state, the next observations, reward, float32 [B], and terminated and
            truncated, bool [B].
        observation_space: Space of one environment's observation.
        action_space: Space of one environment's action.
        name: What to call it in errors.

    Returns:
        The environment, whose state is a tuple of the leaves of the state in JAX.

    Raises:
        ContractError: The state is no tree of arrays [B, ...] or does not keep its form, or the
            functions need what TensorFlow lacks.
    """
    flat = _FlatFunctions(reset, step, name)
    seed = jax.ShapeDtypeStruct((_PROBE, 2), 'uint32')
    action_spec = jax.tree.map(_narrow, spaces.zeros(action_space, (_PROBE,)))
    state_spec = jax.eval_shape(flat.reset, seed)[0]
    converted_reset = _convert(f'{name}: reset', flat.reset, seed)
    converted_step = _convert(f'{name}: step', flat.step, state_spec, action_spec, seed)

    def tensorflow_reset(seed: tf.Tensor) -> tuple[Nest, Nest]:
        state, obs = converted_reset(tf.bitcast(seed, tf.uint32))
        return state, _widen(obs, observation_space)

    def tensorflow_step(state: Nest, action: Nest, seed: tf.Tensor) -> tuple[Any, ...]:
        action = tf.nest.map_structure(lambda x, spec: tf.cast(x, spec.dtype), action, action_spec)
        state, obs, *others = converted_step(state, action, tf.bitcast(seed, tf.uint32))
        return (state, _widen(obs, observation_space), *others)

    return Environment(tensorflow_reset, tensorflow_step, observation_space, action_space, name)


class _FlatFunctions:
    """A user's functions with the state as a tuple of arrays; checks it whenever JAX traces."""

    def __init__(self, reset: Callable, step: Callable, name: str):
        self._reset, self._step, self._name = reset, step, name
        self._structure: Any = None  # Of the state; known after the first trace.

    def reset(self, seed: Any) -> tuple[tuple[Any, ...], Any]:
        state, obs = self._unpack('reset', self._reset(seed), ('state', 'obs'))
        self._structure = jax.tree.structure(state)
        return tuple(self._arrays('reset', state, len(seed)).values()), obs

    def step(self, leaves: tuple[Any, ...], action: Any, seed: Any) -> tuple[Any, ...]:
        before = jax.tree.unflatten(self._structure, leaves)
        parts = ('state', 'obs', 'reward', 'terminated', 'truncated')
        after, *others = self._unpack('step', self._step(before, action, seed), parts)
        arrays = self._arrays('step', after, len(seed))
        self._check_same(self._arrays('reset', before, len(seed)), arrays)
        if jax.tree.structure(after) != self._structure:
            raise ContractError(
                f'{self._name}: state of step must be of the same types as the state of reset, '
                f'{self._structure}, got {jax.tree.structure(after)}.'
            )
        return (tuple(arrays.values()), *others)

    def _unpack(self, what: str, results: Any, parts: tuple[str, ...]) -> Any:
        if not isinstance(results, tuple | list) or len(results) != len(parts):
            raise ContractError(
                f'{self._name}: {what} must return {", ".join(parts)}, got {results}.'
            )
        return results

    def _arrays(self, what: str, state: Any, rows: int) -> dict[str, Any]:
        """Return the leaves of a state by their paths, all of them arrays of one row each."""
        result = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(state):
            place = f'state{jax.tree_util.keystr(path)}'
            where = f'{self._name}: {place} of {what}'
            try:
                leaf = jax.numpy.asarray(leaf)
            except TypeError:
                raise ContractError(f'{where} must be an array, got {leaf!r}.') from None
            if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                raise ContractError(
                    f'{where} must be an array of numbers, got {leaf.dtype}. Keep '
                    'jax.random.key_data of a key.'
                )
            if leaf.shape[:1] != (rows,):
                raise ContractError(
                    f'{where} must have one row per environment, got {_describe(leaf)} for '
                    f'{rows} environments. Make it by jax.vmap, or leave what never changes out '
                    'of the state.'
                )
            result[place] = leaf
        return result

    def _check_same(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        for place in before | after:
            old, new = (
                _describe(leaves[place]) if place in leaves else 'nothing'
                for leaves in (before, after)
            )
            if old != new:
                raise ContractError(
                    f'{self._name}: {place} of step must be {old} as in reset, got {new}.'
                )


def _describe(array: Any) -> str:
    return f'{array.dtype} {list(array.shape)}'


def _convert(what: str, function: Callable, *specs: Any) -> Callable:
    """Make an operation of TensorFlow, after a check with arrays of these specs."""
    platforms = ['cpu', 'cuda'] if tf.config.list_physical_devices('GPU') else ['cpu']
    jitted = jax.jit(function)
    lowered = jitted.trace(*specs).lower(lowering_platforms=tuple(platforms))
    _check_calls(what, lowered.as_text())
    converted = jax2tf.convert(
        jitted, with_gradient=False, native_serialization_platforms=platforms
    )
    # JAX makes a program at each call of it, and TensorFlow calls it once for each batch size.
    return tf.function(converted, autograph=False)


def _check_calls(what: str, program: str) -> None:
    """Find what only JAX itself can run."""
    targets = sorted(set(re.findall(r'custom_call @"?([\w.$]+)', program)))
    foreign = [target for target in targets if not _KNOWN_CALLS.fullmatch(target)]
    if not foreign:
        return
    if any('callback' in target for target in foreign):
        advice = 'Leave out jax.debug.print and callbacks.'
    else:
        advice = 'Linear algebra has such; MJX needs none with solver=CG and jacobian=sparse.'
    raise ContractError(
        f'{what} must be a program that TensorFlow can run, got a call of {", ".join(foreign)}. '
        f'{advice} Otherwise run the task by engine=process, as a Gymnasium environment.'
    )


def _narrow(array: Any) -> Any:
    """Return the spec of an array in the bits that JAX has."""
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def _widen(obs: Nest, space: gymnasium.Space) -> Nest:
    """Give observations the 64 bits of their space; `checking` finds all other differences."""
    parts, wanted = tf.nest.flatten(obs), tf.nest.flatten(spaces.zeros(space))
    if len(parts) != len(wanted):
        return obs
    parts = [
        tf.cast(x, array.dtype) if x.dtype == tf.as_dtype(_narrow(array).dtype) else x
        for x, array in zip(parts, wanted, strict=True)
    ]
    return tf.nest.pack_sequence_as(obs, parts)
