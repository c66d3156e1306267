import functools
import importlib.util
import pickle
import sys

import gymnasium
import numpy as np
import pytest

from agents.scripts import environments, train
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError

TASK = """
import gymnasium
import numpy as np


class Counting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1e3, 1e3, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, start=0):
        self._start = start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = self._start
        return np.full(1, self._count, np.float32), {}

    def step(self, action):
        self._count += 1
        return np.full(1, self._count, np.float32), 1.0, False, False, {}


class Negative(gymnasium.ObservationWrapper):
    def observation(self, obs):
        return -obs


gymnasium.register('EnvironmentsCounting-v0', Counting, max_episode_steps=8)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / 'environments_task.py').write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    yield 'environments_task'
    sys.modules.pop('environments_task', None)
    gymnasium.registry.pop('EnvironmentsCounting-v0', None)


def test_arguments_reach_the_task():
    env = environments.make_env('Pendulum-v1', {'g': 3.5})
    assert env.unwrapped.g == 3.5


def test_wrappers_are_put_around_in_order():
    specs = ({'ActionRepeat': {'amount': 2}}, {'FrameStackObservation': {'stack_size': 4}})
    env = environments.make_env('CartPole-v1', {}, specs)
    assert [type(env).__name__, type(env.env).__name__] == ['FrameStackObservation', 'ActionRepeat']
    assert env.observation_space.shape == (4, 4)
    env = environments.make_env('CartPole-v1', {}, specs[::-1])
    assert type(env).__name__ == 'ActionRepeat'


def test_a_task_of_the_users_module_is_imported_from_the_working_directory(module):
    env = environments.make_env(
        f'{module}:EnvironmentsCounting-v0',
        {'start': 5},
        [f'{module}:Negative', {'ActionRepeat': {'amount': 2}}],
    )
    # Starts at 5, counts each of the two repeated steps, negated.
    np.testing.assert_array_equal(env.reset(seed=0)[0], [-5])
    obs, reward, *_ = env.step(0)
    np.testing.assert_array_equal(obs, [-7])
    assert reward == 2.0


def test_what_makes_an_environment_is_pickled_by_reference():
    make = functools.partial(environments.make_env, 'CartPole-v1', {}, ('ClipReward',))
    data = pickle.dumps(make)
    assert len(data) < 200
    assert pickle.loads(data).func is environments.make_env


@pytest.mark.parametrize(
    'env, message',
    [
        ('Cartpole-v1', "no task 'Cartpole-v1'. Did you mean CartPole-v1"),
        ('CartPole-v7', "no task 'CartPole-v7'. Did you mean CartPole-v1"),
        ('Pendulm-v1', "no task 'Pendulm-v1'. Did you mean Pendulum-v1"),
        ('', "no task ''"),
        ('NoSpace/Task-v0', 'No package has registered tasks of NoSpace/'),
        ('no_such_module:Task-v0', 'task Task-v0 must be importable, got no_such_module'),
        ('json:Pendulm-v1', 'module json does not register it. Did you mean Pendulum-v1'),
    ],
)
def test_an_unknown_task_answers_with_the_nearest_ones(env, message):
    with pytest.raises(UserError, match=message):
        environments.make_env(env)


@pytest.mark.parametrize(
    'spec, message',
    [
        ('FrameStackObservatoin', 'Did you mean FrameStackObservation'),
        ('ActionRepet', 'Did you mean ActionRepeat'),
        ('ExternalProcess', "no wrapper 'ExternalProcess'"),  # Not around one environment.
        ('vector', "no wrapper 'vector'"),
        ('json:Nothing', 'module json has no Nothing'),
    ],
)
def test_an_unknown_wrapper_answers_with_the_nearest_ones(spec, message):
    with pytest.raises(UserError, match=message):
        environments.make_env('CartPole-v1', {}, (spec,))


def test_a_package_that_is_missing_is_told_without_a_traceback(monkeypatch):
    def make(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled('run `pip install it`')

    monkeypatch.setattr(gymnasium, 'make', make)
    with pytest.raises(UserError, match=r'CartPole-v1 needs .* installed: run `pip install it`'):
        environments.make_env('CartPole-v1')


def test_an_argument_that_the_task_does_not_take_keeps_its_exception():
    with pytest.raises(TypeError, match='gravitation'):
        environments.make_env('Pendulum-v1', {'gravitation': 1})


@pytest.mark.parametrize('task', ['brax/ant', 'gymnax/CartPole-v1'])
def test_a_task_of_another_engine_is_told_with_that_engine(task):
    with pytest.raises(UserError, match=rf"no task '{task}'\. It is one of engine=jax"):
        environments.check(Config(env=task))


@pytest.mark.parametrize(
    ('env', 'module', 'extra'),
    [
        ('HalfCheetah-v5', 'mujoco', 'mujoco'),
        ('LunarLander-v3', 'Box2D', 'box2d'),
        ('ale_py:PongNoFrameskip-v4', 'ale_py', 'atari'),
        ('ale_py:PongNoFrameskip-v4', 'cv2', 'atari'),
        ('shimmy:dm_control/walker-walk-v0', 'dm_control', 'dm_control'),
    ],
)
def test_a_missing_extra_is_named_before_a_run_begins(
    tmp_path, monkeypatch, capsys, env, module, extra
):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == module else find_spec(name)
    )
    code = train.main(['--config=debug', f'--env={env}', f'--logdir={tmp_path}/logdir'])
    assert code == 2
    assert f"needs {module}, which is not installed: pip install 'batch-agents[{extra}]'." in (
        capsys.readouterr().err
    )
    assert not (tmp_path / 'logdir').exists()
