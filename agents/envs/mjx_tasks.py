"""Tasks of this package on MJX, MuJoCo's physics in JAX."""

import pathlib
from typing import Any

import gymnasium
import mujoco
import numpy as np
from mujoco import mjx

from agents.envs.environment import Environment
from agents.envs.jax_bridge import from_jax
from agents.envs.jax_setup import jax
from agents.envs.registry import TaskError

SUBSTEPS = 5  # Steps of the physics in one of the task.
ACTION_COST = 0.1  # For the sum of squared actions.
START_NOISE = 0.1  # Of joints, rad or m, and of their speeds.


def make(name: str, max_episode_steps: int = 1000) -> Environment:
    """Make an environment.

    Args:
        name: half_cheetah.
        max_episode_steps: Time limit, steps.

    Raises:
        TaskError: There is no such task.
    """
    if name != 'half_cheetah':
        raise TaskError(f'There is no task mjx/{name}. There is mjx/half_cheetah.')
    return half_cheetah(max_episode_steps)


def half_cheetah(max_episode_steps: int = 1000) -> Environment:
    """Run forward: the model, the observations and the rewards of Gymnasium's HalfCheetah-v5.

    Contacts are solved by conjugate gradients with a sparse Jacobian, which need no linear algebra
    that TensorFlow lacks.

    Args:
        max_episode_steps: Time limit, steps.
    """
    jnp = jax.numpy
    model = _half_cheetah_model()
    start = jnp.float32(model.qpos0)
    physics, still = mjx.put_model(model), mjx.make_data(model)

    def observe(state: Any) -> Any:
        return jnp.concatenate([state['position'][1:], state['speed']])

    def reset(seed: Any) -> tuple[Any, Any]:
        place, speed = jax.random.split(seed)
        noise = jax.random.uniform(place, (model.nq,), minval=-START_NOISE, maxval=START_NOISE)
        state = {
            'position': start + noise,
            'speed': START_NOISE * jax.random.normal(speed, (model.nv,)),
            'acceleration': jnp.zeros(model.nv),  # From where the solver begins.
            'steps': jnp.int32(0),
        }
        return state, observe(state)

    def step(state: Any, action: Any, seed: Any) -> tuple[Any, ...]:
        del seed  # Nothing is random but the start.
        data = still.replace(
            qpos=state['position'],
            qvel=state['speed'],
            qacc_warmstart=state['acceleration'],
            ctrl=action,
        )
        data = jax.lax.fori_loop(0, SUBSTEPS, lambda _, data: mjx.step(physics, data), data)
        seconds = SUBSTEPS * model.opt.timestep
        forward = (data.qpos[0] - state['position'][0]) / seconds
        state = {
            'position': data.qpos,
            'speed': data.qvel,
            'acceleration': data.qacc_warmstart,
            'steps': state['steps'] + 1,
        }
        reward = forward - ACTION_COST * jnp.square(action).sum()
        truncated = state['steps'] >= max_episode_steps
        return state, observe(state), reward, jnp.zeros((), bool), truncated

    return from_jax(
        jax.vmap(reset),
        jax.vmap(step),
        gymnasium.spaces.Box(-np.inf, np.inf, (model.nq - 1 + model.nv,), np.float32),
        gymnasium.spaces.Box(-1.0, 1.0, (model.nu,), np.float32),
        'mjx/half_cheetah',
    )


def _half_cheetah_model() -> Any:
    """Load Gymnasium's model with a solver that is a program without calls of libraries."""
    assets = pathlib.Path(gymnasium.__file__).parent / 'envs' / 'mujoco' / 'assets'
    spec = mujoco.MjSpec.from_file(str(assets / 'half_cheetah.xml'))
    # Masses that its compiler scales make MuJoCo write a log into the working directory.
    mass, spec.compiler.settotalmass = spec.compiler.settotalmass, -1
    spec.option.solver = mujoco.mjtSolver.mjSOL_CG
    spec.option.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
    model = spec.compile()
    mujoco.mj_setTotalmass(model, mass)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model
