"""Steps many of Gymnasium's MuJoCo tasks together: their own Python takes a third of the time.

Only the simulations are stepped one after another; what the tasks compute from them is computed for
all at once. Nothing but the speed differs, which copies of two environments prove beforehand.
"""

import copy
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import mujoco_tasks

WARM_UP = 2  # Steps that environments make by themselves, since Gymnasium checks the first ones.
_STEPS = 100  # Of a proof: random actions end several episodes of the tasks that can fail.
_SETTINGS = ('fullpath', 'frame_skip', 'render_mode')  # Of all tasks.
_proved: dict[bytes, bool] = {}


class MujocoSteps:
    """Steps environments of one task together.

    Attributes:
        index: Which one is being simulated.
    """

    def __init__(self, envs: Sequence[gymnasium.Env], task: type[mujoco_tasks.Task]) -> None:
        """Take over environments.

        Args:
            envs: Environments with their wrappers, which were stepped.
            task: What their results are computed with.
        """
        bare: list[Any] = [env.unwrapped for env in envs]
        self.index = 0
        self._task = task(bare)
        # The task's own method: what a simulation consists of is up to Gymnasium.
        self._simulations = [env._step_mujoco_simulation for env in bare]
        self._frame_skip = bare[0].frame_skip
        self._limits: list[tuple[int, Any]] = [
            (index, layer)
            for index, env in enumerate(envs)
            for layer in _wrappers(env)
            if type(layer) is gymnasium.wrappers.TimeLimit
        ]

    def step(self, actions: Sequence[np.ndarray]) -> tuple[mujoco_tasks.Results, np.ndarray]:
        """Step all environments; none of them is reset.

        Args:
            actions: B actions, float32 [A].

        Returns:
            Results; and which episodes are cut, bool [B].
        """
        before = self._task.position()
        skip = self._frame_skip
        for index, simulate in enumerate(self._simulations):
            self.index = index  # For the message, if it raises something.
            simulate(actions[index], skip)
        truncated = np.zeros(len(actions), bool)
        for index, limit in self._limits:
            limit._elapsed_steps += 1
            truncated[index] |= limit._elapsed_steps >= limit._max_episode_steps
        return self._task.results(before, np.stack(actions)), truncated


def find(envs: Sequence[gymnasium.Env]) -> MujocoSteps | None:
    """Return what steps environments together, None if they are to be stepped one by one.

    Args:
        envs: Environments with their wrappers, which made `WARM_UP` steps.
    """
    task = mujoco_tasks.TASKS.get(_name(envs[0].unwrapped))
    if task is None or not all(_plain(env) for env in envs):
        return None
    bare: list[Any] = [env.unwrapped for env in envs]
    if not all(hasattr(bare[0], name) for name in ('_step_mujoco_simulation', *task.settings)):
        return None  # Another version of Gymnasium.
    kinds = {_kind(env, task) for env in bare}
    if len(kinds) != 1 or bare[0].render_mode == 'human':
        return None
    (kind,) = kinds
    if kind not in _proved:
        _proved[kind] = _prove(bare[0], task)
    return MujocoSteps(envs, task) if _proved[kind] else None


def _plain(env: gymnasium.Env) -> bool:
    """Whether nothing was added to what a step of the task means."""
    wrappers = _wrappers(env)
    patched = any(_patched(layer) for layer in (*wrappers, env.unwrapped))
    return not patched and all(_transparent(wrapper) for wrapper in wrappers)


def _transparent(wrapper: gymnasium.Wrapper) -> bool:
    """Whether a wrapper does nothing in a step but what is known here."""
    wrappers = gymnasium.wrappers
    if type(wrapper) is wrappers.PassiveEnvChecker:
        return wrapper.checked_step and getattr(wrapper, 'checked_data_reuse', True)
    return type(wrapper) in (wrappers.TimeLimit, wrappers.OrderEnforcing)


def _patched(layer: Any) -> bool:
    """Whether a method of the class was replaced on the object."""
    return any(
        callable(value) and callable(getattr(type(layer), name, None))
        for name, value in vars(layer).items()
    )


def _kind(env: Any, task: type[mujoco_tasks.Task]) -> bytes:
    """Return what environments must have in common; unequal for what cannot be compared."""
    values = [getattr(env, name) for name in (*_SETTINGS, *task.settings)]
    return pickle.dumps([_name(env), values])


def _prove(env: Any, task: type[mujoco_tasks.Task]) -> bool:
    """Step copies of an environment in both ways and compare the bits of what they give."""
    # Gymnasium's copies are made anew with the same arguments: the environment is left alone.
    one_by_one, together = ([copy.deepcopy(env) for _ in range(2)] for _ in range(2))
    for twin in (*one_by_one, *together):
        for name in task.settings:
            setattr(twin, name, getattr(env, name))
    for twins in (one_by_one, together):
        for seed, twin in enumerate(twins):
            twin.reset(seed=seed)
    steps, space = MujocoSteps(together, task), env.action_space
    generator = np.random.default_rng(0)
    equal = True
    for _ in range(_STEPS):
        actions = generator.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)
        expected = [twin.step(action) for twin, action in zip(one_by_one, actions, strict=True)]
        (obs, reward, terminated), _ = steps.step(list(actions))
        for index, row in enumerate(expected):
            got = obs[index], reward[index], terminated[index]
            equal = equal and _bits(*got) == _bits(*row[:3])
            if row[2]:
                one_by_one[index].reset()
                together[index].reset()
    for twin in (*one_by_one, *together):
        twin.close()
    if not equal:
        warnings.warn(
            f'{_name(env)} of Gymnasium {gymnasium.__version__} is not what is known of it, and is '
            'stepped more slowly.',
            stacklevel=1,
        )
    return equal


def _bits(obs: Any, reward: Any, terminated: Any) -> tuple:
    array = np.asarray(obs)
    return array.dtype, array.shape, array.tobytes(), np.float64(reward).tobytes(), bool(terminated)


def _wrappers(env: Any) -> list[gymnasium.Wrapper]:
    """Return the wrappers from outside in."""
    layers = []
    while isinstance(env, gymnasium.Wrapper):
        layers.append(env)
        env = env.env
    return layers


def _name(env: Any) -> str:
    return f'{type(env).__module__}.{type(env).__qualname__}'
