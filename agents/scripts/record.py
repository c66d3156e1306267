"""Film an episode of a run in training; `camera.Camera` starts this.

python3 -m agents.scripts.record RUN_FOLDER STEP
"""

import contextlib
import functools
import os
import pathlib
import subprocess
import sys

import gymnasium

from agents.scripts import camera, environments, quiet, rendering, runs, saved_spaces, videos

# Of the animated image: pixels across, the first of them that makes a file small enough; images per
# second; and seconds.
_WIDTHS, _MOST_BYTES = (240, 160, 120, 80, 40), 2**20
_RATE, _SECONDS = 10, 10
_DESCRIPTION = f'The first {_SECONDS} seconds of an episode; videos/ in the run folder has more.'


def main(folder: str, step: int) -> None:
    """Write videos/step-N.mp4, and the same as an animated image to TensorBoard.

    Args:
        folder: Folder of the run.
        step: Steps trained before.
    """
    # Training comes first.
    with contextlib.suppress(AttributeError):  # Not on this platform.
        os.nice(10)
    run = runs.open_folder(folder)
    config = camera.prepare(runs.load_config(run))
    rendering.choose_backend(config.env)
    quiet.import_tensorflow(config)
    import tensorflow as tf

    from agents import tools
    from agents.scripts import player, policies

    copy = run.folder / '.video'
    algorithm = policies.make_algorithm(config, *saved_spaces.load(run))
    checkpoint = tf.train.Checkpoint(algorithm=algorithm)
    checkpoint.read(str(copy / f'step-{step}')).expect_partial()
    seed = player.play_seed(config.seed, step, 0)
    film = functools.partial(_film, folder=copy, seed=seed)
    batch_env = environments.make_host_batch(config, 1, film)
    with contextlib.closing(batch_env):
        env = tools.InGraphBatchEnv(batch_env)
        most = min(config.max_eval_steps or camera.MAX_FRAMES, camera.MAX_FRAMES)
        tools.evaluate(env, algorithm, most)([seed])
        batch_env.call('end')
    animation = animate(copy / f'{seed}.mp4')
    target = run.folder / 'videos'
    target.mkdir(exist_ok=True)
    (copy / f'{seed}.mp4').replace(target / f'step-{step}.mp4')
    write_animation(run.folder / 'video', step, animation)


def _film(env: gymnasium.Env, folder: pathlib.Path, seed: int) -> gymnasium.Env:
    rendering.fast(env)
    # The evaluation's limit is not enough, since wrappers may repeat steps.
    return videos.Recorder(env, folder, [seed], camera.MAX_FRAMES)


def animate(video: pathlib.Path) -> bytes:
    """Make a small animated GIF of the beginning of a video.

    Args:
        video: The video.
    """
    import imageio_ffmpeg

    output = video.with_suffix('.gif')
    command = [imageio_ffmpeg.get_ffmpeg_exe(), '-v', 'error', '-y', '-i', str(video)]
    for width in _WIDTHS:
        # Rounded up, an episode of one step has an image as well. A palette for each of the changes
        # between images keeps the colours.
        filters = (
            f'fps={_RATE}:round=up,scale={width}:-1:flags=lanczos,split[a][b];'
            '[a]palettegen=max_colors=64:stats_mode=diff[p];[b][p]paletteuse=dither=none'
        )
        subprocess.run([*command, '-t', str(_SECONDS), '-vf', filters, str(output)], check=True)
        if output.stat().st_size <= _MOST_BYTES:
            break
    return output.read_bytes()


def write_animation(folder: pathlib.Path, step: int, animation: bytes) -> None:
    """Write an animated image for TensorBoard's tab IMAGES.

    Args:
        folder: Where the events are written.
        step: Steps trained so far.
        animation: Content of a GIF file.
    """
    import tensorflow as tf
    from tensorboard.plugins.image import metadata

    # In its header: width and height, of two bytes each.
    width, height = (int.from_bytes(animation[i : i + 2], 'little') for i in (6, 8))
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        tf.summary.write(
            'episode',
            tf.constant([str(width).encode(), str(height).encode(), animation]),
            step=step,
            metadata=metadata.create_summary_metadata(display_name=None, description=_DESCRIPTION),
        )
    writer.close()


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]))
