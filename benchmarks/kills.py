"""Train while workers are killed, and compare: python3 -m benchmarks.kills --logdir=DIR.

Every seed is trained twice, once undisturbed and once with a random worker process killed again and
again. Prints the scores of both, and whether the interquartile mean of the disturbed runs lies in
the 95 % bootstrap interval of the others. The exit code is 1 if it does not, if a run failed, or if
one had too few kills.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from benchmarks.alone import environ
from benchmarks.intervals import interquartile_mean, interval

FEWEST_KILLS = 20


class Result(NamedTuple):
    """What came of a run.

    Attributes:
        score: Mean score of the evaluation at the end.
        kills: Workers that were killed.
        failures: Failures of workers that the run counted itself.
        seconds: How long it took.
    """

    score: float
    kills: int
    failures: int
    seconds: float


def train(logdir: pathlib.Path, config: str, seed: int, every: float) -> Result:
    """Train once in a process of its own.

    Args:
        logdir: Where the run folder goes.
        config: Name of the config.
        seed: Seed of the run, and of what is killed when.
        every: Mean seconds between kills; 0 for none.

    Raises:
        RuntimeError: The run failed; its output is the message.
    """
    folder = logdir / f'{config}-{seed}-{"killed" if every else "undisturbed"}'
    command = [sys.executable, '-m', 'agents.scripts.train', f'--logdir={folder}']
    command += [f'--config={config}', f'--seed={seed}', '--on_worker_failure=restart']
    folder.mkdir(parents=True)
    rng, kills, begin = random.Random(seed), 0, time.monotonic()
    with open(folder / 'output.txt', 'w') as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environ())
        try:
            while process.poll() is None:
                time.sleep(rng.uniform(0.5, 1.5) * (every or 1.0))
                if every and any(folder.glob('*/metrics.jsonl')):  # It has begun to learn.
                    kills += kill_one(process.pid, rng)
        finally:
            process.terminate()
            process.wait()
    seconds = time.monotonic() - begin
    if process.returncode:
        raise RuntimeError((folder / 'output.txt').read_text())
    (path,) = folder.glob('*/metrics.jsonl')
    last = [json.loads(line) for line in path.read_text().splitlines()][-1]
    return Result(last['score'], kills, last['worker_failures'], seconds)


def kill_one(parent: int, rng: random.Random) -> bool:
    """Kill a random worker of a training, if it has any by now.

    Args:
        parent: Process of the training.
        rng: Says which.
    """
    try:
        children = psutil.Process(parent).children()
        workers = [x for x in children if any('wrappers import worker' in y for y in x.cmdline())]
        if workers:
            rng.choice(workers).kill()
        return bool(workers)
    except psutil.NoSuchProcess:  # The training has just ended, or the worker.
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """Compare as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code.
    """
    parser = argparse.ArgumentParser(prog='python3 -m benchmarks.kills', description=__doc__)
    parser.add_argument('--logdir', type=pathlib.Path, required=True, help='For run folders.')
    parser.add_argument('--config', default='cartpole', help='What to train, default cartpole.')
    parser.add_argument('--seeds', type=int, default=5, help='How many, default 5.')
    parser.add_argument(
        '--every', type=float, default=0.5, help='Seconds between kills, default 0.5.'
    )
    args = parser.parse_args(argv)
    scores, fewest = {}, FEWEST_KILLS
    for name, every in (('undisturbed', 0.0), ('killed', args.every)):
        scores[name] = []
        for seed in range(args.seeds):
            result = train(args.logdir, args.config, seed, every)
            scores[name].append(result.score)
            fewest = min(fewest, result.kills) if every else fewest
            print(
                f'{name}, seed {seed}: score {result.score:.1f} in {result.seconds:.0f} s, '
                f'{result.kills} kills, {result.failures} counted by the run',
                flush=True,
            )
    low, high = interval(scores['undisturbed'])
    mean = float(interquartile_mean(scores['killed']))
    print(
        f'interquartile mean of the killed {mean:.1f}; of the others 95 % in {low:.1f}..{high:.1f}'
    )
    return int(not low <= mean <= high or fewest < FEWEST_KILLS)


if __name__ == '__main__':
    sys.exit(main())
