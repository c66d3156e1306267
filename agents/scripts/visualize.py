"""Show what a run has learned: play episodes and film them.

    python3 -m agents.scripts.visualize --logdir=RUN_FOLDER --outdir=FOLDER

Writes a video and a contact sheet of each episode, stats.json, and index.html, one page with all of
it that can be sent to others.
"""

import contextlib
import dataclasses
import errno
import functools
import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from agents.algorithms.hyperparameters import field
from agents.scripts import (
    environments,
    flags,
    page,
    quiet,
    rendering,
    runs,
    saved_spaces,
    scores,
    signals,
    summaries,
    videos,
)
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Flags."""

    logdir: str = field('', 'Folder of the run.')
    outdir: str = field('', 'Where to write; made if it is not there.')
    checkpoint: str = field('newest', 'Which one to restore: newest, best, or like step-1000.')
    num_episodes: int = field(5, 'Episodes to play, >= 1.')
    num_envs: int = field(1, 'Environments that play at once, >= 1.')
    seed: int | None = field(None, 'Another one plays other episodes, >= 0.')
    env_processes: bool = field(
        False, 'One process of environments per core, not one for all of them.'
    )
    stochastic: bool = field(False, 'Sample actions as in training, not the most likely ones.')

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ('logdir', 'outdir'):
            if not getattr(self, name):
                raise UserError(f'--{name} must be given. --help shows all flags.')
        for name, least in {'num_episodes': 1, 'num_envs': 1, 'seed': 0}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f'{name} must be at least {least}, got {name}={value}.')


def main(argv: Sequence[str] | None = None) -> int:
    """Film a run as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 0, 2 for a mistake of the user, or 128 plus the number of a signal.
    """
    with signals.handled():
        try:
            given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments)
            if given.pop('help', False):
                print(flags.describe(__doc__, Arguments(logdir='FOLDER', outdir='FOLDER')))
                return 0
            arguments = Arguments(**given)
            with _without_log():
                stats = visualize(arguments)
            print(describe(stats))
            print(f'Page: {pathlib.Path(arguments.outdir).expanduser().absolute() / "index.html"}')
            return 0
        except UserError as error:
            print(f'visualize: error: {error}', file=sys.stderr)
            return 2
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            print(f'visualize: error: {error}. Nothing was changed.', file=sys.stderr)
            return 2
        except KeyboardInterrupt as stop:
            print('Stopped before everything was written.', file=sys.stderr)
            return 128 + getattr(stop, 'signum', signal.SIGINT)


def visualize(arguments: Arguments) -> dict[str, Any]:
    """Play episodes of a run, film them, and write everything to a folder.

    Args:
        arguments: Flags.

    Returns:
        What stats.json holds.

    Raises:
        UserError: Something that is needed is not there.
        OSError: The disk is full.
    """
    run = runs.open_folder(arguments.logdir)
    saved = runs.load_config(run)
    config = to_play(saved, arguments.env_processes)
    rendering.require(matplotlib='matplotlib')
    rendering.choose_backend(config.env)
    rendering.check(
        functools.partial(environments.make_env, config.env, config.env_kwargs, config.wrappers)
    )
    quiet.import_tensorflow(config)
    from agents.scripts import player, policies  # Not above: these import TensorFlow.

    restored = policies.restore(run, config, *saved_spaces.load(run), arguments.checkpoint)
    count = arguments.num_episodes
    seeds = [player.play_seed(config.seed, arguments.seed, index) for index in range(count)]
    algorithm = restored.algorithm
    if arguments.stochastic:
        algorithm = player.Sampling(algorithm, seeds[0])
    with replacing(arguments.outdir) as folder:
        videos.check(folder)
        num_envs = min(arguments.num_envs, count)
        episodes = player.play(config, algorithm, seeds, num_envs, folder)
        stats = summarize(run, config, restored.path, arguments, seeds, episodes)
        _write(folder, stats, saved)
    return stats


def to_play(config: Config, env_processes: bool) -> Config:
    """Change the config of a run so that its environments can be filmed.

    Args:
        config: Config of a run.
        env_processes: Whether to use one process per core, not one for all environments.
    """
    return dataclasses.replace(
        config,
        engine='process',  # Others have no frames.
        env_kwargs={**config.env_kwargs, 'render_mode': 'rgb_array'},
        num_workers=-1 if env_processes else 1,  # Never with TensorFlow: see `videos.Recorder`.
    )


@contextlib.contextmanager
def replacing(outdir: str) -> Iterator[pathlib.Path]:
    """Let files be written to a temporary folder, and put them into a folder when all went well.

    Args:
        outdir: The folder; films of earlier calls that have no successor are deleted.

    Raises:
        UserError: The folder cannot be made or written.
    """
    target = pathlib.Path(outdir).expanduser().absolute()
    made = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        temporary = pathlib.Path(tempfile.mkdtemp(prefix='.visualize-', dir=target))
    except OSError as error:
        raise UserError(
            f'The outdir must be a folder that can be written, got {outdir!r}: {error.strerror}.'
        ) from None
    try:
        yield temporary
        with signals.deferred():
            for old in target.iterdir():
                film = re.fullmatch(r'episode-\d+\.(mp4|png)', old.name)
                if film and not (temporary / old.name).exists():
                    old.unlink()
            for new in temporary.iterdir():
                new.replace(target / new.name)
    finally:
        shutil.rmtree(temporary)
        if made and not any(target.iterdir()):
            target.rmdir()


def summarize(
    run: runs.Run,
    config: Config,
    checkpoint: pathlib.Path,
    arguments: Arguments,
    seeds: Sequence[int],
    episodes: Any,
) -> dict[str, Any]:
    """Say what was played and how it went, as plain data.

    Args:
        run: The run.
        config: Its config.
        checkpoint: What was restored, without suffix.
        arguments: Flags.
        seeds: Seed of each episode, [N].
        episodes: Scores, lengths and how the episodes ended, [N].
    """
    from agents.scripts import checkpoints

    step = checkpoints.step(checkpoint)
    return {
        'run': str(run.folder),
        'task': config.env,
        'checkpoint': str(checkpoint.relative_to(checkpoints.folder(run))),
        'step': step,
        'training_score': training_score(run, step),
        'seeds': 'fresh seeds, of neither training nor evaluation',
        'stochastic': arguments.stochastic,
        'summary': summaries.summarize(*episodes),
        'episodes': [
            {
                'episode': index,
                'seed': seed,
                'score': float(episodes.score[index]),
                'length': int(episodes.length[index]),
                'end': next(
                    end
                    for end in ('terminated', 'truncated', 'cut')
                    if getattr(episodes, end)[index]
                ),
            }
            for index, seed in enumerate(seeds)
        ],
    }


def training_score(run: runs.Run, step: int) -> float | None:
    """Find the best mean score of the evaluations that a run made at a step, if it made any."""
    records = scores.read_lines(run.folder / 'metrics.jsonl')
    found = [x['score'] for x in records if x['phase'] == 'eval' and x['step'] == step]
    return max((score for score in found if score is not None), default=None)


def describe(stats: dict[str, Any]) -> str:
    """Write a table of the episodes.

    Args:
        stats: Content of stats.json.
    """
    lines = ['episode        seed         score      length  end']
    lines += [
        f'{x["episode"]:>7}  {x["seed"]:>10}  {page.number(x["score"]):>12}  {x["length"]:>10,}  '
        f'{x["end"]}'
        for x in stats['episodes']
    ]
    summary = stats['summary']
    score = f'{page.number(summary["score"])} ± {page.number(summary["score_std"])}'
    lines.append(f'Mean score {score} of {stats["checkpoint"]}, on {stats["seeds"]}.')
    return '\n'.join(lines)


def _write(folder: pathlib.Path, stats: dict[str, Any], config: Config) -> None:
    """Name the films by their episodes, and write stats.json and index.html."""
    from agents.scripts import curves  # Not above: matplotlib may be missing.

    films = []
    for episode in stats['episodes']:
        films.append(folder / f'episode-{episode["episode"]}.mp4')
        for film in (films[-1], films[-1].with_suffix('.png')):
            (folder / f'{episode["seed"]}{film.suffix}').rename(film)
    (folder / 'stats.json').write_text(json.dumps(stats, indent=2) + '\n', encoding='utf-8')
    texts = {name: flags.to_text(value) for name, value in dataclasses.asdict(config).items()}
    text = page.write(stats, films, curves.draw_run(pathlib.Path(stats['run'])), texts)
    (folder / 'index.html').write_text(text, encoding='utf-8')


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Remove the log that MuJoCo writes into the working directory for some models."""
    log = pathlib.Path('MUJOCO_LOG.TXT').absolute()
    there = log.exists()
    try:
        yield
    finally:
        if not there:
            log.unlink(missing_ok=True)


if __name__ == '__main__':
    sys.exit(main())
