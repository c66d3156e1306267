"""What more environments and workers bring and cost."""

import time
from typing import Any

from benchmarks import stepping, tasks
from benchmarks.contest import Contender, Line, Options, contest
from benchmarks.startup import resident

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def scaling(options: Options) -> list[Line]:
    """1 to 1024 × CartPole-v1 in 1 and 2 workers: speed, start-up and memory.

    Steps per second with random actions; seconds from `make_batch_env` until the first `reset` has
    returned; memory is the resident set of this process and its workers after that, in MB of 10⁶
    bytes, pages that they share counted in each. One repeat each.
    """
    seconds = 0.2 if options.quick else 0.5
    lines = []
    for workers in (1, 2):
        for num_envs in SIZES[::5] if options.quick else SIZES:
            if num_envs < workers:
                continue
            kwargs = {'num_envs': num_envs, 'workers': workers}
            what = f'{num_envs} × {tasks.CART_POLE}, {workers} worker{"s" * (workers > 1)}'
            for unit, function, given, lower in (
                ('steps/s', steps_per_second, {**kwargs, 'seconds': seconds}, False),
                ('s', start, kwargs, True),
                ('MB', memory, kwargs, True),
            ):
                (figures,) = contest([[Contender(f'{what}, {unit}', function, given)]], 1)
                lines.append(Line(what, unit, figures, lower_is_better=lower))
    return lines


def steps_per_second(num_envs: int, workers: int, seconds: float) -> float:
    return stepping.rate(_make(num_envs, workers), num_envs, tasks.CART_POLE, seconds)


def start(num_envs: int, workers: int) -> float:
    from agents import tools

    assert tools.make_batch_env  # Imported now, for packages import lazily.
    begin = time.perf_counter()
    with _make(num_envs, workers) as env:
        env.reset(seed=0)
        return time.perf_counter() - begin


def memory(num_envs: int, workers: int) -> float:
    with _make(num_envs, workers) as env:
        env.reset(seed=0)
        pids = ['self', *(str(batch.worker.pid) for batch in env._batches)]
        return sum(map(resident, pids)) / 1e6


def _make(num_envs: int, workers: int) -> Any:
    from agents import tools

    return tools.make_batch_env(tasks.maker(tasks.CART_POLE), num_envs, workers)
