import errno
import functools
import subprocess
import sys

import cloudpickle
import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from agents.scripts import videos
from agents.scripts.mistakes import UserError
from agents.tools import make_batch_env


class Grey(gymnasium.Env):
    """Frame t of an episode is grey of brightness 20 t, 5 high and 7 wide; lasts 6 steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 12}
    render_mode = 'rgb_array'

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = 0
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        self._count += 1
        obs = self.np_random.random(2, np.float32)
        return obs, float(obs[0]), self._count == 6, False, {}

    def render(self):
        return np.full((5, 7, 3), 20 * self._count, np.uint8)


def read(path):
    """Read an MP4 back: its description, and frames uint8 [T, height, width, 3]."""
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    width, height = meta['size']
    frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
    return meta, np.stack(frames)


def play(env, seed, steps):
    results = [env.reset(seed=seed)[0].tolist()]
    for _ in range(steps):
        obs, *rest = env.step(0)
        results.append([obs.tolist(), *rest])
    return results


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_film_has_the_first_frame_and_one_after_each_step(tmp_path):
    env = videos.Recorder(Grey(), tmp_path, {3})
    play(env, 3, 6)
    env.close()
    assert names(tmp_path) == ['3.mp4', '3.png']
    meta, frames = read(tmp_path / '3.mp4')
    # Odd sizes, 7 x 5, are made even; 7 frames at 12 per second.
    assert (meta['size'], meta['codec'], meta['fps']) == ((8, 6), 'h264', 12)
    assert meta['pix_fmt'].startswith('yuv420p')
    assert meta['duration'] == pytest.approx(7 / 12, abs=0.02)
    np.testing.assert_allclose(frames.mean((1, 2, 3)), 20 * np.arange(7), atol=4)
    # The row and the column that were added continue the image.
    np.testing.assert_allclose(frames[6], 120, atol=6)


def test_only_episodes_that_begin_with_a_wanted_seed_are_filmed(tmp_path):
    env = videos.Recorder(Grey(), tmp_path, {1, 4})
    for seed in (1, 2, None, 4):
        play(env, seed, 6)
    env.close()
    assert names(tmp_path) == ['1.mp4', '1.png', '4.mp4', '4.png']


@pytest.mark.parametrize('how', ['reset', 'close', 'end'])
def test_a_film_of_an_episode_that_is_left_is_whole(tmp_path, how):
    env = videos.Recorder(Grey(), tmp_path, {3})
    play(env, 3, 2)
    getattr(env, how)()
    assert len(read(tmp_path / '3.mp4')[1]) == 3
    env.close()


def test_a_film_can_end_before_its_episode(tmp_path):
    env = videos.Recorder(Grey(), tmp_path, {3}, max_frames=4)
    play(env, 3, 6)
    env.close()
    np.testing.assert_allclose(read(tmp_path / '3.mp4')[1].mean((1, 2, 3)), [0, 20, 40, 60], atol=4)


def test_what_an_environment_computes_stays_the_same(tmp_path):
    make = functools.partial(gymnasium.make, 'CartPole-v1', render_mode='rgb_array')
    filmed = videos.Recorder(make(), tmp_path, {5})
    expected = play(make(), 5, 7)
    assert play(filmed, 5, 7) == expected
    filmed.close()


def test_environments_of_a_worker_process_are_filmed(tmp_path):
    make = functools.partial(videos.Recorder, Grey(), tmp_path, {3, 8})
    with make_batch_env(lambda: make(), 2, num_workers=1) as batch:
        batch.reset([3, 8])
        for _ in range(6):
            batch.step(np.zeros(2, int))
        batch.call('end')
        assert names(tmp_path) == ['3.mp4', '3.png', '8.mp4', '8.png']


def test_a_worker_process_needs_no_tensorflow():
    code = 'import agents.scripts.videos, sys; sys.exit("tensorflow" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0
    assert cloudpickle.loads(cloudpickle.dumps(videos.Recorder)) is videos.Recorder


def test_a_contact_sheet_has_twelve_frames_that_are_evenly_spaced():
    sheet = videos.ContactSheet()
    for step in range(1001):
        sheet.add(np.full((40, 60, 3), step % 256, np.uint8))
    steps = [step for step, _ in sheet._choose()]
    # 1000 / 11 = 90.9 steps from one to the next; every 16th frame is kept, 8 off at most.
    assert (len(steps), steps[0], steps[-1]) == (12, 0, 1000)
    np.testing.assert_allclose(steps, np.arange(12) * 1000 / 11, atol=8)
    assert len(sheet._frames) <= 96
    # 4 columns of 320 and 3 rows of 213 (40 / 60 * 320), 22 for labels, 8 between all.
    assert sheet.draw().size == (4 * 328 + 8, 3 * (213 + 22 + 8) + 8)


def test_a_contact_sheet_of_a_short_episode_has_all_of_it(tmp_path):
    env = videos.Recorder(Grey(), tmp_path, {3})
    play(env, 3, 6)
    env.close()
    image = np.asarray(Image.open(tmp_path / '3.png'))
    # 7 frames in 4 columns, 320 x 229 (5 / 7 * 320): two rows.
    assert image.shape == (2 * (229 + 22 + 8) + 8, 4 * 328 + 8, 3)
    row, column = 8 + 259 + 22 + 100, 8 + 328 + 100
    np.testing.assert_array_equal(image[row, column], [100] * 3)  # Frame 5: 20 * 5.


def test_a_disk_without_space_is_told(tmp_path, monkeypatch):
    usage = type('Usage', (), {'free': 0})
    monkeypatch.setattr(videos.shutil, 'disk_usage', lambda path: usage)
    monkeypatch.setattr(imageio_ffmpeg, 'count_frames_and_secs', lambda path: (6, 0.5))
    env = videos.Recorder(Grey(), tmp_path, {3})
    with pytest.raises(OSError, match='No space left on device') as caught:
        play(env, 3, 6)
    assert caught.value.errno == errno.ENOSPC
    env.close()


def test_an_encoder_that_cannot_write_is_told(tmp_path):
    env = videos.Recorder(Grey(), tmp_path / 'missing', {3})
    with pytest.raises(OSError, match='missing'):
        play(env, 3, 6)
    env.close()


def test_checking_the_encoder_leaves_nothing_behind(tmp_path):
    videos.check(tmp_path)
    assert names(tmp_path) == []


def test_an_encoder_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv('IMAGEIO_FFMPEG_EXE', '/bin/false')
    with pytest.raises(UserError, match='ffmpeg with libx264, but it fails'):
        videos.check(tmp_path)
    assert names(tmp_path) == []
