"""The folder of a run: its name, its config.yaml, and who may write to it."""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from agents.scripts import flags
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError, nearest

# What may differ after a resume: how long, how often and where, but not what is computed.
MAY_CHANGE = frozenset(
    (
        'steps',
        'stop_at_score',
        'eval_every',
        'final_eval_episodes',
        'log_every',
        'histograms_every',
        'video_every',
        'checkpoint_every',
        'num_workers',
        'worker_timeout',
        'on_worker_failure',
    )
)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's folder, `<logdir>/<timestamp>-<name>`.

    Attributes:
        logdir: Folder of all runs.
        timestamp: When the run began, or what the user called it.
        name: Name of the config that it began with.
    """

    logdir: pathlib.Path
    timestamp: str
    name: str

    @property
    def folder(self) -> pathlib.Path:
        """Folder that holds everything about the run."""
        return self.logdir / '-'.join(part for part in (self.timestamp, self.name) if part)

    @property
    def tensorboard_command(self) -> str:
        """Command line that shows the run's curves."""
        return f'tensorboard --logdir={shlex.quote(str(self.folder))}'

    @property
    def visualize_command(self) -> str:
        """Command line that films what the run has learned."""
        folder = shlex.quote(str(self.folder))
        return f'python3 -m agents.scripts.visualize --logdir={folder} --outdir={folder}/visualize'

    @property
    def resume_command(self) -> str:
        """Command line that goes on with the run."""
        return (
            f'python3 -m agents.scripts.train --logdir={shlex.quote(str(self.logdir))} '
            f'--timestamp={shlex.quote(self.timestamp)} --config={shlex.quote(self.name)}'
        )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing to the run; the lock goes with the process.

        Raises:
            UserError: Another process has it.
        """
        with contextlib.ExitStack() as stack:
            # Without it where the platform or the file system has no such locks.
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                descriptor = os.open(self.folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    message = f'Another process is training the run {self.folder}.'
                    raise UserError(f'{message} Stop it first.') from None
            yield


def create(logdir: str, name: str, config: Config, timestamp: str = '') -> Run:
    """Make the folder of a new run, with the config in it.

    Args:
        logdir: Folder of all runs, made if it is not there; `~` is the home folder.
        name: Name of the config.
        config: The config to save.
        timestamp: What to call the run; by default the time.

    Raises:
        UserError: The folder is there already, or cannot be made.
    """
    _check_timestamp(timestamp)
    base = pathlib.Path(logdir).expanduser().absolute()
    stamp = timestamp or time.strftime('%Y%m%dT%H%M%S')
    count = 1
    while True:
        # Another run may have begun in the same second, perhaps in another process.
        run = Run(base, stamp if count == 1 else f'{stamp}-{count}', name)
        try:
            base.mkdir(parents=True, exist_ok=True)
            run.folder.mkdir()
            break
        except OSError as error:
            taken = isinstance(error, FileExistsError) and run.folder.exists()
            if not taken or timestamp:
                raise UserError(f'The run folder cannot be made: {error}.') from None
            count += 1
    try:
        save_config(run, config)
    except OSError as error:
        raise UserError(f'The run folder cannot be written: {error}.') from None
    return run


def find(logdir: str, timestamp: str, name: str = '') -> Run | None:
    """Find the folder of an earlier run.

    Args:
        logdir: Folder of all runs.
        timestamp: When the run began, or what it was called.
        name: Name of its config; not needed when only one run has the timestamp.

    Returns:
        The run, or None if there is none.

    Raises:
        UserError: The name is needed, or wrong.
    """
    _check_timestamp(timestamp)
    base = pathlib.Path(logdir).expanduser().absolute()
    folders = os.listdir(base) if base.is_dir() else []
    pattern = re.compile(re.escape(timestamp) + r'-([^-]+)')
    names = sorted(match[1] for match in map(pattern.fullmatch, folders) if match)
    if name in names:
        return Run(base, timestamp, name)
    if not names:
        return None
    if name or len(names) > 1:
        raise UserError(
            f'The config of the run {timestamp} must be {" or ".join(names)}, got --config={name}.'
        )
    return Run(base, timestamp, names[0])


def open_folder(folder: str) -> Run:
    """Open the folder of an earlier run.

    Args:
        folder: `<logdir>/<timestamp>-<name>`, or its new name; `~` is the home folder.

    Raises:
        UserError: There is no such folder, or it is not that of a run.
    """
    path = pathlib.Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise UserError(f'The folder of a run must be there, got {folder!r}, which is not.')
    if not (path / 'config.yaml').is_file():
        inside = sorted(child.parent.name for child in path.glob('*/config.yaml'))
        hint = f' It holds runs: name one of them, such as {path / inside[-1]}.' if inside else ''
        raise UserError(f'The folder of a run must hold a config.yaml, got {path} without.{hint}')
    # Also if somebody gave it a name without a time.
    timestamp, _, name = path.name.rpartition('-')
    return Run(path.parent, timestamp, name)


def save_config(run: Run, config: Config) -> None:
    """Write a config as plain YAML, with the fields' help as comments; whole or not at all."""
    lines = []
    plain = to_plain(config)
    for field in dataclasses.fields(config):
        text = to_yaml({field.name: plain[field.name]})
        lines.append(f'# {field.metadata["help"]}\n{text}')
    write_atomically(run.folder / 'config.yaml', ''.join(lines))


