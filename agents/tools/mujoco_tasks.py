"""What Gymnasium's MuJoCo tasks make of their simulations, for many environments at once.

Each class computes what the `step` of a task computes after its simulation, with the operations in
the same order and on the same dtypes, so that not one bit differs. Formulas are documented there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Results(NamedTuple):
    """What a step of every environment gave.

    Attributes:
        obs: Observation, float64 [B, N].
        reward: Reward, a dtype of numbers [B].
        terminated: The world ended, bool [B].
    """

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


class Task:
    """Environments of one class with equal settings.

    Attributes:
        settings: Names of the attributes that the results depend on.
    """

    settings: tuple[str, ...] = ()

    def __init__(self, envs: Sequence[Any]) -> None:
        """Take note of where the simulations keep their arrays.

        Args:
            envs: Environments without wrappers.
        """
        self._env = envs[0]
        self._data = [env.data for env in envs]
        self._views: dict[str, list[np.ndarray]] = {}

    def position(self) -> np.ndarray:
        """Return what `results` compares with the position after the step, float64 [B]."""
        return np.zeros(len(self._data))

    def results(self, before: np.ndarray, action: np.ndarray) -> Results:
        """Return what the last step gave.

        Args:
            before: What `position` returned before the step, float64 [B].
            action: Actions, float32 [B, A].
        """
        raise NotImplementedError

    def _rows(self, name: str) -> np.ndarray:
        """Gather an array of the simulations, float64 [B, n]."""
        if name not in self._views:
            self._views[name] = [getattr(data, name).reshape(-1) for data in self._data]
        return np.concatenate(self._views[name]).reshape(len(self._data), -1)

    def _body(self, name: str | int) -> np.ndarray:
        """Gather the positions of a body, float64 [B, 3]."""
        key = f'body {name}'
        if key not in self._views:
            self._views[key] = [data.body(name).xpos for data in self._data]
        return np.concatenate(self._views[key]).reshape(-1, 3)


class _Runner(Task):
    """Is rewarded for running along the x axis, and pays for its actions."""

    settings: tuple[str, ...] = (
        '_forward_reward_weight',
        '_ctrl_cost_weight',
        '_exclude_current_positions_from_observation',
    )
    horizontal = 1  # How many positions at the front say where it is.

    def __init__(self, envs: Sequence[Any]) -> None:
        super().__init__(envs)
        self._dt = np.array([env.dt for env in envs])

    def position(self) -> np.ndarray:
        return self._rows('qpos')[:, 0]

    def results(self, before: np.ndarray, action: np.ndarray) -> Results:
        env, healthy = self._env, self._healthy()
        reward = env._forward_reward_weight * ((self.position() - before) / self._dt)
        terminated = np.zeros(len(before), bool)
        if healthy is not None:
            reward = reward + healthy * env._healthy_reward
            terminated = ~healthy & bool(env._terminate_when_unhealthy)
        return Results(self._obs(), reward - self._cost(action), terminated)

    def _obs(self) -> np.ndarray:
        skip = self.horizontal * bool(self._env._exclude_current_positions_from_observation)
        return np.concatenate((self._rows('qpos')[:, skip:], *self._rest_of_obs()), axis=1)

    def _rest_of_obs(self) -> Sequence[np.ndarray]:
        return (self._rows('qvel'),)

    def _cost(self, action: np.ndarray) -> np.ndarray:
        return self._env._ctrl_cost_weight * np.sum(np.square(action), axis=1)

    def _healthy(self) -> np.ndarray | None:
        """Return where the robot is healthy, bool [B], None if that does not matter."""
        return None


class _Swimmer(_Runner):
    horizontal = 2


class _Walker2d(_Runner):
    settings = (
        *_Runner.settings,
        '_healthy_reward',
        '_terminate_when_unhealthy',
        '_healthy_z_range',
        '_healthy_angle_range',
    )

    def _rest_of_obs(self) -> Sequence[np.ndarray]:
        return (np.clip(self._rows('qvel'), -10, 10),)

    def _healthy(self) -> np.ndarray:
        env, (z, angle) = self._env, self._rows('qpos')[:, 1:3].T
        return _inside(env._healthy_z_range, z) & _inside(env._healthy_angle_range, angle)


class _Hopper(_Walker2d):
    settings = (*_Walker2d.settings, '_healthy_state_range')

    def _healthy(self) -> np.ndarray:
        state = np.concatenate((self._rows('qpos'), self._rows('qvel')), axis=1)[:, 2:]
        inside = _inside(self._env._healthy_state_range, state)
        return super()._healthy() & inside.all(axis=1)


class _Ant(_Runner):
    settings = (
        *_Runner.settings,
        '_healthy_reward',
        '_terminate_when_unhealthy',
        '_healthy_z_range',
        '_contact_cost_weight',
        '_contact_force_range',
        '_main_body',
        '_include_cfrc_ext_in_observation',
    )
    horizontal = 2

    def position(self) -> np.ndarray:
        return self._body(self._env._main_body)[:, 0]

    def _rest_of_obs(self) -> Sequence[np.ndarray]:
        if self._env._include_cfrc_ext_in_observation:
            return self._rows('qvel'), self._forces()[:, 6:]
        return (self._rows('qvel'),)

    def _cost(self, action: np.ndarray) -> np.ndarray:
        contact = self._env._contact_cost_weight * np.sum(np.square(self._forces()), axis=1)
        return super()._cost(action) + contact

    def _healthy(self) -> np.ndarray:
        qpos, (low, high) = self._rows('qpos'), self._env._healthy_z_range
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(self._rows('qvel')).all(axis=1)
        return finite & (low <= qpos[:, 2]) & (qpos[:, 2] <= high)

    def _forces(self) -> np.ndarray:
        return np.clip(self._rows('cfrc_ext'), *self._env._contact_force_range)


class _Humanoid(_Runner):
    # Parts of an observation that can be left out, and where they begin: behind the world's body.
    parts = (('cinert', 10), ('cvel', 6), ('qfrc_actuator', 6), ('cfrc_ext', 6))
    settings = (
        *_Runner.settings,
        '_healthy_reward',
        '_terminate_when_unhealthy',
        '_healthy_z_range',
        '_contact_cost_weight',
        '_contact_cost_range',
        *(f'_include_{name}_in_observation' for name, _ in parts),
    )
    horizontal = 2

    def __init__(self, envs: Sequence[Any]) -> None:
        super().__init__(envs)
        self._masses = np.array([env.model.body_mass for env in envs])
        self._total = np.array([env.model.body_mass.sum() for env in envs])

    def position(self) -> np.ndarray:
        centers = self._rows('xipos').reshape(*self._masses.shape, 3)
        return np.einsum('ib,ibj->ij', self._masses, centers)[:, 0] / self._total

    def _rest_of_obs(self) -> Sequence[np.ndarray]:
        shown = [
            self._rows(name)[:, start:]
            for name, start in self.parts
            if getattr(self._env, f'_include_{name}_in_observation') is True
        ]
        return self._rows('qvel'), *shown

    def _cost(self, action: np.ndarray) -> np.ndarray:
        env = self._env
        contact = env._contact_cost_weight * np.sum(np.square(self._rows('cfrc_ext')), axis=1)
        return super()._cost(self._rows('ctrl')) + np.clip(contact, *env._contact_cost_range)

    def _healthy(self) -> np.ndarray:
        return _inside(self._env._healthy_z_range, self._rows('qpos')[:, 2])


class _Reacher(Task):
    settings = ('_reward_dist_weight', '_reward_control_weight')

    def results(self, before: np.ndarray, action: np.ndarray) -> Results:
        env, qpos, velocity = self._env, self._rows('qpos'), self._rows('qvel')[:, :2]
        angles, way = qpos[:, :2], self._body('fingertip') - self._body('target')
        # As `np.linalg.norm` does it for one vector.
        distance = -np.sqrt(np.vecdot(way, way)) * env._reward_dist_weight
        control = -np.square(action).sum(axis=1) * env._reward_control_weight
        parts = (np.cos(angles), np.sin(angles), qpos[:, 2:], velocity, way[:, :2])
        obs = np.concatenate(parts, axis=1)
        return Results(obs, distance + control, np.zeros(len(obs), bool))


class _InvertedPendulum(Task):
    def results(self, before: np.ndarray, action: np.ndarray) -> Results:
        obs = np.concatenate((self._rows('qpos'), self._rows('qvel')), axis=1)
        terminated = ~np.isfinite(obs).all(axis=1) | (np.abs(obs[:, 1]) > 0.2)
        return Results(obs, (~terminated).astype(float), terminated)


def _inside(bounds: Sequence[float], values: np.ndarray) -> np.ndarray:
    low, high = bounds
    return (low < values) & (values < high)


# By the name of the class, so that nothing of MuJoCo is imported without need.
TASKS: dict[str, type[Task]] = {
    f'gymnasium.envs.mujoco.{name}': task
    for name, task in {
        'half_cheetah_v5.HalfCheetahEnv': _Runner,
        'hopper_v5.HopperEnv': _Hopper,
        'walker2d_v5.Walker2dEnv': _Walker2d,
        'ant_v5.AntEnv': _Ant,
        'humanoid_v5.HumanoidEnv': _Humanoid,
        'swimmer_v5.SwimmerEnv': _Swimmer,
        'reacher_v5.ReacherEnv': _Reacher,
        'inverted_pendulum_v5.InvertedPendulumEnv': _InvertedPendulum,
    }.items()
}
