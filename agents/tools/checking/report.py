"""Checks whether an environment is fit for training in batches and processes, and tells it."""

import dataclasses
import functools
import tempfile
import textwrap
from collections.abc import Callable, Sequence

import cloudpickle
import gymnasium

from agents.tools.batch_env import BatchEnv
from agents.tools.checking import last_words
from agents.tools.checking.checks import CHECKS, Check
from agents.tools.checking.examiner import Examiner
from agents.tools.wrappers.external_process import (
    ExternalProcess,
    WorkerError,
    WorkerTimeout,
    check_constructors,
)

_START_SECONDS = 10.0  # What starting processes may take beyond the time for the checks.
_WIDTH, _INDENT = 100, 16  # Characters.
_MARKS = {True: '✓', False: '✗', None: '–'}


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
        head = f'{_MARKS[self.ok]} {self.check.name}'.ljust(_INDENT)
        if self.ok is None:
            return _wrap(f'Not checked: {first}.', head)
        if self.ok:
            rule = f'{self.check.rule.removesuffix(".")} ({first}).' if first else self.check.rule
            return '\n'.join([_wrap(rule, head), *map(_wrap, notes)])
        lines = [_wrap(self.check.rule, head), _wrap(f'Seen: {first}.')]
        return '\n'.join(lines + [_wrap(f'Mend: {x}') for x in [self.check.advice] if x])


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
        patience = seconds + _START_SECONDS
        make = functools.partial(Examiner.begin, output.name, constructor, seconds, seed, patience)
        died = ''
        with ExternalProcess(make, timeout=patience) as process:
            for check in CHECKS:
                if lacking := died or _lacking(check, results):
                    add(Result(check, None, lacking))
                    continue
                try:
                    add(_judge(_ask(process, check), results))
                except WorkerError as error:
                    died = f'the process did not survive "{check.name}"'
                    place = last_words.read(output.name)
                    add(Result(check, False, _explain(error, patience) + place))
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


def _explain(error: WorkerError, patience: float) -> str:
    """Tell how a worker ended in words about the environment."""
    if isinstance(error, WorkerTimeout):
        return f'it hangs: no answer within {patience:g} seconds'
    return f'it crashes: {str(error).replace(" of environment 0", "")}'.removesuffix('.')


def _text(error: Exception) -> str:
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


def _wrap(text: str, head: str = '') -> str:
    indent = ' ' * _INDENT
    return textwrap.fill(text, _WIDTH, initial_indent=head or indent, subsequent_indent=indent)
