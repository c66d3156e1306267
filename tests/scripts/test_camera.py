import io
import re
import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.scripts import camera, configs, train
from agents.scripts.mistakes import UserError

TASK = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
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
"""


def run(capsys, *flags):
    code = train.main(['--config=debug', '--video_every=512', *flags])
    return code, capsys.readouterr()


def folder(printed):
    return re.search(r'Run folder: +(.*)', printed.out)[1]


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
