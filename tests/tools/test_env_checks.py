import os
import random
import re
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from agents import tools
from agents.tools.checking import memory_growth, report, values
from tests.tools.fakes import Trouble


class Good(gymnasium.Env):
    """A random walk that ends at random; each subclass gets one thing wrong."""

    observation_space = Box(-100, 100, (2,), np.float32)
    action_space = Discrete(3)

    def __init__(self):
        self.state = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.draw()
        return self.observe(), {}

    def step(self, action):
        self.state = np.clip(self.state + self.draw() + action - 1, -100, 100).astype(np.float32)
        return self.observe(), self.reward(), *self.flags(), {}

    def draw(self):
        return self.np_random.normal(size=2).astype(np.float32)

    def observe(self):
        return self.state.copy()

    def reward(self):
        return float(self.state.sum())

    def flags(self):
        return bool(self.np_random.uniform() < 0.1), False


class OldStep(Good):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class WrongType(Good):
    def observe(self):
        return self.state.astype(np.float64)


class WrongShape(Good):
    def observe(self):
        return np.append(self.state, self.state[:1])


class OutOfBounds(Good):
    observation_space = Box(-1, 1, (2,), np.float32)


class NotANumber(Good):
    def observe(self):
        return np.where(self.state > 1, np.nan, self.state).astype(np.float32)


class InfiniteReward(Good):
    def reward(self):
        return np.inf if self.state[0] > 1 else 0.0


class TextReward(Good):
    def reward(self):
        return 'much'


class NumberFlag(Good):
    def flags(self):
        terminated, truncated = super().flags()
        return int(terminated), truncated


class Unseeded(Good):
    def draw(self):
        return np.random.default_rng().normal(size=2).astype(np.float32)


class Remembers(Good):
    """Carries over from one episode into the next."""

    def reset(self, *, seed=None, options=None):
        former = self.state
        super().reset(seed=seed)
        self.state = self.state + former / 2
        return self.observe(), {}


class UsesGlobal(Good):
    def draw(self):
        return np.random.normal(size=2).astype(np.float32)


class ChangesGlobal(Good):
    """Is reproducible, but not the program around it."""

    def reset(self, *, seed=None, options=None):
        random.seed(seed)
        return super().reset(seed=seed, options=options)


class Counts(Good):
    made = 0

    def __init__(self):
        super().__init__()
        Counts.made += 1
        self.offset = np.float32(Counts.made)

    def observe(self):
        return self.state + self.offset


class KnowsProcess(Good):
    def observe(self):
        return self.state + np.float32(os.getpid() * 1e-5)


class SharesState(Good):
    """All instances move the same thing."""

    shared = np.zeros(2, np.float32)

    @property
    def state(self):
        return SharesState.shared

    @state.setter
    def state(self, value):
        SharesState.shared = value


class ForgetsLimit(Good):
    spec = EnvSpec('ForgetsLimit-v0', max_episode_steps=10)

    def flags(self):
        return False, False


class EndsAtTen(Good):
    """A time limit that nobody has been told of."""

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return super().reset(seed=seed, options=options)

    def flags(self):
        self.time += 1
        return self.time == 10, False


class TerminatesAtLimit(EndsAtTen):
    spec = EnvSpec('TerminatesAtLimit-v0', max_episode_steps=10)


class Leaks(Good):
    kept = []

    def observe(self):
        self.kept.append(bytes(1000))
        return super().observe()


class ClosesOnce(Good):
    def close(self):
        del self.state


class OwnGenerator(Good):
    """Is reproducible, but not with the generator of Gymnasium's, as its checker alone finds."""

    generator = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.state = self.draw()
        return self.observe(), {}

    def draw(self):
        return self.generator.normal(size=2).astype(np.float32)

    def flags(self):
        return bool(self.generator.uniform() < 0.1), False


class Reuses(Good):
    def observe(self):
        if not hasattr(self, 'buffer'):
            self.buffer = np.zeros(2, np.float32)
        self.buffer[:] = self.state
        return self.buffer


class Speaks(Good):
    observation_space = Text(9)

    def observe(self):
        return 'word'


class Warns(Good):
    def reset(self, *, seed=None, options=None):
        gymnasium.logger.warn('Something is odd.')
        return super().reset(seed=seed, options=options)


def check(constructor, seconds=0.5):
    return tools.check_env(constructor, seconds=seconds)


def failed(result):
    return [x.check.name for x in result.results if x.ok is False]


