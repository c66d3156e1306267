"""Which tasks exist as tensor programs of this package."""

import importlib
from typing import Any

from agents.envs.environment import Environment

NATIVE = {
    'Acrobot-v1': 'acrobot',
    'CartPole-v1': 'cart_pole',
    'MountainCar-v0': 'mountain_car',
    'MountainCarContinuous-v0': 'mountain_car_continuous',
    'Pendulum-v1': 'pendulum',
}


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
