"""Checks whether an environment is fit for training in batches and processes, and tells it."""

import dataclasses
import functools
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cloudpickle
import gymnasium

from agents.tools.batch_env import BatchEnv
from agents.tools.checking import examiner, last_words
from agents.tools.wrappers.external_process import (
    ExternalProcess,
    WorkerError,
    WorkerTimeout,
    check_constructors,
)

_WIDTH = 100
_MARKS = {True: '✓', False: '✗', None: '–'}


class Check(NamedTuple):
    """One of the checks.

    Attributes:
        name: Name.
        rule: What must hold.
        advice: What to do if it does not.
        needs: Checks that must be passed before.
    """

    name: str
    rule: str
    advice: str
    needs: tuple[str, ...] = ()


_SEEDED = 'Draw every random number from self.np_random, which super().reset(seed=seed) seeds'
_PLAYED = ('episodes',)
_COMPARED = ('episodes', 'observations', 'rewards', 'globals', 'instances')

CHECKS = (
    Check(
        'constructor',
        'It can be made, and in another process.',
        'Make what cannot be sent, such as locks, files and models, inside the function; define '
        'its classes where that process can import them.',
    ),
    Check(
        'spaces',
        'Batches can hold its spaces.',
        '',
        ('constructor',),
    ),
    Check(
        'episodes',
        'Random actions raise no error.',
        'Mend the error; every action of the action space must be allowed.',
        ('spaces',),
    ),
    Check(
        'observations',
        'They fit the observation space and are finite.',
        'Return what observation_space says, or correct that: shape, dtype, low and high.',
        _PLAYED,
    ),
    Check('rewards', 'They are finite numbers.', 'Return float(reward).', _PLAYED),
    Check('flags', 'terminated and truncated are bools.', 'Return bool(flag).', _PLAYED),
    Check('buffers', 'Observations need not be fresh arrays.', '', _PLAYED),
    Check(
        'repetition',
        'Reset with the same seed, it does the same again.',
        f'{_SEEDED}, and let reset forget all of the episode before.',
        _PLAYED,
    ),
    Check(
        'globals',
        'It leaves the global random state alone.',
        f'{_SEEDED}, none from the modules random and numpy.random: environments of one process '
        'share these.',
        ('repetition',),
    ),
    Check(
        'instances',
        'Another instance does the same.',
        'Keep nothing in variables of the class or module, such as counters.',
        ('repetition',),
    ),
    Check(
        'process',
        'In another process it does the same.',
        'Depend on nothing that differs there: process id, hash() of text, order of sets, time.',
        _COMPARED,
    ),
    Check(
        'batch',
        'Among others that are stepped in between, too.',
        'Share nothing that changes between instances: no variables of the class or module, no '
        'common simulator.',
        _COMPARED,
    ),
    Check(
        'time limit',
        'An episode at its time limit is truncated.',
        'Return truncated=True and terminated=False where only the time is up; '
        'gymnasium.make(..., max_episode_steps=N) does it. A limit that counts as the end of the '
        'world teaches wrong values.',
        _PLAYED,
    ),
    Check(
        'memory',
        'It does not grow with steps and episodes.',
        'Look for lists and caches that are never emptied, and for what is made anew in reset '
        'without freeing the former.',
        _PLAYED,
    ),
    Check('speed', 'Measured in one process.', '', _PLAYED),
    Check(
        'gymnasium',
        "Gymnasium's own checker finds no fault.",
        'See https://gymnasium.farama.org/introduction/create_custom_env/.',
        _PLAYED,
    ),
    Check(
        'closing',
        'It can be closed, closed twice, and made anew.',
        'Let close do nothing the second time, and free all that reset needs.',
        _PLAYED,
    ),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of one check.

    Attributes:
        check: The check.
        ok: Whether it was passed, None if it could not be made.
        seen: What was seen, or why it could not be made; may be empty.
        error: What making the environment raised.
    """

    check: Check
    ok: bool | None
    seen: str = ''
    error: Exception | None = None

    def __str__(self) -> str:
        first, *notes = self.seen.split('\n')
        line = self.check.rule if self.ok is not None else f'Not checked: {first}.'
        lines = [f'{_MARKS[self.ok]} {self.check.name:<13} {line}']
        if self.ok is False:
            lines.append(_wrap(f'Seen: {first}.'))
            if self.check.advice:
                lines.append(_wrap(f'Mend: {self.check.advice}'))
        elif self.ok and first:
            lines[0] = f'{lines[0].removesuffix(".")} ({first}).'
        return '\n'.join([*lines, *map(_wrap, notes)])


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of all checks; as text, a table of them.

    Attributes:
        results: One for each check, in the order of `CHECKS`.
    """

    results: Sequence[Result]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(result.ok is not False for result in self.results)

    @property
    def conclusion(self) -> str:
        """One sentence."""
        failed = sum(result.ok is False for result in self.results)
        skipped = sum(result.ok is None for result in self.results)
        rest = f' {skipped} could not be made.' if skipped else ''
        if failed:
            return f'Not fit for training yet: {failed} of {len(self.results)} checks failed.{rest}'
        passed = len(self.results) - skipped
        return f'Fit for training in batches and processes: {passed} checks passed.{rest}'

    def __getitem__(self, name: str) -> Result:
        """Return the result of the check of this name."""
        return next(result for result in self.results if result.check.name == name)

    def __str__(self) -> str:
        return '\n'.join([*map(str, self.results), '', self.conclusion])


def check_env(
    constructor: Callable[[], gymnasium.Env],
    *,
    seconds: float = 20.0,
    seed: int = 0,
    on_result: Callable[[Result], object] = lambda result: None,
) -> Report:
    """Check whether an environment is fit for training in batches and processes.

    Everything happens in another process, so that an environment that hangs or crashes can be told
    from one that does not.

    Args:
        constructor: Function that makes the environment, as for `make_batch_env`.
        seconds: How long all checks may take together, roughly; what takes much longer counts as
            hanging. More time finds smaller growth of memory.
        seed: Seed of the environment and of the actions.
        on_result: Called with each result as soon as there is one.

    Returns:
        Report with `ok` and `results`; `print` it.

    Raises:
        TypeError: The constructor is not a function.
        ValueError: The time is not positive.
    """
    check_constructors([constructor])
    if not seconds > 0:
        raise ValueError(f'Time must be positive, got seconds={seconds}.')
    results: list[Result] = []

    def add(result: Result) -> None:
        results.append(result)
        on_result(result)

    try:
        cloudpickle.dumps(constructor)
    except Exception as error:
        add(Result(CHECKS[0], False, f'it cannot be sent: {_text(error)}'))
        for check in CHECKS[1:]:
            add(Result(check, None, _lacking(check, results)))
        return Report(results)
    with tempfile.NamedTemporaryFile(prefix='check-env-') as output:
        make = functools.partial(examiner.Examiner.begin, output.name, constructor, seconds, seed)
        died = ''
        with ExternalProcess(make, timeout=seconds + examiner.START_SECONDS) as process:
            for check in CHECKS:
                if lacking := died or _lacking(check, results):
                    add(Result(check, None, lacking))
                    continue
                try:
                    add(_judge(_ask(process, check), results))
                except WorkerError as error:
                    died = f'the process did not survive "{check.name}"'
                    place = last_words.read(output.name)
                    add(Result(check, False, _explain(error, seconds) + place))
    return Report(results)


def _ask(process: BatchEnv, check: Check) -> Result:
    """Let the worker make a check."""
    if check.name == 'constructor':
        try:
            ((ok, seen),) = process.call('construct')
        except WorkerError:
            raise
        except Exception as error:
            return Result(check, False, _text(error), error)
    else:
        ((ok, seen),) = process.call('check', check.name.replace(' ', '_'))
    return Result(check, ok, seen)


def _judge(result: Result, results: Sequence[Result]) -> Result:
    """Leave open whether Gymnasium's checker found more than what others found before it."""
    if result.check.name != 'gymnasium' or result.ok or Report(results).ok:
        return result
    return Result(result.check, None, f'it stops at its first fault, "{result.seen}"')


def _lacking(check: Check, results: Sequence[Result]) -> str:
    """Say which check must be passed before this one, if any."""
    for result in results:
        if not result.ok and result.check.name in check.needs:
            return f'"{result.check.name}" must hold first' if result.ok is False else result.seen
    return ''


def _explain(error: WorkerError, seconds: float) -> str:
    """Tell how a worker ended in words about the environment."""
    if isinstance(error, WorkerTimeout):
        return f'it hangs: no answer within {seconds + examiner.START_SECONDS:g} seconds'
    return f'it crashes: {str(error).replace(" of environment 0", "")}'.removesuffix('.')


def _text(error: Exception) -> str:
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


def _wrap(text: str) -> str:
    indent = ' ' * 16
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
