import functools
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from agents.scripts import rendering
from agents.scripts.mistakes import UserError

RGB = {'render_mode': 'rgb_array'}


class Blind(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    metadata = {'render_modes': ['ansi', 'human']}

    def __init__(self, frame=None, modes=None, error=None):
        self.render_mode = 'rgb_array' if modes else None
        self.metadata = {'render_modes': modes or ['ansi', 'human']}
        self._frame, self._failure = frame, error

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def render(self):
        if self._failure:
            raise self._failure
        return self._frame


class Robot(Blind):
    mujoco_renderer = None


@pytest.fixture
def headless(monkeypatch):
    for name in ('DISPLAY', 'WAYLAND_DISPLAY', 'MUJOCO_GL', 'SDL_VIDEODRIVER'):
        monkeypatch.setenv(name, '')
        monkeypatch.delenv(name)
    return monkeypatch


def test_without_a_display_a_dummy_stands_for_it(headless):
    headless.setattr(rendering.subprocess, 'run', None)  # No process is started for it.
    rendering.choose_backend('CartPole-v1')
    assert os.environ['SDL_VIDEODRIVER'] == 'dummy'
    assert 'MUJOCO_GL' not in os.environ


def test_a_display_is_used(headless):
    headless.setenv('DISPLAY', ':0')
    rendering.choose_backend('InvertedPendulum-v5')
    assert not {'SDL_VIDEODRIVER', 'MUJOCO_GL'} & set(os.environ)


def test_what_the_user_has_set_stays(headless):
    headless.setenv('MUJOCO_GL', 'glfw')
    headless.setenv('SDL_VIDEODRIVER', 'x11')
    rendering.choose_backend('InvertedPendulum-v5')
    assert (os.environ['MUJOCO_GL'], os.environ['SDL_VIDEODRIVER']) == ('glfw', 'x11')


@pytest.mark.parametrize('codes, backend', [([0], 'egl'), ([1, 0], 'osmesa'), ([3], None)])
def test_the_first_way_of_mujoco_that_works_is_chosen(headless, codes, backend):
    pytest.importorskip('mujoco')
    answers = iter(codes)

    def run(command, **kwargs):
        return subprocess.CompletedProcess(command, next(answers))

    headless.setattr(rendering.subprocess, 'run', run)
    rendering.choose_backend('InvertedPendulum-v5')
    assert os.environ.get('MUJOCO_GL') == backend


def test_a_module_that_fails_is_left_to_the_one_who_makes_the_environment(headless):
    pytest.importorskip('mujoco')
    gymnasium.register('RenderingMissing-v0', 'no_such_module:Task')
    rendering.choose_backend('RenderingMissing-v0')
    gymnasium.registry.pop('RenderingMissing-v0')
    assert 'MUJOCO_GL' not in os.environ


def test_packages_are_named_where_mujoco_finds_no_opengl(headless):
    pytest.importorskip('mujoco')
    headless.setattr(
        rendering.subprocess, 'run', lambda command, **_: subprocess.CompletedProcess(command, 1)
    )
    with pytest.raises(
        UserError, match=r'draw InvertedPendulum-v5.*apt-get install libegl1 libgl1'
    ):
        rendering.choose_backend('InvertedPendulum-v5')


def test_a_task_that_gives_images_passes(headless):
    rendering.choose_backend('CartPole-v1')
    rendering.check(functools.partial(gymnasium.make, 'CartPole-v1', **RGB))


def test_mujoco_draws_in_another_process_than_this_one(headless):
    pytest.importorskip('mujoco')
    rendering.choose_backend('InvertedPendulum-v5')
    # TensorFlow crashes where OpenGL is loaded, and OpenGL where TensorFlow is.
    code = """
import functools, gymnasium
from agents.scripts import rendering
make = functools.partial(gymnasium.make, 'InvertedPendulum-v5', render_mode='rgb_array')
rendering.check(make)
import tensorflow
rendering.check(make)
"""
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda: Blind(), 'mode rgb_array to be shown, got ansi, human for'),
        (lambda: Blind(render_mode='rgb_array'), 'must take render_mode to be shown'),
        (lambda: Blind(np.zeros((4, 4, 3), int), ['rgb_array']), 'uint8.*got .* dtype=int64'),
        (lambda: Blind(np.zeros((4, 4), np.uint8), ['rgb_array']), r'got shape=\(4, 4\)'),
        (lambda: Blind(None, ['rgb_array']), 'dtype=NoneType'),
        (
            lambda: Blind(
                None, ['rgb_array'], gymnasium.error.DependencyNotInstalled('pip install pygame')
            ),
            'install what is missing: pip install pygame',
        ),
        (
            lambda: Robot(None, ['rgb_array'], AttributeError('glGetError')),
            'OpenGL to draw, got MUJOCO_GL=.*glGetError.*apt-get install libegl1',
        ),
    ],
)
def test_what_cannot_be_drawn_is_told(make, message):
    with pytest.raises(UserError, match=message):
        rendering.check(make)


def test_an_environments_own_failure_to_draw_keeps_its_type():
    with pytest.raises(OverflowError, match='my own'):
        rendering.check(lambda: Blind(None, ['rgb_array'], OverflowError('my own')))


@pytest.mark.parametrize(
    'module, package', [('imageio_ffmpeg', 'imageio-ffmpeg'), ('PIL', 'pillow')]
)
def test_a_package_that_is_missing_is_named(monkeypatch, module, package):
    find = rendering.importlib.util.find_spec
    monkeypatch.setattr(
        rendering.importlib.util, 'find_spec', lambda name: None if name == module else find(name)
    )
    with pytest.raises(UserError, match=f'pip install {package}'):
        rendering.check(Blind)


def test_fast_leaves_out_shadows_and_smooth_edges():
    pytest.importorskip('mujoco')
    env = gymnasium.make('InvertedPendulum-v5')
    rendering.fast(env)
    quality = env.unwrapped.model.vis.quality
    assert (quality.shadowsize, quality.offsamples) == (0, 0)
    rendering.fast(gymnasium.make('CartPole-v1'))  # Has nothing to leave out.


def test_the_camera_goes_along_with_a_robot_for_people_only():
    pytest.importorskip('mujoco')
    env = gymnasium.make('HalfCheetah-v5', **RGB)
    renderer = env.unwrapped.mujoco_renderer
    seen, usual = [], renderer.camera_id
    renderer.render = lambda mode: seen.append(renderer.camera_id) or np.zeros((2, 2, 3), np.uint8)
    env.reset(seed=0)
    rendering.draw(env)
    env.render()
    # Gymnasium before 1.4 tracks in all cases.
    assert seen[0] >= 0 and seen[1] == usual
