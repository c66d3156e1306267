import io
import pathlib
import re
import signal
import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.scripts import camera, configs, record, runs, train, videos
from agents.scripts.mistakes import UserError

TASK = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
class Blind(CartPoleEnv):
    metadata = {'render_modes': ['human'], 'render_fps': 30}
gymnasium.register('Blind-v0', entry_point=Blind)
class Fragile(CartPoleEnv):
    def render(self):
        if getattr(self, 'frames', 0) > 3:
            raise RuntimeError('the lamp is broken')
        self.frames = getattr(self, 'frames', 0) + 1
        return super().render()
gymnasium.register('Fragile-v0', entry_point=Fragile, max_episode_steps=50)
class Noise(PendulumEnv):
    def render(self):
        return self.np_random.integers(0, 256, (60, 120, 3), 'uint8')
gymnasium.register('Noise-v0', entry_point=Noise, max_episode_steps=4000)
"""


def run(capsys, *flags):
    code = train.main(['--config=debug', '--video_every=512', *flags])
    return code, capsys.readouterr()


def folder(printed):
    return pathlib.Path(re.search(r'Run folder: +(.*)', printed.out)[1])


@pytest.fixture(scope='module')
def filmed(tmp_path_factory):
    """A run in a process of its own, as users start it."""
    logdir = tmp_path_factory.mktemp('logdir')
    command = [sys.executable, '-m', 'agents.scripts.train', f'--logdir={logdir}']
    flags = ['--config=debug', '--timestamp=a', '--video_every=1000']
    result = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    assert 'video' not in result.stdout
    return logdir / 'a-debug'


def test_a_video_of_an_episode_is_in_the_run_folder(filmed):
    (video,) = (filmed / 'videos').iterdir()
    assert video.name == 'step-1024.mp4'
    reader = imageio_ffmpeg.read_frames(str(video))
    meta = next(reader)
    frames = [np.frombuffer(frame, np.uint8) for frame in reader]
    assert meta['fps'] == 50  # CartPole's own.
    assert 2 <= len(frames) <= 501
    assert frames[0].mean() > 50  # Not black: its background is white.
    assert (frames[0] != frames[-1]).any()


def test_tensorboard_has_the_same_as_an_animated_image(filmed):
    events = EventAccumulator(str(filmed / 'video'), size_guidance={'tensors': 0}).Reload()
    (event,) = events.Tensors('episode')
    assert event.step == 1024
    width, height, data = tf.make_ndarray(event.tensor_proto)
    image = PIL.Image.open(io.BytesIO(data))
    assert image.format == 'GIF' and image.is_animated
    assert image.size == (int(width), int(height)) == (240, 160)
    assert len(data) < 2**20


def test_nothing_is_left_of_the_process_that_filmed(filmed):
    assert not (filmed / '.video').exists()


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    (tmp_path / 'odd_tasks.py').write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PYTHONPATH', str(tmp_path), prepend=':')


def test_a_task_that_cannot_be_drawn_is_told_before_anything_is_written(tmp_path, tasks, capsys):
    code, printed = run(capsys, f'--logdir={tmp_path / "log"}', '--env=odd_tasks:Blind-v0')
    assert code == 2
    assert printed.err.startswith('train: error: ') and 'rgb_array' in printed.err
    assert not (tmp_path / 'log').exists()


def test_a_video_that_fails_is_told_with_its_reason_and_training_goes_on(tmp_path, tasks, capsys):
    flags = (f'--logdir={tmp_path / "log"}', '--env=odd_tasks:Fragile-v0')
    code, printed = run(capsys, *flags)
    assert code == 0
    assert re.search(r'A video could not be made, exit code 1: .*the lamp is broken', printed.out)
    assert 'Done.' in printed.out


def test_a_missing_encoder_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, 'imageio_ffmpeg', None)
    with pytest.raises(UserError, match='imageio-ffmpeg'):
        camera.check(configs.debug())


def test_long_episodes_of_noise_are_cut_whatever_a_wrapper_repeats(tmp_path, tasks, capsys):
    flags = ('--env=odd_tasks:Noise-v0', '--wrappers=[ActionRepeat: {amount: 4}]')
    code, printed = run(capsys, f'--logdir={tmp_path}', *flags, '--max_eval_steps=500')
    assert code == 0
    # 500 actions are 2000 steps of the task.
    (video, *_) = (folder(printed) / 'videos').iterdir()
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == camera.MAX_FRAMES == 1000
    events = EventAccumulator(str(folder(printed) / 'video'), size_guidance={'tensors': 0}).Reload()
    width, height, data = tf.make_ndarray(events.Tensors('episode')[0].tensor_proto)
    assert len(data) <= 2**20
    assert PIL.Image.open(io.BytesIO(data)).size == (int(width), int(height))
    assert int(width) < 240 and int(width) == 2 * int(height)


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """A camera whose process never ends by itself, and what it says."""
    program = tmp_path / 'stuck'
    program.write_text('#!/bin/sh\nexec sleep 600\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(program))
    said = []
    stored = runs.create(str(tmp_path / 'log'), 'debug', configs.debug())
    filming = camera.Camera(stored, tf.Module(), said.append)
    yield filming, said, stored.folder
    filming.close()


def test_videos_that_are_skipped_are_told_once(stuck):
    filming, said, _ = stuck
    for step in (100, 200, 300):
        filming.film(step)
    assert len(said) == 1 and '200' in said[0]


def test_a_signal_during_the_wait_for_the_last_video_ends_its_process(stuck, monkeypatch):
    filming, _, run_folder = stuck
    filming.film(100)
    processes, wait = [], subprocess.Popen.wait

    def interrupted(process, *args, **kwargs):
        processes.append(process)
        if len(processes) == 1:
            raise KeyboardInterrupt
        return wait(process, *args, **kwargs)

    monkeypatch.setattr(subprocess.Popen, 'wait', interrupted)
    with pytest.raises(KeyboardInterrupt):
        filming.wait()
    filming.close()
    code = processes[0].poll()
    processes[0].kill()  # Does nothing unless it was left over.
    assert code == -signal.SIGTERM
    assert not (run_folder / '.video').exists()


@pytest.mark.parametrize('length', [1, 2, 3])
def test_the_shortest_episodes_have_an_animated_image_as_well(tmp_path, length):
    film = videos.Film(tmp_path / 'short', rate=50)
    for shade in range(length):
        film.add(np.full((64, 96, 3), shade, np.uint8))
    film.close()
    image = PIL.Image.open(io.BytesIO(record.animate(tmp_path / 'short.mp4')))
    assert image.format == 'GIF' and image.size == (240, 160)
