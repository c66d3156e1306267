"""How long a user waits for the first result, and how much memory workers take."""

import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import gymnasium

from benchmarks import alone
from benchmarks.contest import Contender, Line, Options, contest

TASK = 'CartPole-v1'


def startup(options: Options) -> list[Line]:
    """Starting 32 CartPole-v1 in 2 workers, and the memory of a worker with one.

    Seconds from `make_batch_env` until the first `reset` has returned, in a process that has
    imported the package and Gymnasium. Memory is the resident set of the worker process after 1000
    steps, in MB of 10⁶ bytes, pages that it shares with other processes included.
    """
    start = Contender('start', start_workers, {'num_envs': 32, 'num_workers': 2})
    memory = Contender('memory', worker_memory)
    seconds, megabytes = contest([[start], [memory]], options.repeats, lower_is_better=True)
    return [
        Line(f'start 32 × {TASK}, 2 workers', 's', seconds, below=3.0, lower_is_better=True),
        Line(f'memory of one {TASK} worker', 'MB', megabytes, below=120.0, lower_is_better=True),
    ]


def first_score(options: Options) -> list[Line]:
    """From a command to its first evaluation score.

    Seconds from starting `python3 -m agents.scripts.train --config=pendulum` until the line with
    the score of the first evaluation is printed: imports, compilation and training included.
    """
    sides = [[Contender('first score', wait_for_score)]]
    (seconds,) = contest(sides, options.repeats, lower_is_better=True)
    what = 'train --config=pendulum to the first score'
    return [Line(what, 's', seconds, below=30.0, lower_is_better=True)]


def start_workers(num_envs: int, num_workers: int) -> float:
    from agents import tools

    make_batch_env = tools.make_batch_env  # Imported now, for packages import lazily.
    begin = time.perf_counter()
    with make_batch_env(lambda: gymnasium.make(TASK), num_envs, num_workers) as env:
        env.reset(seed=0)
        return time.perf_counter() - begin


def worker_memory() -> float:
    from agents import tools

    def make() -> gymnasium.Env:
        env = gymnasium.make(TASK)
        env.unwrapped.pid = os.getpid()
        return env

    with tools.make_batch_env(make, 1, 1) as env:
        env.reset(seed=0)
        for step in range(1000):
            env.step([step % 2])
        (pid,) = env.get_attr('pid')
        return resident(pid) / 1e6


def resident(pid: int | str) -> int:
    """Return the resident memory of a process, bytes; of this one for 'self'."""
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return int(re.search(r'VmRSS:\s+(\d+) kB', status)[1]) * 1024


def wait_for_score(flags: tuple[str, ...] = ('--config=pendulum',)) -> float:
    """Seconds from the command to the first line with the score of an evaluation."""
    return run_until([sys.executable, '-m', 'agents.scripts.train', *flags], is_score)


def run_until(command: Sequence[str], is_it: Callable[[str], bool]) -> float:
    """Seconds from a command's start until it prints a certain line; the command is ended then.

    Args:
        command: Words of the command.
        is_it: Whether it is that line.

    Raises:
        RuntimeError: The command ends before that.
    """
    begin = time.perf_counter()
    with subprocess.Popen(command, env=alone.environ(), stdout=subprocess.PIPE, text=True) as run:
        try:
            for line in run.stdout:
                if is_it(line):
                    return time.perf_counter() - begin
            raise RuntimeError(f'{" ".join(command)} ended before the line that was awaited.')
        finally:
            run.terminate()
            run.communicate()  # Reads on, so that the command is not stuck at printing.


def is_score(line: str) -> bool:
    """Whether a printed line is that of an evaluation, like 'step 3,200 eval score -700.1'."""
    return bool(re.search(r'eval.*score\D*\d', line, re.IGNORECASE))
