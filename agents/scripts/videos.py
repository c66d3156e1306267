"""Films episodes: a video and a contact sheet of each, made while the episode goes on.

A worker process imports this module, so it must not import TensorFlow.
"""

import errno
import os
import pathlib
import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np

from agents.scripts import rendering
from agents.scripts.mistakes import UserError

# Of a contact sheet: frames, columns, the box that a frame fits into, and distances, in pixels.
_COUNT, _COLUMNS, _BOX, _GAP, _LABEL = 12, 4, (320, 240), 8, 22


def check(folder: pathlib.Path) -> None:
    """Check that videos can be encoded.

    Args:
        folder: Where to try it; nothing is left in it.

    Raises:
        UserError: The encoder is missing, or has not what is needed.
        OSError: The disk is full.
    """
    film = Film(folder / 'check', rate=30)
    try:
        for _ in range(2):
            film.add(np.zeros((64, 64, 3), np.uint8))
        film.close()
    except (OSError, RuntimeError) as error:
        if getattr(error, 'errno', None) == errno.ENOSPC:
            raise
        raise UserError(
            f'Videos need an ffmpeg with libx264, but it fails: {error}. Install another '
            'imageio-ffmpeg, or leave IMAGEIO_FFMPEG_EXE unset.'
        ) from None
    finally:
        film.delete()


