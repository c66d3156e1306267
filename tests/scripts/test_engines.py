import importlib.metadata
import subprocess
import sys

import pytest
import tensorflow as tf

from agents.scripts import engines
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError

OWN = """
import gymnasium
import numpy as np

from agents import envs

BOX = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
MOVES = gymnasium.spaces.Discrete(2)


def make(limit=3) -> envs.Environment:
    import tensorflow as tf

    def reset(seed):
        return tf.zeros_like(seed[:, 0]), tf.zeros(tf.shape(seed[:, :1]))

    def step(state, action, seed):
        state += 1
        obs = tf.cast(state, tf.float32)[:, None]
        return state, obs, obs[:, 0], state < 0, state >= limit

    return envs.Environment(reset, step, BOX, MOVES, 'own')


def make_jax(limit=3) -> envs.Environment:
    import jax.numpy as jnp

    def reset(seed):
        return jnp.zeros(len(seed), int), jnp.zeros([len(seed), 1])

    def step(state, action, seed):
        state += 1
        obs = state.astype(float)[:, None]
        return state, obs, obs[:, 0], state < 0, state >= limit

    return envs.from_jax(reset, step, BOX, MOVES, 'own')


def make_with_cholesky() -> envs.Environment:
    import jax
    import jax.numpy as jnp

    def reset(seed):
        matrix = jnp.linalg.cholesky(jnp.eye(2) + jax.random.uniform(seed))
        return matrix, matrix[0, :1]

    return envs.from_jax(jax.vmap(reset), None, BOX, MOVES, 'own')


def make_nothing() -> envs.Environment:
    return 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Name of a user's module in the working directory."""
    (tmp_path / 'engines_own.py').write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    yield 'engines_own'
    sys.modules.pop('engines_own', None)


def config(engine, env, **kwargs):
    return Config(engine=engine, env=env, **kwargs)


def pretend(monkeypatch, *modules, without=()):
    """Let modules seem installed, or not, without importing them."""
    found = importlib.util.find_spec

    def find_spec(name, *args):
        if name in without:
            return None
        return found('json') if name in modules else found(name, *args)

    monkeypatch.setattr(importlib.util, 'find_spec', find_spec)
    monkeypatch.setattr(importlib.metadata, 'version', lambda name: '0.10.0')


JAX_MODULES = ('jax', 'gymnax', 'brax', 'mujoco.mjx', 'mujoco_playground')


@pytest.mark.parametrize(
    ('task', 'expected'),
    [
        ('CartPole-v1', ['process', 'tensorflow', 'jax', 'vector']),
        ('Pendulum-v1', ['process', 'tensorflow', 'jax']),
        ('HalfCheetah-v5', ['process']),
        ('brax/ant', ['jax']),
        ('mjx/half_cheetah', ['jax']),
        ('nothing/ant', []),
        ('Nothing-v0', []),
    ],
)
def test_the_engines_of_a_task(task, expected):
    assert engines.engines_of(task) == expected


@pytest.mark.parametrize('task', ['CartPole-v1', 'gymnax/Anything', 'brax/ant', 'playground/x'])
def test_tasks_of_libraries_are_left_to_them(task, monkeypatch):
    pretend(monkeypatch, *JAX_MODULES)
    engines.check(config('jax', task))


@pytest.mark.parametrize(
    ('engine', 'env', 'message'),
    [
        ('tensorflow', 'HalfCheetah-v5', "tensorflow has no task 'HalfCheetah-v5'. .* it: process"),
        ('tensorflow', 'brax/ant', "tensorflow has no task 'brax/ant'. Engines that have it: jax"),
        ('tensorflow', 'Nothing-v0', "no task 'Nothing-v0'. It has Acrobot-v1, .*module:name"),
        ('jax', 'HalfCheetah-v5', "jax has no task 'HalfCheetah-v5'. Engines that .* it: process"),
        ('jax', 'brx/ant', "no task 'brx/ant'. Write library/name with one of brax, gymnax, mjx"),
        ('jax', 'no_module:make', 'module of the environment must be importable, got no_module'),
        ('tensorflow', 'json:make', 'The module json has no make'),
        ('vector', 'Pendulum-v1', "no task 'Pendulum-v1'. .* it: process, tensorflow, jax"),
    ],
)
def test_a_task_that_the_engine_lacks_names_those_that_have_it(engine, env, message, monkeypatch):
    pretend(monkeypatch, *JAX_MODULES)
    with pytest.raises(UserError, match=message):
        engines.check(config(engine, env))


@pytest.mark.parametrize('engine', ['tensorflow', 'jax', 'envpool', 'vector'])
def test_only_processes_take_wrappers(engine):
    with pytest.raises(UserError, match=rf'engine=process, got engine={engine} and wrappers='):
        engines.check(config(engine, 'CartPole-v1', wrappers=('ClipReward',)))


