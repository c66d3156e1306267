import functools

import gymnasium
import numpy as np
import pytest

from agents.tools import env_state, make_batch_env, packing
from agents.tools.wrappers import restarting_batch
from tests.faults.drifting import Drift, Forgetting, Keeping

WRAPPERS = gymnasium.wrappers


def test_packed_data_comes_back_with_its_types():
    value = {
        'a': [1, 2.5, -0.0, None, True, 'x', b'\x00y', 2**130],
        'b': (np.arange(6, dtype=np.int16).reshape(2, 3), np.float32(0.1), np.zeros((0, 2))),
        'c': {'d': float('inf')},
    }
    result = packing.unpack(packing.pack(value))
    assert packing.pack(result) == packing.pack(value)
    assert result['a'] == value['a'] and type(result['b'][1]) is np.float32
    np.testing.assert_array_equal(result['b'][0], value['b'][0])
    result['b'][0][:] = 0  # Its own memory.


def test_objects_are_not_packed_and_damaged_bytes_are_no_data():
    for value in ({1: 2}, object(), np.array([None])):
        with pytest.raises(TypeError, match='Data must be'):
            packing.pack(value)
    data = packing.pack([np.arange(4), 1])
    evil = data.replace(b'"<i8"', b'"|O8"')
    assert evil != data
    for damaged in (b'', data[:-1], data[:9], evil, b'\xff' * 20):
        with pytest.raises(ValueError, match='Packed data must be whole'):
            packing.unpack(damaged)


@pytest.mark.parametrize(
    'env',
    ['CartPole', 'Pendulum', 'Acrobot', 'MountainCar', 'Ant', 'Humanoid', 'Reacher', 'Pusher'],
)
def test_an_environment_with_the_state_of_another_does_the_same(env):
    name = max(key for key in gymnasium.registry if key.rpartition('-')[0] == env)
    env_state.prove(lambda: gymnasium.make(name, disable_env_checker=True))


@pytest.mark.parametrize(
    'wrapper',
    [
        WRAPPERS.RecordEpisodeStatistics,
        WRAPPERS.NormalizeObservation,
        WRAPPERS.NormalizeReward,
        WRAPPERS.TimeAwareObservation,
        functools.partial(WRAPPERS.StickyAction, repeat_action_probability=0.5),
        functools.partial(WRAPPERS.FrameStackObservation, stack_size=3),
        functools.partial(WRAPPERS.DelayObservation, delay=2),
    ],
)
def test_the_state_of_wrappers_is_part_of_it(wrapper):
    env_state.prove(lambda: wrapper(gymnasium.make('Pendulum-v1', max_episode_steps=25)))


def test_what_is_not_known_or_incomplete_is_named():
    env_state.prove(Keeping)
    with pytest.raises(env_state.Unsupported, match=r'drifting:Drift has no get_state\(\)'):
        env_state.prove(Drift)
    with pytest.raises(env_state.Unsupported, match='Forgetting .* not do the same in step 1'):
        env_state.prove(Forgetting)
    with pytest.raises(env_state.Unsupported, match='TransformReward has no'):
        env_state.prove(lambda: WRAPPERS.TransformReward(Keeping(), abs))


def test_the_state_of_another_environment_is_an_error():
    env = gymnasium.make('CartPole-v1')
    env.reset()
    other = gymnasium.make('Pendulum-v1')
    with pytest.raises(ValueError, match=r'CartPoleEnv.* for .*PendulumEnv'):
        env_state.set_state(other, env_state.get_state(env))


@pytest.mark.parametrize('workers', [0, 1, 2])
def test_a_batch_goes_on_from_the_state_of_another_whatever_their_processes(workers):
    make = functools.partial(gymnasium.make, 'CartPole-v1')
    actions = np.random.default_rng(0).integers(2, size=(40, 3))
    with make_batch_env(make, 3, 0) as first, make_batch_env(make, 3, workers) as second:
        first.reset(5)
        for action in actions[:7]:
            first.step(action)
        second.set_state(first.get_state())
        for action in actions[7:]:
            expected, result = first.step(action), second.step(action)
            for x, y in zip(expected, result, strict=True):
                np.testing.assert_array_equal(x, y)
        with pytest.raises(ValueError, match='one for each of 3 environments, got 1'):
            second.set_state(first.get_state()[:1])


def test_fresh_seeds_after_a_restart_depend_on_the_failures_before_the_state_was_taken(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(restarting_batch, 'PAUSES', (0.0,) * 4)
    make = functools.partial(make_keeping, str(tmp_path))
    results = []
    with make_batch_env(make, 2, 1, on_worker_failure='restart') as env:
        env.reset(3)
        (tmp_path / 'fuse').touch()
        assert not env.step([0, 0]).valid.any()
        state = env.get_state()
        assert [x['restarts'] for x in state] == [1, 1]
        (tmp_path / 'fuse').touch()
        results.append(env.step([0, 0]).obs)
    with make_batch_env(make, 2, 2, on_worker_failure='restart') as env:
        env.set_state(state)
        for batch in env._batches:
            (tmp_path / 'fuse').touch()
            batch.step_async(np.zeros(1, np.int64))
            batch.step_wait()
        results.append(np.concatenate([batch.arrays.obs for batch in env._batches]))
    np.testing.assert_array_equal(*results)


def make_keeping(folder):
    from tests.faults.drifting import Breaking

    return Breaking(folder)
