"""JAX, of a version that goes with TensorFlow, and set up to go with it."""

from agents.envs.registry import check_jax

check_jax()

import jax  # noqa: E402
from jax.experimental import jax2tf  # noqa: E402

__all__ = ['jax', 'jax2tf']

if jax.config.jax_platforms is None:
    # It only makes programs here, and would take the memory of a GPU all the same.
    jax.config.update('jax_platforms', 'cpu')
