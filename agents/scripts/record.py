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

# Of the animated image: pixels across, and images per second.
_WIDTH, _RATE = 240, 10


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
        # One frame more than steps: that before the first one.
        most = min(config.max_eval_steps or camera.MAX_FRAMES, camera.MAX_FRAMES) - 1
        tools.evaluate(env, algorithm, most)([seed])
        batch_env.call('end')
    animation = animate(copy / f'{seed}.mp4')
    target = run.folder / 'videos'
    target.mkdir(exist_ok=True)
    (copy / f'{seed}.mp4').replace(target / f'step-{step}.mp4')
    write_animation(run.folder / 'video', step, animation)


def _film(env: gymnasium.Env, folder: pathlib.Path, seed: int) -> gymnasium.Env:
    rendering.fast(env)
    return videos.Recorder(env, folder, [seed])


def animate(video: pathlib.Path) -> bytes:
    """Make a small animated GIF of a video.

    Args:
        video: The video.
    """
    import imageio_ffmpeg

    output = video.with_suffix('.gif')
    # A palette for each of the changes between images keeps the colours.
    filters = (
        f'fps={_RATE},scale={_WIDTH}:-1:flags=lanczos,split[a][b];'
        '[a]palettegen=max_colors=64:stats_mode=diff[p];[b][p]paletteuse=dither=none'
    )
    command = [imageio_ffmpeg.get_ffmpeg_exe(), '-v', 'error', '-y', '-i', str(video)]
    subprocess.run([*command, '-vf', filters, str(output)], check=True)
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
            metadata=metadata.create_summary_metadata(display_name=None, description='An episode.'),
        )
    writer.close()


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]))
