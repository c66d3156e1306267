"""From a config to environments that are not Python objects in processes."""

import importlib.util
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import gymnasium

from agents.envs.environment import Environment
from agents.envs.registry import (
    JAX_LIBRARIES,
    JAX_TASKS,
    NATIVE,
    TaskError,
    check_jax,
    in_jax,
    native,
)
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError, import_object

if TYPE_CHECKING:
    from agents.tools import InGraphBatchEnv


def check(config: Config) -> None:
    """Find mistakes before any environment is made.

    Raises:
        UserError: The engine has no such task, takes no wrappers, or is not installed.
    """
    engine, task = config.engine, config.env
    if config.wrappers:
        raise UserError(
            f'Wrappers must come with engine=process, got engine={engine} and '
            f'wrappers={list(config.wrappers)}. Leave one of them out.'
        )
    # EnvPool has names of its own, and says itself which of them were meant.
    if engine == 'envpool':
        if importlib.util.find_spec('envpool') is None:
            raise UserError(
                "The engine envpool must be installed: pip install 'batch-agents[envpool]'."
            )
        return
    if _is_own(config):
        _import_function(task)
    elif engine not in (having := engines_of(task)):
        raise UserError(
            f'The engine {engine} has no task {task!r}. '
            + (f'Engines that have it: {", ".join(having)}.' if having else _rule(engine))
        )
    if engine == 'jax':
        try:
            check_jax('' if _is_own(config) else _library(task))
        except ImportError as error:
            raise UserError(f'The engine jax cannot be used. {error}') from None


def engines_of(task: str) -> list[str]:
    """Return the engines that have a task of Gymnasium's registry, of this package or of a library.

    Args:
        task: Id, or `library/name`; whether the library has the name, it says itself.
    """
    spec = gymnasium.registry.get(task)
    having = {
        'process': spec is not None,
        'tensorflow': task in NATIVE,
        'jax': _library(task) in JAX_LIBRARIES,
        'vector': spec is not None and spec.vector_entry_point is not None,
    }
    return [engine for engine, has in having.items() if has]


def make_batch(config: Config, num_envs: int) -> 'InGraphBatchEnv':
    """Make a batch of the config's environments by its engine.

    Args:
        config: Says which task, and by which engine.
        num_envs: Number of environments.

    Raises:
        UserError: The engine has no such task, or cannot run it.
    """
    from agents import tools  # Not above: this imports TensorFlow.
    from agents.envs.checking import ContractError
    from agents.envs.compiled_batch_env import CompiledBatchEnv
    from agents.envs.envpool_batch import make_envpool
    from agents.envs.vector_env import VectorBatchEnv

    check(config)
    if config.engine in ('tensorflow', 'jax'):
        compiles = config.compile in ('auto', 'update')
        try:
            return CompiledBatchEnv(_make_environment(config), num_envs, compiles)
        except ContractError as error:
            raise UserError(str(error)) from None
    if config.engine == 'envpool':
        try:
            pool = make_envpool(config.env, num_envs, config.seed, **config.env_kwargs)
        except ValueError as error:
            raise UserError(str(error)) from None
        return tools.InGraphBatchEnv(pool)
    vector_env = gymnasium.make_vec(
        config.env, num_envs, vectorization_mode='vector_entry_point', **config.env_kwargs
    )
    return tools.InGraphBatchEnv(VectorBatchEnv(vector_env))


def _make_environment(config: Config) -> Environment:
    """Make an environment that is a tensor program."""
    try:
        if _is_own(config):
            environment = _import_function(config.env)(**config.env_kwargs)
        else:
            make = native if config.engine == 'tensorflow' else in_jax
            environment = make(config.env, **config.env_kwargs)
    except TaskError as error:
        raise UserError(str(error)) from None
    if not isinstance(environment, Environment):
        raise UserError(
            f'The function {config.env} must return an agents.envs.Environment, got '
            f'{type(environment).__name__}.'
        )
    return environment


def _import_function(path: str) -> Callable[..., Environment]:
    """Import a user's function that makes an environment.

    Its annotation is asked for since configs also come with other people's runs, and could name any
    function that there is, with arguments.

    Raises:
        UserError: There is no such function, or it does not say that it makes an environment.
    """
    function = import_object(path, 'environment')
    known = callable(function) and inspect.get_annotations(function, eval_str=True)
    if not known or known.get('return') is not Environment:
        raise UserError(
            f'The function {path} must be annotated to return an environment, '
            'def NAME(…) -> agents.envs.Environment, so that no config can call anything else.'
        )
    return function


def _is_own(config: Config) -> bool:
    """Whether the task is a user's function, written module:name."""
    return config.engine in ('tensorflow', 'jax') and ':' in config.env


def _library(task: str) -> str:
    return JAX_TASKS.get(task, task).partition('/')[0]


def _rule(engine: str) -> str:
    """Say how tasks of an engine are written."""
    return {
        'tensorflow': f'It has {", ".join(NATIVE)}, and your own as module:name.',
        'jax': f'Write library/name with one of {", ".join(JAX_LIBRARIES)}, or your own as '
        'module:name.',
    }.get(engine, '')
