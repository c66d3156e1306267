"""Tasks of MuJoCo Playground, https://github.com/google-deepmind/mujoco_playground."""

import difflib
from typing import Any

import mujoco
from mujoco import mjx
from mujoco_playground import registry

from agents.envs.brax_tasks import with_time_limit
from agents.envs.environment import Environment
from agents.envs.registry import TaskError


def make(name: str, max_episode_steps: int = 0, **kwargs: Any) -> Environment:
    """Make an environment.

    Contacts are solved by conjugate gradients with a sparse Jacobian instead of by Newton's method:
    the same problem, but without linear algebra that TensorFlow lacks.

    Args:
        name: Name in Playground's registry, such as CartpoleBalance.
        max_episode_steps: Time limit, steps; 0: the task's own.
        **kwargs: Values of the task's config.

    Raises:
        TaskError: Playground has no such task, or one whose observations are not one array.
        ContractError: TensorFlow cannot run it.
    """
    if name not in registry.ALL_ENVS:
        close = difflib.get_close_matches(name, registry.ALL_ENVS) or registry.ALL_ENVS
        raise TaskError(f'Playground has no task {name!r}. There is {", ".join(close)}.')
    # Its other implementation of the physics runs on a GPU only.
    env = registry.load(name, config_overrides={'impl': 'jax', **kwargs})
    env.mj_model.opt.solver = mujoco.mjtSolver.mjSOL_CG
    env.mj_model.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
    env._mjx_model = mjx.put_model(env.mj_model, impl='jax')
    limit = max_episode_steps or registry.get_default_config(name).episode_length
    return with_time_limit(env, limit, f'playground/{name}')