class Recorder(gymnasium.Wrapper):
    """Films the episodes that begin with certain seeds, and changes nothing about them.

    Put directly around what `gymnasium.make` returns, it sees every step, also those that other
    wrappers repeat or skip. A film has the frame after the reset and one after each step.

    An OpenGL context belongs to one thread, where one that is made later takes its place: so each
    environment runs in a thread of its own. OpenGL without a GPU must also be in another process
    than TensorFlow: each of them brings an LLVM, and together they crash.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        folder: str | pathlib.Path,
        seeds: Collection[int],
        max_frames: int | None = None,
    ):
        """Wrap an environment.

        Args:
            env: Environment made with render_mode='rgb_array'.
            folder: Where to write <seed>.mp4 and <seed>.png.
            seeds: Seeds of the episodes to film.
            max_frames: Where to end a film; None for the end of the episode.
        """
        super().__init__(env)
        self._folder = pathlib.Path(folder)
        self._wanted = frozenset(seeds)
        self._max_frames = max_frames
        self._film: Film | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix='rendering')

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Begin an episode, and film it if it is wanted."""
        self.end()
        result = self._call(lambda: self.env.reset(seed=seed, options=options))
        if seed in self._wanted:
            rate = self.env.metadata.get('render_fps') or 30
            self._film = Film(self._folder / str(seed), rate)
            self._shoot()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """Step, and film the result."""
        result = self._call(lambda: self.env.step(action))
        if self._film:
            self._shoot()
            if result[2] or result[3]:
                self.end()
        return result

    def render(self) -> Any:
        """Draw where the episode is."""
        return self._call(self.env.render)

    def close(self) -> None:
        """End the film and close the environment; does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        try:
            self.end()
        finally:
            self._call(self.env.close)
            self._thread.shutdown()

    def _call(self, function: Callable[[], Any]) -> Any:
        return self._thread.submit(function).result()

    def _shoot(self) -> None:
        assert self._film is not None
        try:
            self._film.add(self._call(lambda: rendering.draw(self.env)))
        except BaseException:
            self._film = None
            raise
        if self._film.length == self._max_frames:
            self.end()

    def end(self) -> None:
        """End the film, if there is one.

        Raises:
            OSError: It cannot be written.
        """
        film, self._film = self._film, None
        if film:
            film.close()


class Film:
    """A video in H.264, streamed to the encoder, and a contact sheet.

    Attributes:
        length: Frames so far.
    """

    def __init__(self, path: pathlib.Path, rate: float):
        """Begin a film without frames.

        Args:
            path: Where to write, without .mp4 and .png.
            rate: Frames per second.
        """
        self.length = 0
        self._video = path.with_name(f'{path.name}.mp4')
        self._image = path.with_name(f'{path.name}.png')
        self._rate = rate
        self._sheet = ContactSheet()
        self._encoder: Any = None

    def add(self, frame: np.ndarray) -> None:
        """Append a frame.

        Args:
            frame: Image, uint8 [height, width, 3].

        Raises:
            OSError: The video cannot be written.
        """
        self._sheet.add(frame)
        height, width, _ = frame.shape
        # The colours of H.264 have half the resolution, so sizes must be even.
        even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode='edge')
        if self._encoder is None:
            self._encoder = self._open(even.shape[1], even.shape[0])
        try:
            self._encoder.send(np.ascontiguousarray(even))
        except OSError:
            raise self._error() from None
        self.length += 1

    def close(self) -> None:
        """Finish the files.

        Raises:
            OSError: A file cannot be written, or was not written whole.
        """
        import imageio_ffmpeg

        self._encoder.close()
        self._sheet.draw().save(self._image)
        try:
            whole = imageio_ffmpeg.count_frames_and_secs(self._video)[0] == self.length
        except RuntimeError:  # It cannot be read at all.
            whole = False
        if not whole:
            raise self._error()

    def delete(self) -> None:
        """Delete the files, if they are there."""
        self._video.unlink(missing_ok=True)
        self._image.unlink(missing_ok=True)

    def _open(self, width: int, height: int) -> Any:
        import imageio_ffmpeg

        encoder = imageio_ffmpeg.write_frames(
            str(self._video),
            (width, height),
            fps=self._rate,
            codec='libx264',
            quality=None,
            macro_block_size=1,
            ffmpeg_log_level='quiet',
            output_params=['-crf', '20', '-preset', 'fast', '-movflags', '+faststart'],
        )
        encoder.send(None)
        return encoder

    def _error(self) -> OSError:
        """Say why the encoder, which tells nothing, has failed."""
        full = shutil.disk_usage(self._video.parent).free < 2**20
        code = errno.ENOSPC if full else errno.EIO
        return OSError(code, os.strerror(code), str(self._video))


class ContactSheet:
    """Some frames of an episode of unknown length, evenly spaced, in one image."""

    def __init__(self) -> None:
        self._frames: list[tuple[int, Any]] = []
        self._last: tuple[int, np.ndarray] | None = None
        self._every = 1

    def add(self, frame: np.ndarray) -> None:
        """Append a frame; every second of those kept is dropped when they become too many.

        Args:
            frame: Image, uint8 [height, width, 3].
        """
        step = self._last[0] + 1 if self._last else 0
        self._last = (step, frame)
        if step % self._every:
            return
        if len(self._frames) == 8 * _COUNT:
            self._frames = self._frames[::2]
            self._every *= 2
        if step % self._every == 0:
            self._frames.append((step, _shrink(frame)))

    def draw(self) -> Any:
        """Draw the frames in rows, each labelled with its step.

        Returns:
            Image of Pillow.
        """
        from PIL import Image, ImageDraw, ImageFont

        frames = self._choose()
        width = max(image.width for _, image in frames)
        height = frames[0][1].height
        columns = min(_COLUMNS, len(frames))
        rows = -(-len(frames) // columns)
        size = (columns * (width + _GAP) + _GAP, rows * (height + _LABEL + _GAP) + _GAP)
        sheet = Image.new('RGB', size, '#1b1e24')
        pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
        for index, (step, image) in enumerate(frames):
            x = _GAP + index % columns * (width + _GAP)
            y = _GAP + index // columns * (height + _LABEL + _GAP)
            pen.text((x + 2, y + _LABEL - 4), f'step {step:,}', '#d7dce5', font, anchor='ls')
            sheet.paste(image, (x, y + _LABEL))
        return sheet

    def _choose(self) -> list[tuple[int, Any]]:
        """Choose the kept frames that are nearest to even steps, and the last one of all."""
        assert self._last is not None
        step, frame = self._last
        found = [*self._frames]
        if found[-1][0] != step:
            found.append((step, _shrink(frame)))
        steps = np.array([step for step, _ in found])
        wanted = np.linspace(0, step, min(_COUNT, len(found)))
        return [found[index] for index in np.abs(steps - wanted[:, None]).argmin(axis=1)]


def _shrink(frame: np.ndarray) -> Any:
    """Bring a frame to the size that it has on a contact sheet."""
    from PIL import Image

    image = Image.fromarray(frame)
    scale = min(_BOX[0] / image.width, _BOX[1] / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    # Small images are made of pixels that are to be seen.
    return image.resize(size, Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.LANCZOS)