@pytest.mark.parametrize(
    ('constructor', 'name', 'seen'),
    [
        (OldStep, 'episodes', 'step must return .*truncated, info.*got 4 values'),
        (
            WrongType,
            'observations',
            'at reset, observation has dtype float64, the space says float32',
        ),
        (
            WrongShape,
            'observations',
            r'at reset, observation has shape \(3,\), the space says \(2,\)',
        ),
        (
            OutOfBounds,
            'observations',
            r'observation\[\d\] is .*, the space says at (least -1.0|most 1.0)',
        ),
        (
            NotANumber,
            'observations',
            r'at (reset|step \d+), observation\[\d\] is nan, which no network',
        ),
        (InfiniteReward, 'rewards', r'at step \d+, reward is inf'),
        (TextReward, 'rewards', "at step 0, reward is 'much'"),
        (NumberFlag, 'flags', 'at step 0, terminated is 0, of type int'),
        (Unseeded, 'repetition', r'at reset, observation\[0\] is .* instead of'),
        (Remembers, 'repetition', r'at reset, observation\[0\] is .* instead of'),
        (UsesGlobal, 'globals', 'reset draws from, or seeds, numpy.random'),
        (ChangesGlobal, 'globals', 'reset draws from, or seeds, random'),
        (Counts, 'instances', r'at reset, observation\[0\] is .* instead of'),
        (KnowsProcess, 'process', r'at reset, observation\[0\] is .* instead of'),
        (SharesState, 'batch', r'at (reset|step 0), observation\[0\] is .* instead of'),
        (ForgetsLimit, 'time limit', 'after 10 steps an episode goes on, with truncated=False'),
        (TerminatesAtLimit, 'time limit', 'after 10 steps an episode is terminated, with'),
        (Leaks, 'memory', r'1,[01]\d\d bytes a step'),
        (ClosesOnce, 'closing', r'AttributeError: .*state.*test_env_checks.py:\d+, in close'),
        (OwnGenerator, 'gymnasium', r'super\(\).reset\(seed=seed\)'),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(constructor, name, seen):
    result = check(constructor)
    assert failed(result) == [name]
    assert not result.ok
    assert re.search(seen, result[name].seen)
    text = ' '.join(str(result).split())
    assert f'✗ {name} {result[name].check.rule} Seen: {result[name].seen}. Mend: ' in text
    assert f'Not fit for training yet: 1 of {len(report.CHECKS)} checks failed.' in text


@pytest.mark.parametrize('constructor', [Good, Reuses, Warns])
def test_a_good_environment_passes_everything_but_has_no_time_limit(constructor):
    result = check(constructor)
    assert {x.check.name: x.ok for x in result.results if not x.ok} == {'time limit': None}
    assert result['time limit'].seen == 'it is registered without max_episode_steps'
    assert result['buffers'].seen.startswith(
        'they are not' if constructor is Reuses else 'they are'
    )
    assert ('Note: Something is odd' in str(result)) == (constructor is Warns)
    assert result.ok and 'Fit for training' in str(result)
    assert max(map(len, str(result).splitlines())) <= 100


@pytest.mark.parametrize('task', ['CartPole-v1', 'Pendulum-v1', 'FrozenLake-v1'])
def test_tasks_of_gymnasium_pass(task):
    result = check(lambda: gymnasium.make(task), seconds=1.0)
    assert failed(result) == []
    # A pendulum never falls, so that every episode lasts as long as it may.
    wanted = {'CartPole-v1': (None, 'no random episode reached 500 steps')}
    ok, seen = wanted.get(task, (True, 'an episode was cut after'))
    assert result['time limit'].ok is ok
    assert result['time limit'].seen.startswith(seen)


def test_what_needs_another_check_is_not_checked_before_that_is_passed():
    result = check(Unseeded)
    for name in ('globals', 'instances', 'process', 'batch'):
        assert (result[name].ok, result[name].seen) == (None, '"repetition" must hold first')
    assert result['memory'].ok
    assert result['gymnasium'].seen.startswith('it stops at its first fault, "Determ')


def test_episodes_that_all_end_alike_look_like_a_time_limit():
    result = check(EndsAtTen)
    assert failed(result) == []
    text = r'all \d+ episodes were terminated after 10 steps: if that is a time limit'
    assert re.search(text, result['time limit'].seen)


def test_spaces_that_batches_cannot_hold_are_named():
    result = check(Speaks)
    assert failed(result) == ['spaces']
    assert re.search(r'Observation space must be .* got Text\(.*[^.]$', result['spaces'].seen)


@pytest.mark.parametrize(
    ('trouble', 'where', 'name', 'seen'),
    [
        ('segfault', 'step', 'episodes', 'it crashes: .*SIGSEGV, in .*'),
        ('exit', 'reset', 'episodes', 'it crashes: .*exited with code 3'),
        ('kill', 'close', 'closing', 'it crashes: .*SIGKILL'),
        ('hang', 'step', 'episodes', r'it hangs: .* 2.5 seconds, in do_hang \(fakes.py:\d+\)'),
        ('system_exit', 'step', 'episodes', r'SystemExit: 4 \(fakes.py:\d+, in do_system_exit\)'),
        ('raise', 'reset', 'episodes', r'ZeroDivisionError: one over nothing \(fakes.py:\d+, in'),
    ],
)
def test_what_crashes_or_hangs_is_told_in_time(monkeypatch, trouble, where, name, seen):
    monkeypatch.setattr(report, '_START_SECONDS', 2.0)
    start = time.monotonic()
    result = check(lambda: Trouble(trouble, where))
    assert time.monotonic() - start < 20
    assert name in failed(result)
    assert re.search(seen, result[name].seen)
    assert len(result.results) == len(report.CHECKS)
    if seen.startswith('it ') and name != 'closing':
        assert result['memory'].seen == f'the process did not survive "{name}"'


def test_what_making_it_raises_is_told():
    def make():
        raise LookupError('no such map')

    result = check(make)
    assert failed(result) == ['constructor']
    assert result['constructor'].seen == 'LookupError: no such map'
    assert isinstance(result['constructor'].error, LookupError)
    assert all(x.seen == '"constructor" must hold first' for x in result.results[1:])


def test_a_constructor_must_return_an_environment():
    result = check(lambda: 'CartPole-v1')
    assert result['constructor'].seen == 'it returned str, which is no gymnasium.Env'
    assert failed(result) == ['constructor']


def test_a_constructor_must_be_picklable_but_not_what_it_makes():
    lock = threading.Lock()
    result = check(lambda: Good() if lock else None)
    assert failed(result) == ['constructor']
    assert re.search("it cannot be sent: TypeError: cannot pickle '_thread.lock'", str(result))

    def make():
        env = Good()
        env.lock = threading.Lock()
        return env

    result = check(make)
    assert result.ok
    assert result['constructor'].seen == 'the environment itself cannot be pickled, and need not be'


def test_mistakes_of_the_caller_are_errors():
    with pytest.raises(TypeError, match='Constructor must be a function'):
        tools.check_env(Good())
    with pytest.raises(ValueError, match='Time must be positive, got seconds=0'):
        tools.check_env(Good, seconds=0)


def test_results_are_told_as_soon_as_they_are_there():
    told = []
    result = tools.check_env(OldStep, seconds=0.5, on_result=told.append)
    assert told == list(result.results)
    assert [x.check for x in told] == list(report.CHECKS)


def test_only_steady_growth_of_memory_counts():
    steps = list(range(0, 2500, 100))
    noise = np.random.default_rng(0).integers(0, 20, 25) * 4096
    page = 4096

    def judge(sizes):
        return memory_growth.judge(steps, [int(x) for x in sizes])

    assert judge(noise).slope == 0
    # A cache that is full after a third of the time; one jump in between.
    assert judge(np.minimum(np.arange(25), 8) * 2**20 + noise).slope == 0
    assert judge((np.arange(25) > 12) * 2**26 + noise).slope == 0
    # 100 steps take 100 kB, 25 pages.
    assert judge(np.arange(25) * 25 * page + noise).slope == pytest.approx(1024, rel=0.1)
    assert judge(np.zeros(25)).least == 128 * 1024 / 2400


def test_differences_are_exact_and_nan_equals_nan():
    nan = {'a': np.array([1.0, np.nan]), 'b': (1, 'x')}
    assert values.difference(nan, {'a': np.array([1.0, np.nan]), 'b': (1, 'x')}, 'obs') is None
    other = {'a': np.array([1.0, np.nan]), 'b': (1, 'y')}
    assert values.difference(nan, other, 'obs') == "obs['b'][1] is y instead of x"
    small = np.nextafter(1.0, 2)
    assert values.difference(1.0, small, 'obs') == f'obs is {small!s} instead of 1.0'
    assert values.difference(np.float64(0.1), np.float32(0.1), 'obs', cast=True) is None
    text = values.difference(np.float64(0.1), np.float32(0.1), 'obs')
    assert text == 'obs has dtype float32 instead of float64'
    text = values.difference(np.zeros(2), np.zeros(3), 'obs')
    assert text == 'obs has shape (3,) instead of (2,)'


def test_parts_of_a_value_are_named_where_they_do_not_fit_the_space():
    box = Box(0, 1, (2,), np.float32)
    space = Dict({'a': Discrete(3), 'b': Tuple((box, box))})
    good = np.full(2, 0.5, np.float32)
    assert values.mismatch(space, {'a': 2, 'b': (good, good)}, 'obs') is None
    text = values.mismatch(space, {'a': 3, 'b': (good, good)}, 'obs')
    assert text == "obs['a'] is 3, which is not in Discrete(3)"
    text = values.mismatch(space, {'a': 2, 'b': (good, good + 1)}, 'obs')
    assert text == "obs['b'][1][0] is 1.5, the space says at most 1.0"
    text = values.mismatch(space, {'a': 2}, 'obs')
    assert text == "obs is made of ['a'], the space says Dict of ['a', 'b']"
    text = values.mismatch(space, {'a': 2, 'b': [good, good]}, 'obs')
    assert text.startswith("obs['b'] is [array(") and text.endswith('Tuple of [0, 1]')
