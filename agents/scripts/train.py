"""Train an agent.

    python3 -m agents.scripts.train --logdir=FOLDER --config=NAME [--FIELD=VALUE ...]

Every field of the config is a flag. Without --logdir nothing is stored. To go on with a run that
was stopped, add its --timestamp.
"""

import contextlib
import dataclasses
import signal
import sys
from collections.abc import Generator, Sequence
from typing import Any

from agents.algorithms.hyperparameters import field
from agents.scripts import configs, flags, quiet, runs, signals
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.scripts.progress import Progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Flags that are no part of the config."""

    config: str = field('', f'What to train: {", ".join(configs.TASKS)}.')
    logdir: str = field('', 'Folder of runs; each is the folder <timestamp>-<config> in it.')
    timestamp: str = field('', 'Run to go on with; the name of a new one if there is none yet.')


def main(argv: Sequence[str] | None = None) -> int:
    """Train as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 0, 2 for a mistake of the user, or 128 plus the number of a signal.
    """
    with signals.handled():
        try:
            given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments, Config)
            if given.pop('help', False):
                defaults = configs.get(given['config']) if 'config' in given else Config()
                print(flags.describe(__doc__, Arguments(), defaults))
                return 0
            names = [argument.name for argument in dataclasses.fields(Arguments)]
            arguments = Arguments(**{name: given.pop(name) for name in names if name in given})
            run, config = find_run(arguments, given)
            check(config)
            if arguments.logdir and not run:
                run = runs.create(arguments.logdir, arguments.config, config, arguments.timestamp)
            return show(config, run)
        except (UserError, MemoryError) as error:
            print(f'train: error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt as stop:
            print('Stopped before training began.', file=sys.stderr)
            return _exit_code(stop)


def find_run(arguments: Arguments, overrides: dict[str, Any]) -> tuple[runs.Run | None, Config]:
    """Find the run to go on with, and the config to train.

    Args:
        arguments: Flags that are no part of the config.
        overrides: Fields of the config that were given.

    Returns:
        The run, None for a new one, and its config with the overrides.

    Raises:
        UserError: Something that was asked for is not there, or contradicts the run.
    """
    fresh = configs.get(arguments.config) if arguments.config else None
    if arguments.timestamp:
        if not arguments.logdir:
            raise UserError('--timestamp must come with --logdir, the folder that the run is in.')
        run = runs.find(arguments.logdir, arguments.timestamp, arguments.config)
        if run:
            if not (run.folder / 'checkpoints').exists():
                print('The run has no checkpoint yet: it begins anew.')
            return run, runs.change(runs.load_config(run), overrides)
    if not fresh:
        raise UserError(f'--config must be given: {", ".join(configs.TASKS)}.')
    if arguments.timestamp:
        print(f'There is no run {arguments.timestamp} yet: this begins it.')
    return None, dataclasses.replace(fresh, **overrides)


def check(config: Config) -> None:
    """Find mistakes of the user before anything is written, and import TensorFlow.

    Raises:
        UserError: The config asks for what is not there, or Keras would not run on TensorFlow.
    """
    from agents.scripts import environments

    environments.check(config)
    if config.video_every:
        from agents.scripts import camera

        camera.check(config)
    quiet.import_tensorflow(config)
    if ':' in config.algorithm:
        from agents.scripts import policies

        policies.import_algorithm(config.algorithm)


def show(config: Config, run: runs.Run | None = None) -> int:
    """Train, and print what happens.

    Args:
        config: What to train.
        run: Where to store it; None for nowhere.

    Returns:
        Exit code.
    """
    print(
        f'{config.env}: {config.algorithm} on {config.num_envs} environments, '
        f'{config.updates} updates of {config.num_envs * config.horizon:,} steps.'
    )
    print(f'Run folder: {run.folder}' if run else 'Nothing is stored: no --logdir is given.')
    sys.stdout.flush()
    progress = Progress(config.steps)
    try:
        with (
            run.lock() if run else contextlib.nullcontext(),
            contextlib.closing(train(config, run, progress)) as scores,
        ):
            for _ in scores:
                pass
    except KeyboardInterrupt as stop:
        code = _exit_code(stop)
        print(f'Stopped by {signal.Signals(code - 128).name}.')
        _print_summary(progress, run, ('Go on', ''))
        return code
    print('Done.' if progress.busy else 'This run is finished already.')
    _print_summary(progress, run, ('Train on', f' --steps={config.steps * 2}'))
    return 0


def train(
    config: Config, run: runs.Run | None = None, progress: Progress | None = None
) -> Generator[float, None, None]:
    """Train, and go on where a checkpoint of the run left off.

    Whatever ends it early, Ctrl-C, closing the iterator or an error, a checkpoint is saved first.

    Args:
        config: What to train.
        run: Where to store checkpoints and metrics; None for nowhere.
        progress: Shows how far the training is; None for nothing.

    Yields:
        Mean score of each evaluation; the last one is that at the end.

    Raises:
        UserError: What the config asks for is not there, or the end cannot be stored.
    """
    from agents.scripts.trainer import Trainer  # Not above: TensorFlow takes seconds to import.

    progress = progress or Progress(config.steps, quiet=True)
    with contextlib.closing(Trainer(config, run, progress)) as trainer:
        try:
            # Due work comes first, so that a resumed run makes up for what a signal prevented.
            while not trainer.finished:
                if trainer.evaluation_is_due and not trainer.done:
                    yield trainer.evaluate()
                if trainer.checkpoint_is_due or trainer.done:
                    trainer.save()
                if trainer.done:
                    score = trainer.evaluate(final=True)
                    trainer.save()
                    trainer.finish()
                    yield score
                else:
                    trainer.update()
        except BaseException:  # Whatever stops it: what was learned is kept.
            trainer.save()
            raise


def _print_summary(progress: Progress, run: runs.Run | None, resume: tuple[str, str]) -> None:
    """Print what the run has come to, and commands for what to do next."""
    lines = progress.summary()
    if run:
        label, flag = resume
        lines.append(('Run folder', str(run.folder)))
        if (run.folder / 'checkpoints').exists():
            lines.append(('Watch it', run.visualize_command))
        lines.append(('Curves', run.tensorboard_command))
        lines.append((label, f'{run.resume_command}{flag}'))
    for name, text in lines:
        print(f'{name + ":":<12}{text}')


def _exit_code(stop: KeyboardInterrupt) -> int:
    return 128 + getattr(stop, 'signum', signal.SIGINT)


if __name__ == '__main__':
    sys.exit(main())
