"""How fast batches of environments step."""

import itertools
import os
import time
from typing import Any

import gymnasium
import numpy as np

from benchmarks.contest import Contender, Line, Options, contest

TASK = 'CartPole-v1'
NUM_ENVS = 64


def stepping(options: Options) -> list[Line]:
    """64 × CartPole-v1, random actions drawn beforehand, resets included.

    Both sides step `gymnasium.make('CartPole-v1')` with default settings: here
    `make_batch_env(make, 64)`, there `make_vec('CartPole-v1', 64, vectorization_mode=...)`.
    64 environments stepped once are 64 steps. One of Gymnasium's environments that resets does
    nothing else in that call, which counts as a step all the same. The limit is the number of
    usable cores × the rate of one unwrapped environment in a plain Python loop, resets included.
    """
    seconds = 0.5 if options.quick else 2.0
    sides = [
        [Contender('agents', step_ours, {'seconds': seconds})],
        [Contender('Gymnasium async', step_gymnasium, {'seconds': seconds, 'mode': 'async'})],
        [Contender('Gymnasium sync', step_gymnasium, {'seconds': seconds, 'mode': 'sync'})],
        [Contender('limit: cores × plain loop', step_plainly, {'seconds': seconds})],
    ]
    ours, *peers = contest(sides, options.repeats)
    what = f'step {NUM_ENVS} × {TASK}'
    return [
        Line(what, 'steps/s', ours, peer, ratio_wanted=wanted)
        for peer, wanted in zip(peers, (10.0, 1.3, None), strict=True)
    ]


def step_ours(seconds: float) -> float:
    from agents import tools

    return rate(tools.make_batch_env(lambda: gymnasium.make(TASK), NUM_ENVS), seconds)


def step_gymnasium(seconds: float, mode: str) -> float:
    return rate(gymnasium.make_vec(TASK, NUM_ENVS, vectorization_mode=mode), seconds)


def step_plainly(seconds: float) -> float:
    env = gymnasium.make(TASK).unwrapped
    actions = np.random.default_rng(0).integers(2, size=1000).tolist()
    env.reset(seed=0)
    calls = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for action in actions:
            _, _, terminated, _, _ = env.step(action)
            if terminated:
                env.reset()
        calls += len(actions)
    return usable_cores() * calls / (time.perf_counter() - begin)


def rate(env: Any, seconds: float) -> float:
    """Steps per second of a batch of environments with two actions; closes it.

    Args:
        env: Batch with `num_envs`, `reset(seed)`, `step(action)` and `close()`.
        seconds: How long to measure, after a fifth of it for warming up.
    """
    actions = np.random.default_rng(0).integers(2, size=(1000, env.num_envs))
    env.reset(seed=0)
    _step_for(env, actions, seconds / 5)
    calls, elapsed = _step_for(env, actions, seconds)
    env.close()
    return calls * env.num_envs / elapsed


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def _step_for(env: Any, actions: np.ndarray, seconds: float) -> tuple[int, float]:
    begin = time.perf_counter()
    for calls in itertools.count(1):
        env.step(actions[calls % len(actions)])
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            break
    return calls, elapsed
