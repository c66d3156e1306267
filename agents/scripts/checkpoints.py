"""The checkpoints of a run: which there are, and restoring one that is whole."""

import contextlib
import pathlib
import re
import shutil
from collections.abc import Sequence

import tensorflow as tf

from agents.scripts.mistakes import UserError, first_line
from agents.scripts.runs import Run

NEWEST, BEST = 'newest', 'best'


def folder(run: Run, best: bool = False) -> pathlib.Path:
    """Return where a run keeps its newest checkpoints, or the one that scored best."""
    newest = run.folder / 'checkpoints'
    return newest / BEST if best else newest


def step(path: pathlib.Path) -> int:
    """Return the steps trained before a checkpoint, from its name `step-<steps>`."""
    return int(path.name.rpartition('-')[2])


def exist(run: Run) -> bool:
    """Return whether there is any checkpoint to go on from, whole or not."""
    return bool(_list(folder(run)))


def find(run: Run, which: str = NEWEST) -> list[pathlib.Path]:
    """Find checkpoints to restore.

    Args:
        run: The run.
        which: 'newest'; 'best', by evaluation score; or a name like 'step-1000'.

    Returns:
        Paths without suffix, what is wanted most first; the others replace it if it is damaged.

    Raises:
        UserError: There is none, or none of this name.
    """
    newest, best = _list(folder(run)), _list(folder(run, best=True))
    if which == NEWEST and newest:
        return newest
    if which == BEST and best:
        return best
    named = [path for path in newest + best if path.name == which]
    if named:
        return named
    if not newest + best:
        raise UserError(
            f'The run must have a checkpoint, got {run.folder} without one. Train it first: '
            f'{run.resume_command}'
        )
    if which == BEST:
        raise UserError(
            f'The best checkpoint is kept at the first evaluation, but {run.folder} has none yet. '
            'Leave --checkpoint out to take the newest one.'
        )
    names = dict.fromkeys(path.name for path in newest + best)
    raise UserError(
        f'The checkpoint must be {NEWEST}, {BEST}, {" or ".join(names)}, got checkpoint={which}.'
    )


def restore(
    checkpoint: tf.train.Checkpoint,
    paths: Sequence[pathlib.Path],
    older: tf.train.Checkpoint | None = None,
) -> pathlib.Path:
    """Restore the first checkpoint that is whole, and say which ones are not.

    Args:
        checkpoint: Objects to restore; each of their variables must be in the file.
        paths: Checkpoints without suffix, what is wanted most first.
        older: The objects that checkpoints of former versions hold.

    Returns:
        The one that was restored.

    Raises:
        UserError: All are damaged, or one is whole but of another algorithm.
    """
    for path in paths:
        damage = find_damage(path)
        if damage is None:
            _read(checkpoint if older is None or _is_recent(checkpoint, path) else older, path)
            return path
        print(f'The checkpoint {path} is damaged and left out: {damage}')
    raise UserError(
        f'A checkpoint must be whole, but {"all are" if len(paths) > 1 else "it is"} damaged in '
        f'{paths[0].parent}. Name another one that is there, or begin a new run.'
    )


def write_list(run: Run, best: bool = False) -> None:
    """Write TensorFlow's own list of the checkpoints from the files that are there.

    TensorFlow stops at an empty list, and never deletes what a torn one does not name.
    """
    place = folder(run, best)
    found, file = _list(place)[::-1], place / 'checkpoint'
    text = file.read_text(errors='replace') if file.exists() else ''
    listed = [
        pathlib.Path(x).name for x in re.findall(r'model_checkpoint_path(?:s)?: "(.*)"', text)
    ]
    # The newest stands first in it, and then all of them.
    if found and listed != [path.name for path in [found[-1], *found]]:
        paths = [str(path) for path in found]
        times = [path.with_suffix('.index').stat().st_mtime for path in found]
        tf.compat.v1.train.update_checkpoint_state(
            str(place), paths[-1], paths, all_model_checkpoint_timestamps=times
        )


def find_damage(path: pathlib.Path) -> str | None:
    """Read a whole checkpoint, whose parts have check sums, and return what is wrong with it.

    Args:
        path: Checkpoint without suffix.
    """
    try:
        reader = tf.train.load_checkpoint(str(path))
        for name in reader.get_variable_to_dtype_map():
            reader.get_tensor(name)
    except Exception as error:  # TensorFlow has a type for each kind of damage, even IndexError.
        return first_line(error)
    return None


def remove_torn(run: Run, number: int, best: bool = False) -> None:
    """Remove what is left of a checkpoint that could not be written, to make room.

    Args:
        run: The run.
        number: Steps trained before it.
        best: Whether it was the one that scored best.
    """
    place = folder(run, best)
    if not (place / f'step-{number}.index').exists():
        for path in place.glob(f'step-{number}[._]*'):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_recent(checkpoint: tf.train.Checkpoint, path: pathlib.Path) -> bool:
    """Whether a checkpoint is none of a former version, which has no continuation."""
    names = {name.partition('/')[0] for name, _ in tf.train.list_variables(str(path))}
    return 'continuation' in names or not hasattr(checkpoint, 'continuation')


def _read(checkpoint: tf.train.Checkpoint, path: pathlib.Path) -> None:
    try:
        checkpoint.read(str(path)).assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError) as error:  # Variables are missing, or of another shape.
        problem = first_line(error)
        raise UserError(
            f'A checkpoint must fit the config of its run, but {path} does not: {problem} '
            'Was config.yaml changed?'
        ) from None


def _list(place: pathlib.Path) -> list[pathlib.Path]:
    """List the checkpoints of a folder, newest first, without asking files that may be damaged.

    The index is written last: a checkpoint without it was never finished.
    """
    names = [path.stem for path in place.glob('step-*.index')]
    found = [place / name for name in names if re.fullmatch(r'step-\d+', name)]
    return sorted(found, key=step, reverse=True)
