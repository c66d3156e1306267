"""Films what is being learned, in another process while training goes on."""

import dataclasses
import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from agents.scripts import environments, rendering, runs, videos, visualize
from agents.scripts.config import Config
from agents.scripts.mistakes import first_line

# Frames of a video at most.
MAX_FRAMES = 1000


def check(config: Config) -> None:
    """Find out before a run begins whether it can be filmed.

    Args:
        config: Config of the run.

    Raises:
        UserError: Something that is needed is not there.
    """
    config = visualize.to_play(config, env_processes=False)
    rendering.choose_backend(config.env)
    rendering.check(
        functools.partial(environments.make_env, config.env, config.env_kwargs, config.wrappers)
    )
    with tempfile.TemporaryDirectory() as folder:
        videos.check(pathlib.Path(folder))


class Camera:
    """Starts the process that films an episode, one at a time.

    The process restores a copy of the policy that is made for it, and ends after the episode.
    """

    def __init__(self, run: runs.Run, algorithm: Any, say: Callable[[str], None]):
        """Film nothing yet.

        Args:
            run: The run.
            algorithm: What acts.
            say: Shows a line to the user.
        """
        import tensorflow as tf  # Not above: `check` comes before TensorFlow is set up.

        self._folder = run.folder
        self._copy = run.folder / '.video'
        self._checkpoint = tf.train.Checkpoint(algorithm=algorithm)
        self._disk_errors = (OSError, tf.errors.OpError)
        self._say = say
        self._process: subprocess.Popen | None = None
        self._skipped = False
        shutil.rmtree(self._copy, ignore_errors=True)  # Left by a process that was killed.

    def film(self, step: int) -> None:
        """Begin to film an episode, unless the last one is not finished yet.

        Args:
            step: Steps trained so far; part of the video's name.
        """
        if self._process and self._process.poll() is None:
            if not self._skipped:
                self._say(
                    f'No video of step {step:,}, as the last one is still being made. Others may '
                    'be skipped as well, without a word.'
                )
            self._skipped = True
            return
        self.wait()
        command = [sys.executable, '-m', 'agents.scripts.record', str(self._folder), str(step)]
        try:
            self._copy.mkdir()
            self._checkpoint.write(str(self._copy / f'step-{step}'))
            with (self._copy / 'log').open('wb') as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
        except self._disk_errors as error:  # No reason to end a training.
            shutil.rmtree(self._copy, ignore_errors=True)
            self._say(f'No video of step {step:,}: {first_line(error)}')

    def wait(self) -> None:
        """Wait for the video that is being made, and say so if there is none in the end."""
        if not self._process:
            return
        code = self._process.wait()
        self._process = None  # Not before: if a signal ends the wait, `close` ends the process.
        if code:
            text = (self._copy / 'log').read_text(encoding='utf-8', errors='replace')
            reason = (text.strip().splitlines() or ['no message'])[-1]
            self._say(f'A video could not be made, exit code {code}: {reason}')
        shutil.rmtree(self._copy)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process:
            self._process.terminate()
            self._process.wait()
            self._process = None
        shutil.rmtree(self._copy, ignore_errors=True)


def prepare(config: Config) -> Config:
    """Change the config of a run so that an episode can be filmed beside training.

    Args:
        config: Config of the run.
    """
    return dataclasses.replace(visualize.to_play(config, env_processes=False), threads=1)
