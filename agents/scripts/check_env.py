"""Check whether an environment is fit for training in batches and processes.

    python3 -m agents.scripts.check_env --env=CartPole-v1

Runs Gymnasium's own checker and what that lacks. Each line says what must hold: ✓ it does, ✗ it
does not, – it could not be checked. The exit code is 0 if nothing failed, and else 1.
"""

import dataclasses
import functools
import signal
import sys
from collections.abc import Sequence
from typing import Any

from agents.algorithms.hyperparameters import field
from agents.scripts import environments, flags, signals
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.tools.checking.report import Report, Result, check_env


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Flags."""

    env: str = field('', 'Registered task, or module:Task-v0 to import a module first.')
    env_kwargs: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={'help': 'Keyword arguments of the task, like {g: 9.8}.'}
    )
    wrappers: tuple[Any, ...] = field(
        (), 'Wrappers, innermost first: Name, module:Name, or {Name: {argument: value}}.'
    )
    seconds: float = field(20.0, 'How long it may take, roughly, > 0.')
    seed: int = field(0, 'Seed of the environment and of the random actions, >= 0.')

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.env:
            raise UserError('--env must be given. --help shows all flags.')
        if not self.seconds > 0:
            raise UserError(f'seconds must be above 0, got seconds={self.seconds:g}.')
        if self.seed < 0:
            raise UserError(f'seed must be at least 0, got seed={self.seed}.')


def main(argv: Sequence[str] | None = None) -> int:
    """Check an environment as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 0, 1 if a check failed, 2 for a mistake of the user, or 128 plus the number of a
        signal.
    """
    with signals.handled():
        try:
            given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments)
            if given.pop('help', False):
                print(flags.describe(__doc__, Arguments(env='TASK')))
                return 0
            report = check(Arguments(**given))
            print(f'\n{report.conclusion}')
            return 0 if report.ok else 1
        except UserError as error:
            print(f'check_env: error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt as stop:
            print('Stopped.', file=sys.stderr)
            return 128 + getattr(stop, 'signum', signal.SIGINT)


def check(arguments: Arguments) -> Report:
    """Check an environment and print each result as soon as there is one.

    Args:
        arguments: Flags.

    Raises:
        UserError: There is no such task or wrapper, or something else must be installed.
    """
    config = Config(
        env=arguments.env,
        env_kwargs=arguments.env_kwargs,
        wrappers=arguments.wrappers,
        seed=arguments.seed,
    )
    environments.check(config)
    make = functools.partial(environments.make_env, config.env, config.env_kwargs, config.wrappers)
    return check_env(make, seconds=arguments.seconds, seed=config.seed, on_result=_print)


def _print(result: Result) -> None:
    if isinstance(result.error, UserError):
        raise result.error
    print(result, flush=True)


if __name__ == '__main__':
    sys.exit(main())