@pytest.mark.parametrize(
    ('engine', 'env', 'missing', 'message'),
    [
        ('envpool', 'CartPole-v1', 'envpool', r"pip install 'batch-agents\[envpool\]'"),
        ('jax', 'CartPole-v1', 'jax', r"need jax: pip install 'batch-agents\[jax\]'"),
        ('jax', 'CartPole-v1', 'gymnax', r"need gymnax: pip install 'batch-agents\[jax\]'"),
        ('jax', 'brax/ant', 'brax', r"need brax: pip install 'batch-agents\[jax\]'"),
        ('jax', 'mjx/half_cheetah', 'mujoco.mjx', r"need mujoco.mjx: .*'batch-agents\[jax\]'"),
        ('jax', 'playground/x', 'mujoco_playground', 'mujoco_playground: pip install playground'),
    ],
)
def test_what_is_not_installed_is_named(engine, env, missing, message, monkeypatch):
    pretend(monkeypatch, *JAX_MODULES, without=(missing,))
    with pytest.raises(UserError, match=message):
        engines.check(config(engine, env))


def test_a_version_of_jax_that_does_not_work_is_named(monkeypatch):
    pretend(monkeypatch, *JAX_MODULES)
    monkeypatch.setattr(importlib.metadata, 'version', lambda name: '0.12.0.1')
    with pytest.raises(UserError, match=r"below 0.10.1, got jax=0.12.0.1: .*pip install 'jax<0"):
        engines.check(config('jax', 'brax/ant'))


def test_checking_imports_neither_tensorflow_nor_jax():
    program = (
        'import sys\n'
        'from agents.scripts import engines\n'
        'from agents.scripts.config import Config\n'
        'from agents.scripts.mistakes import UserError\n'
        'for engine in ("tensorflow", "jax"):\n'
        '    try:\n'
        '        engines.check(Config(engine=engine))\n'
        '    except UserError as error:\n'
        '        assert "pip install" in str(error), error\n'
        'print(sorted({"tensorflow", "keras", "jax", "gymnax"} & set(sys.modules)))\n'
    )
    result = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert result.stdout == '[]\n', result.stderr


@pytest.mark.parametrize('function', ['make', 'make_jax'])
def test_a_function_of_ones_own_is_an_environment_by_a_line_of_config(own, function):
    engine = 'tensorflow'
    if function == 'make_jax':
        pytest.importorskip('jax')
        engine = 'jax'
    batch = engines.make_batch(config(engine, f'{own}:{function}', env_kwargs={'limit': 2}), 3)
    batch.reset(0)
    rewards = [batch.step(tf.zeros([3], tf.int64)).reward.numpy().tolist() for _ in range(3)]
    assert rewards == [[1] * 3, [2] * 3, [1] * 3]


def test_a_function_that_returns_something_else_is_an_error(own):
    with pytest.raises(UserError, match='make_nothing must return .*Environment, got int'):
        engines.make_batch(config('tensorflow', f'{own}:make_nothing'), 3)


def test_an_environment_that_tensorflow_cannot_run_is_told_without_a_traceback(own):
    pytest.importorskip('jax')
    with pytest.raises(UserError, match='own: reset must be .* got a call of lapack_spotrf_ffi'):
        engines.make_batch(config('jax', f'{own}:make_with_cholesky'), 3)


@pytest.mark.parametrize('engine', ['tensorflow', 'jax'])
def test_arguments_reach_the_task(engine):
    if engine == 'jax':
        pytest.importorskip('jax')
        pytest.importorskip('gymnax')
    name = {'tensorflow': 'max_episode_steps', 'jax': 'max_steps_in_episode'}[engine]
    batch = engines.make_batch(config(engine, 'CartPole-v1', env_kwargs={name: 2}), 2)
    batch.reset(0)
    truncated = [batch.step(tf.zeros([2], tf.int64)).truncated.numpy().all() for _ in range(4)]
    assert truncated == [False, True, False, True]


def test_a_task_that_the_library_lacks_is_told_when_it_is_made():
    pytest.importorskip('jax')
    pytest.importorskip('gymnax')
    with pytest.raises(UserError, match="gymnax has no task 'CartPole-v7'. There is CartPole-v1"):
        engines.make_batch(config('jax', 'gymnax/CartPole-v7'), 2)


HARMFUL = """
import pathlib


def touch(path='touched', *args, **kwargs):
    pathlib.Path(path).touch()
    return 3


class Touch:
    def __init__(self, *args, **kwargs):
        touch()
"""


@pytest.mark.parametrize('engine', ['tensorflow', 'jax'])
@pytest.mark.parametrize('name', ['os:system', 'engines_harm:touch', 'engines_harm:Touch'])
def test_nothing_is_called_but_what_says_that_it_makes_an_environment(
    engine, name, tmp_path, monkeypatch
):
    (tmp_path / 'engines_harm.py').write_text(HARMFUL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    config = Config(env=name, engine=engine)
    for function in (engines.check, lambda config: engines.make_batch(config, 1)):
        with pytest.raises(UserError, match=f'{name} must be annotated to return an environment'):
            function(config)
    assert not (tmp_path / 'touched').exists()
    sys.modules.pop('engines_harm', None)
