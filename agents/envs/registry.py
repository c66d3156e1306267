"""Which tasks exist as tensor programs, in TensorFlow or in JAX."""

import importlib
import importlib.metadata
import importlib.util
from typing import Any

from agents.envs.environment import Environment

NATIVE = {
    'Acrobot-v1': 'acrobot',
    'CartPole-v1': 'cart_pole',
    'MountainCar-v0': 'mountain_car',
    'MountainCarContinuous-v0': 'mountain_car_continuous',
    'Pendulum-v1': 'pendulum',
}

# Libraries of tasks in JAX, with the module that each is imported as. A task is library/name; those
# of Gymnasium that gymnax has go by Gymnasium's names as well.
JAX_LIBRARIES = {
    'brax': 'brax',
    'gymnax': 'gymnax',
    'mjx': 'mujoco.mjx',
    'playground': 'mujoco_playground',
}
JAX_TASKS = {task: f'gymnax/{task}' for task in NATIVE}


class TaskError(ValueError):
    """There is no such task, or none that fits; the message is all that one needs."""


def native(task: str, **kwargs: Any) -> Environment:
    """Make an environment of this package that agrees with Gymnasium's.

    Args:
        task: Gymnasium's id.
        **kwargs: Arguments of the task, as Gymnasium has them.

    Raises:
        ValueError: There is no such task here.
    """
    if task not in NATIVE:
        raise ValueError(f'The task must be one of {", ".join(NATIVE)}, got task={task!r}.')
    return importlib.import_module(f'agents.envs.{NATIVE[task]}').make(**kwargs)


def in_jax(task: str, **kwargs: Any) -> Environment:
    """Make an environment of a library that is written in JAX.

    Args:
        task: `library/name`, where the library is one of `JAX_LIBRARIES`; or a key of `JAX_TASKS`.
        **kwargs: Arguments of `make` in this package's module for the library.

    Raises:
        ImportError: JAX or the library is missing, or of another version.
        TaskError: There is no such task, or none with spaces that fit.
        ContractError: TensorFlow cannot run it.
    """
    library, _, name = JAX_TASKS.get(task, task).partition('/')
    if library not in JAX_LIBRARIES or not name:
        raise TaskError(
            f'The task must be written library/name with one of {", ".join(JAX_LIBRARIES)}, got '
            f'task={task!r}.'
        )
    check_jax(library)
    importlib.import_module('agents.envs.jax_setup')  # Before the library, which may compute.
    return importlib.import_module(f'agents.envs.{library}_tasks').make(name, **kwargs)


def check_jax(library: str = '') -> None:
    """Check what is installed, without importing it.

    Args:
        library: One of `JAX_LIBRARIES`, or none but JAX itself.

    Raises:
        ImportError: JAX or the library is missing, or of a version that does not work.
    """
    for module in filter(None, ('jax', JAX_LIBRARIES.get(library))):
        if not _has(module):
            package = 'playground' if library == 'playground' and module != 'jax' else None
            raise ModuleNotFoundError(
                f'Tasks in JAX need {module}: pip install {package or repr("batch-agents[jax]")}.'
            )
    version = importlib.metadata.version('jax')
    # Its programs come in a form (StableHLO 1.15) that TensorFlow 2.21 cannot read where they have
    # erf, arccos, sinh, top_k and the like; from 0.11 on also any linear algebra.
    if _numbers(version) >= (0, 10, 1):
        raise ImportError(
            f'JAX must be below 0.10.1, got jax={version}: TensorFlow cannot read all programs of '
            "later versions. pip install 'jax<0.10.1'"
        )


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Of the package that it is in.
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(x) for x in version.split('.')[:3])
