"""Environments that are no Python objects in a process: tensor programs."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from agents.envs.compiled_batch_env import CompiledBatchEnv
    from agents.envs.environment import Environment
    from agents.envs.jax_bridge import from_jax

# Lazily, since worker processes import the registry and must not import TensorFlow.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        'compiled_batch_env': ['CompiledBatchEnv'],
        'environment': ['Environment'],
        'jax_bridge': ['from_jax'],
    },
)
