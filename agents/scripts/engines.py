"""From a config to environments that are not Python objects in processes."""

import importlib.util
from typing import TYPE_CHECKING

import gymnasium

from agents.envs.registry import NATIVE, native
from agents.scripts.configs import Config
from agents.scripts.mistakes import UserError

if TYPE_CHECKING:
    from agents.tools import InGraphBatchEnv


def check(config: Config) -> None:
    """Find mistakes before any environment is made.

    Raises:
        UserError: The engine has no such task, or takes no wrappers.
    """
    if config.wrappers:
        raise UserError(
            f'Wrappers must come with engine=process, got engine={config.engine} and '
            f'wrappers={list(config.wrappers)}. Leave one of them out.'
        )
    # EnvPool has names of its own, and says itself which of them were meant.
    if config.engine == 'envpool':
        if importlib.util.find_spec('envpool') is None:
            raise UserError(
                "The engine envpool must be installed: pip install 'batch-agents[envpool]'."
            )
        return
    having = engines_of(config.env)
    if config.engine not in having:
        raise UserError(
            f'The engine {config.engine} has no task {config.env!r}. '
            + (f'Engines that have it: {", ".join(having)}.' if having else '')
        )


def engines_of(task: str) -> list[str]:
    """Return the engines that have a task of Gymnasium's registry or of this package.

    Args:
        task: Id.
    """
    spec = gymnasium.registry.get(task)
    having = {
        'process': spec is not None,
        'tensorflow': task in NATIVE,
        'vector': spec is not None and spec.vector_entry_point is not None,
    }
    return [engine for engine, has in having.items() if has]


def make_batch(config: Config, num_envs: int) -> 'InGraphBatchEnv':
    """Make a batch of the config's environments by its engine.

    Args:
        config: Says which task, and by which engine.
        num_envs: Number of environments.

    Raises:
        UserError: The engine has no such task.
    """
    from agents import tools  # Not above: this imports TensorFlow.
    from agents.envs.compiled_batch_env import CompiledBatchEnv
    from agents.envs.envpool_batch import make_envpool
    from agents.envs.vector_env import VectorBatchEnv

    check(config)
    if config.engine == 'tensorflow':
        return CompiledBatchEnv(native(config.env, **config.env_kwargs), num_envs)
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
