"""How fast batches of environments step."""

import itertools
import multiprocessing
import os
import time
from typing import Any

import numpy as np

from benchmarks import peers, tasks
from benchmarks.contest import Contender, Line, Options, contest

# Tasks and numbers of environments.
SIZES = (
    *((task, 64) for task in tasks.TASKS),
    *((task, num_envs) for task in (tasks.CART_POLE, tasks.CHEETAH) for num_envs in (16, 256)),
)
QUICK = ((tasks.CART_POLE, 64), (tasks.CHEETAH, 64))
LIMIT, TOGETHER = 'limit: cores × plain loop', 'plain loops on all cores at once'
# What is wanted, in multiples of the other's rate.
WANTED = {
    (tasks.CART_POLE, 64): {
        LIMIT: 0.65,
        'Gymnasium async': 12.0,
        'Gymnasium sync': 1.3,
        'SB3 SubprocVecEnv': 12.0,
    },
    (tasks.CHEETAH, 64): {LIMIT: 0.85, 'Gymnasium async': 5.0},
    (tasks.IMAGES, 64): {'Gymnasium async': 3.0},
}


def stepping(options: Options) -> list[Line]:
    """Batches of environments, random actions drawn beforehand, resets included.

    All sides step what `gymnasium.make` makes with default settings: here `make_batch_env(make, n)`
    with one worker process per core, there what the names say, each in its default configuration
    (SubprocVecEnv forked); EnvPool steps its own version of the task. n environments stepped once
    are n steps. Environments of Gymnasium and EnvPool that reset do nothing else in that call,
    which counts as a step all the same. A process per environment is not measured above 64. The
    limit is the number of usable cores × the rate of one unwrapped environment in a plain Python
    loop, resets included; the plain loops at once are one process for each core, which steps its
    share of the unwrapped environments in turns and waits for nobody. Breakout: 84×84 grey pixels,
    4 frames a step, the last 4 stacked.
    """
    lines = []
    for task, num_envs in QUICK if options.quick else SIZES:
        lines += step(task, num_envs, options)
    return lines


def step(task: str, num_envs: int, options: Options) -> list[Line]:
    """Measure one task with one number of environments; a line for each peer."""
    seconds = 0.3 if options.quick else 1.0
    needs = tasks.NEEDS.get(task, '')
    kwargs = {'task': task, 'num_envs': num_envs, 'seconds': seconds}
    limit = Contender(LIMIT, step_plainly, {'task': task, 'seconds': seconds}, needs=needs)
    together = Contender(TOGETHER, step_plainly_together, kwargs, needs=needs)
    sides = [
        [Contender('agents', step_ours, kwargs, needs=needs)],
        *([peer] for peer in peers.contenders(step_peer, task, num_envs, seconds=seconds)),
        [together],
        [limit],
    ]
    ours, *others = contest(sides, options.repeats)
    wanted = WANTED.get((task, num_envs), {})
    what = f'step {num_envs} × {task}'
    return [Line(what, 'steps/s', ours, x, ratio_wanted=wanted.get(x.name)) for x in others]


def step_ours(task: str, num_envs: int, seconds: float) -> float:
    from agents import tools

    return rate(tools.make_batch_env(tasks.maker(task), num_envs), num_envs, task, seconds)


def step_peer(
    peer: str, task: str, num_envs: int, seconds: float, mode: str | None = None
) -> float:
    kwargs = {'mode': mode} if mode else {}
    return rate(peers.make(peer, task, num_envs, **kwargs), num_envs, task, seconds)


def step_plainly(task: str, seconds: float) -> float:
    return usable_cores() * loop(task, 1, seconds)


def step_plainly_together(task: str, num_envs: int, seconds: float) -> float:
    cores = usable_cores()
    context = multiprocessing.get_context('spawn')  # So that each begins as fresh as this one,
    with context.Pool(cores, context.Barrier(cores).wait) as pool:  # and all at the same time.
        shares = [(task, num_envs // cores, seconds)] * cores
        return sum(pool.starmap(loop, shares, chunksize=1))


def loop(task: str, num_envs: int, seconds: float) -> float:
    """Steps per second of unwrapped environments in a plain Python loop, resets included.

    Args:
        task: Name of the task.
        num_envs: Number of environments, which are stepped in turns.
        seconds: How long to measure, after a fifth of it for warming up.
    """
    envs = [tasks.make(task) for _ in range(num_envs)]
    most = getattr(envs[0].spec, 'max_episode_steps', None) or 1000
    if task != tasks.BREAKOUT:  # Whose wrappers are part of the task.
        envs = [env.unwrapped for env in envs]
    actions = list(tasks.random_actions(envs[0].action_space, 1)[:, 0])
    lengths = [0] * num_envs
    for env in envs:
        env.reset(seed=0)

    def step_for(seconds: float) -> float:
        begin = time.perf_counter()
        for rounds in itertools.count(1):
            action = actions[rounds % len(actions)]
            for index, env in enumerate(envs):
                lengths[index] += 1
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated or lengths[index] == most:
                    env.reset()
                    lengths[index] = 0
            if rounds * num_envs % 100 < num_envs and time.perf_counter() - begin >= seconds:
                break
        return rounds * num_envs / (time.perf_counter() - begin)

    step_for(seconds / 5)
    return step_for(seconds)


def rate(env: Any, num_envs: int, task: str, seconds: float) -> float:
    """Steps per second of a batch of environments; closes it.

    Args:
        env: Batch with `reset()`, `step(action)` and `close()`.
        num_envs: Number of its environments.
        task: Name of the task, which says what actions there are.
        seconds: How long to measure, after a fifth of it for warming up.
    """
    actions = tasks.random_actions(tasks.make(task).action_space, num_envs)
    env.reset()
    _step_for(env, actions, seconds / 5)
    calls, elapsed = _step_for(env, actions, seconds)
    env.close()
    return calls * num_envs / elapsed


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