def to_plain(config: Config) -> dict[str, Any]:
    """Return the fields of a config as YAML can hold them."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: list(x) if isinstance(x, tuple) else x for name, x in values.items()}


def load_config(run: Run) -> Config:
    """Read a config as plain data: nothing in the file is ever executed.

    Raises:
        UserError: The file is missing, is no plain YAML, or its fields are not those of a config.
    """
    path = run.folder / 'config.yaml'
    data = read_yaml(path)
    names = [field.name for field in dataclasses.fields(Config)]
    for name in data:
        if name not in names:
            hint = f'{nearest(str(name), names)} Remove it if it is of another version.'
            raise UserError(f'{path} has an unknown field {name}. {hint}')
    if missing := [name for name in names if name not in data]:
        defaults = ', '.join(
            f'"{name}: {flags.to_text(getattr(Config(), name))}"' for name in missing
        )
        raise UserError(
            f'{path} lacks the field{"s" * (len(missing) > 1)} {", ".join(missing)}. If it is of '
            f'an earlier version, add {defaults}.'
        )
    try:
        return Config(**data)
    except UserError as error:
        raise UserError(f'{path}: {error}') from None


def change(saved: Config, overrides: Mapping[str, Any]) -> Config:
    """Apply flags to the config of a run that goes on.

    Args:
        saved: Config that the run was begun with.
        overrides: Flags that were given.

    Raises:
        UserError: A flag contradicts what must stay.
    """
    config = dataclasses.replace(saved, **overrides)
    for name in overrides:
        before, after = getattr(saved, name), getattr(config, name)
        if before != after and name not in MAY_CHANGE:
            raise UserError(
                f'{name} cannot change when a run is resumed, got --{name}={flags.to_text(after)} '
                f'where the run has {flags.to_text(before)}. Leave it out, or begin a new run.'
            )
    return config


def write_atomically(path: pathlib.Path, text: str) -> None:
    """Write a file so that it is never seen half written, also after a crash."""
    temporary = path.with_name(f'.{path.name}.tmp')
    with temporary.open('w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_yaml(path: pathlib.Path) -> dict[str, Any]:
    """Read a mapping as plain data: nothing in the file is ever executed.

    Raises:
        UserError: The file cannot be read, or is no plain YAML mapping.
    """
    try:
        data = YAML(typ='safe', pure=True).load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise UserError(f'The file of a run must be readable: {error}.') from None
    except (YAMLError, ValueError) as error:
        problem = getattr(error, 'problem', None) or error
        raise UserError(f'The file must be plain YAML, got {path}: {problem}.') from None
    if not isinstance(data, dict):
        raise UserError(f'The file must hold names and values, got {path}.')
    return data


def to_yaml(data: dict[str, Any]) -> str:
    """Write plain data as YAML, one line for each name where nothing is nested deeper."""
    yaml = YAML(typ='safe', pure=True)
    # Lists and mappings stay in one line where they hold no others.
    yaml.default_flow_style = (
        None if any(isinstance(x, list | dict) for x in data.values()) else False
    )
    yaml.width = 10_000
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def _check_timestamp(timestamp: str) -> None:
    if timestamp and (pathlib.PurePath(timestamp).name != timestamp or timestamp == '..'):
        raise UserError(f'--timestamp must be a name without folders, got {timestamp!r}.')
