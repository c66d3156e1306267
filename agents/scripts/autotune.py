"""Find what trains fastest on this machine: engine, worker processes and number of environments.

    python3 -m agents.scripts.autotune --config=NAME [--seconds=60] [--FIELD=VALUE ...]

Every field of the config is a flag. Each way is trained for some seconds in a process of its own,
without being stored; what was fastest is printed as flags for `train`. Steps of a rollout stay the
same: with twice the environments each makes half the steps. How well it learns may differ a little.
"""

import dataclasses
import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from agents.algorithms.hyperparameters import field
from agents.scripts import configs, engines, environments, flags, runs, signals
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.tools.make_batch import usable_cores

# What is changed; the flags of the result.
_FIELDS = ('engine', 'num_workers', 'num_envs', 'horizon')
_SHORTEST = 16  # Steps of each environment in a rollout; advantages over fewer say little.
_MEASURE_SECONDS = 3.0
_TIMEOUT = 120.0  # Seconds for one way, compilation included.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Flags that are no part of the config."""

    config: str = field('', f'What to train: {", ".join(configs.TASKS)}.')
    seconds: float = field(60.0, 'After this time nothing more is tried, > 0.')

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.config:
            raise UserError(f'--config must be given: {", ".join(configs.TASKS)}.')
        if not self.seconds > 0:
            raise UserError(f'seconds must be above 0, got seconds={self.seconds:g}.')


def main(argv: Sequence[str] | None = None) -> int:
    """Find the fastest way as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 0, 1 if nothing could be trained, 2 for a mistake of the user, or 128 plus the
        number of a signal.
    """
    with signals.handled():
        try:
            given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments, Config)
            if given.pop('help', False):
                defaults = configs.get(given['config']) if 'config' in given else Config()
                print(flags.describe(__doc__, Arguments(config='NAME'), defaults))
                return 0
            names = [argument.name for argument in dataclasses.fields(Arguments)]
            arguments = Arguments(**{name: given.pop(name) for name in names if name in given})
            config = dataclasses.replace(configs.get(arguments.config), **given)
            environments.check(config)
            return show(arguments, config, given)
        except UserError as error:
            print(f'autotune: error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt as stop:
            print('Stopped.', file=sys.stderr)
            return 128 + getattr(stop, 'signum', signal.SIGINT)


def show(arguments: Arguments, config: Config, given: dict[str, Any]) -> int:
    """Try ways to train, and print each one and the fastest.

    Args:
        arguments: Flags that are no part of the config.
        config: What to train.
        given: Fields of the config that were flags.

    Returns:
        Exit code: 1 if nothing could be trained.
    """
    print(f'{config.env}, rollouts of {config.num_envs * config.horizon:,} steps.', flush=True)
    search = Search(config, time.monotonic() + arguments.seconds)
    for changed, rate, problem in search.run():
        text = f'{rate:>12,.0f} steps/s' if rate else f'failed: {problem}'
        print(f'{_describe(changed):<72}{text}', flush=True)
    if not search.trained:
        print('Nothing could be trained.', file=sys.stderr)
        return 1
    best, fastest = search.best
    fields = {**given, **_changes(configs.get(arguments.config), best)}
    words = [f'--{name}={flags.to_text(value)}' for name, value in fields.items()]
    first, rate = search.trained[0]
    if first == config:
        print(f'The fastest trains {fastest / rate:.2f} × as fast as the first. To use it:')
    print(' '.join(['python3 -m agents.scripts.train', f'--config={arguments.config}', *words]))
    return 0


class Search:
    """Tries one change after the other, and keeps those that are faster.

    Attributes:
        trained: What could be trained, in order, with its steps per second.
    """

    def __init__(self, config: Config, deadline: float):
        """Begin with a config.

        Args:
            config: What to train.
            deadline: When to begin nothing more, on the monotonic clock.
        """
        self.trained: list[tuple[Config, float]] = []
        self._config = config
        self._deadline = deadline

    def run(self) -> Iterator[tuple[Config, float, str]]:
        """Try the config, then engines, workers, and numbers of environments for the best.

        Yields:
            A config, its steps per second, and what went wrong if that is 0.
        """
        yield from self._try([self._config])
        yield from self._try(_engines(self._config))
        yield from self._try(_workers(self.best[0]))
        while self._can_go_on:
            before = self.best[0]
            yield from self._try(_more_environments(before))
            if self.best[0] == before:
                return

    @property
    def best(self) -> tuple[Config, float]:
        """The fastest, and its steps per second."""
        return max(self.trained, key=lambda pair: pair[1], default=(self._config, 0.0))

    @property
    def _can_go_on(self) -> bool:
        return time.monotonic() < self._deadline

    def _try(self, candidates: Sequence[Config]) -> Iterator[tuple[Config, float, str]]:
        for config in candidates:
            if not self._can_go_on:
                return
            rate, problem = measure(config)
            if rate:
                self.trained.append((config, rate))
            yield config, rate, problem


def measure(config: Config, seconds: float = _MEASURE_SECONDS) -> tuple[float, str]:
    """Train in a process of its own.

    Args:
        config: What to train.
        seconds: How long to measure, after compilation.

    Returns:
        Steps per second and '', or 0 and what went wrong.
    """
    command = [sys.executable, '-m', 'agents.scripts.speed', str(seconds)]
    try:
        process = subprocess.run(
            command,
            input=runs.to_yaml(runs.to_plain(config)),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return 0.0, f'took more than {_TIMEOUT:.0f} seconds'
    if process.returncode:
        return 0.0, (process.stderr.strip().splitlines() or ['no reason given'])[-1]
    return float(process.stdout.split()[-1]), ''


def _engines(config: Config) -> list[Config]:
    """Return the config with each other engine that has its task and is installed."""
    if config.wrappers or ':' in config.env:
        return []
    names = engines.engines_of(config.env)
    if importlib.util.find_spec('envpool'):
        names.append('envpool')  # Whether it has the task, it says itself.
    found = []
    for name in names:
        changed = dataclasses.replace(config, engine=name)
        if changed == config:
            continue
        try:
            engines.check(changed) if name != 'process' else environments.check(changed)
        except UserError:
            continue
        found.append(changed)
    return found


def _workers(config: Config) -> list[Config]:
    """Return the config with other numbers of worker processes."""
    if config.engine != 'process':
        return []
    cores = len(usable_cores())
    tried = cores if config.num_workers < 0 else config.num_workers
    numbers = sorted({0, max(1, cores // 2), cores} - {tried})
    return [dataclasses.replace(config, num_workers=number) for number in numbers]


def _more_environments(config: Config) -> list[Config]:
    """Return the config with twice the environments, each of which makes half the steps."""
    if config.horizon % 2 or config.horizon // 2 < _SHORTEST:
        return []
    return [dataclasses.replace(config, num_envs=2 * config.num_envs, horizon=config.horizon // 2)]


def _changes(before: Config, after: Config) -> dict[str, Any]:
    return {
        name: getattr(after, name)
        for name in _FIELDS
        if getattr(after, name) != getattr(before, name)
    }


def _describe(config: Config) -> str:
    words = [f'engine={config.engine}']
    if config.engine == 'process':
        number = config.num_workers
        words.append(f'num_workers={number if number >= 0 else "-1 (one per core)"}')
    return ' '.join([*words, f'num_envs={config.num_envs} horizon={config.horizon}'])


if __name__ == '__main__':
    sys.exit(main())
