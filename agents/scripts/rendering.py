"""Rendering environments on machines with and without a display."""

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from agents.scripts import environments
from agents.scripts.mistakes import UserError
from agents.tools.wrappers.external_process import ExternalProcess

_LIBRARIES = (
    'On Debian and Ubuntu: apt-get install libegl1 libgl1; or libosmesa6, and set MUJOCO_GL=osmesa.'
)

# Exits with 3 where the module does not use MuJoCo, or fails by itself; and with 1 where it cannot
# draw.
_PROBE = """
import importlib, sys
try:
    importlib.import_module(sys.argv[1])
except Exception:
    sys.exit(3)
if 'mujoco' not in sys.modules:
    sys.exit(3)
import mujoco
context = mujoco.GLContext(64, 64)
context.make_current()
model = mujoco.MjModel.from_xml_string('<mujoco/>')
mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
"""


def choose_backend(task: str) -> None:
    """Let an environment draw without a display, if there is none; call it before making any.

    Sets SDL_VIDEODRIVER, and MUJOCO_GL for tasks that import MuJoCo, unless the user has set them:
    EGL where it works, else OSMesa. Worker processes inherit both.

    Args:
        task: Id of a registered task, or `module:id`.

    Raises:
        UserError: There is no such task, or MuJoCo can draw in neither way.
    """
    name = environments.find_task(task)
    if sys.platform != 'linux' or os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY'):
        return
    os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
    module = _module(gymnasium.spec(name).entry_point)
    # Gymnasium's other tasks need no process to tell that they do without.
    others = module.startswith('gymnasium.envs.') and '.mujoco.' not in module
    if 'MUJOCO_GL' in os.environ or others or not importlib.util.find_spec('mujoco'):
        return
    for backend in ('egl', 'osmesa'):
        code = _probe(module, backend)
        if code == 3:
            return
        if code == 0:
            os.environ['MUJOCO_GL'] = backend
            return
    raise UserError(f'MuJoCo must have OpenGL to draw {task}, but found none. {_LIBRARIES}')


def check(make_env: Callable[[], gymnasium.Env]) -> None:
    """Make an environment in another process, and check that it gives frames for videos.

    Environments that are drawn belong into other processes than TensorFlow, too: see `Recorder`.

    Args:
        make_env: Makes it with render_mode='rgb_array'.

    Raises:
        UserError: It has no such mode, something must be installed, or a frame is no image.
    """
    require(imageio_ffmpeg='imageio-ffmpeg', PIL='pillow')
    # In a process of its own: OpenGL in software and TensorFlow each bring an LLVM, and a process
    # with both of them crashes.
    with ExternalProcess(functools.partial(_make_checked, make_env)) as process:
        process.get_attr('render_mode')  # Waits until it is made.


def require(**packages: str) -> None:
    """Check that optional packages are installed.

    Args:
        **packages: Name to install, by name to import.

    Raises:
        UserError: One is not.
    """
    for module, package in packages.items():
        if not importlib.util.find_spec(module):
            raise UserError(
                f'Showing episodes needs {package}, which is not installed: pip install {package}'
            )


def check_frame(frame: Any) -> np.ndarray:
    """Return a frame if it is an image, uint8 [height, width, 3].

    Raises:
        UserError: It is something else.
    """
    shape: tuple[int, ...] = getattr(frame, 'shape', ())
    dtype = getattr(frame, 'dtype', type(frame).__name__)
    if len(shape) != 3 or shape[2] != 3 or 0 in shape or dtype != np.uint8:
        raise UserError(
            f'Frames must be images, uint8 [height, width, 3], got shape={shape} dtype={dtype}.'
        )
    return frame


def draw(env: gymnasium.Env) -> np.ndarray:
    """Draw a frame for people to watch; what the environment itself sees stays the same.

    MuJoCo's robots soon walk out of a camera that stands still. Where the model has a camera that
    goes along, and no other was asked for, that one is used.

    Args:
        env: Environment made with render_mode='rgb_array'.

    Returns:
        Image, uint8 [height, width, 3].

    Raises:
        UserError: The frame is no image.
    """
    renderer: Any = getattr(env.unwrapped, 'mujoco_renderer', None)
    if getattr(renderer, 'camera_id', None) != -1:
        return check_frame(env.render())
    import mujoco

    kind = mujoco.mjtObj.mjOBJ_CAMERA
    renderer.camera_id = mujoco.mj_name2id(renderer.model, kind, 'track')  # -1 if it has none.
    try:
        return check_frame(env.render())
    finally:
        renderer.camera_id = -1


def fast(env: gymnasium.Env) -> None:
    """Draw MuJoCo without shadows and smooth edges, several times faster; others as they are.

    Args:
        env: Environment that has not been rendered yet.
    """
    visual = getattr(getattr(env.unwrapped, 'model', None), 'vis', None)
    if 'mujoco' in sys.modules and visual is not None:
        visual.quality.shadowsize = 0
        visual.quality.offsamples = 0


def _make_checked(make_env: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    try:
        env = make_env()
    except TypeError as error:
        if 'render_mode' not in str(error):
            raise
        raise UserError(f'The task must take render_mode to be shown: {error}.') from None
    try:
        modes = env.metadata.get('render_modes') or []
        if env.render_mode != 'rgb_array' or 'rgb_array' not in modes:
            raise UserError(
                f'The task must have the render mode rgb_array to be shown, got '
                f'{", ".join(map(str, modes)) or "none"} for {env.unwrapped}.'
            )
        env.reset(seed=0)
        _try_to_draw(env)
    except BaseException:
        env.close()
        raise
    return env


def _try_to_draw(env: gymnasium.Env) -> None:
    try:
        draw(env)
    except UserError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f'To draw {env.unwrapped}, install what is missing: {error}') from None
    except Exception as error:
        # What fails without OpenGL has many types, and texts that do not say so.
        if not hasattr(env.unwrapped, 'mujoco_renderer'):
            raise
        backend = os.environ.get('MUJOCO_GL', 'unset')
        raise UserError(
            f'MuJoCo must have OpenGL to draw, got MUJOCO_GL={backend}, which fails with '
            f'{error!r}. {_LIBRARIES}'
        ) from None


def _module(entry_point: Any) -> str:
    """Name the module of what makes a task."""
    if isinstance(entry_point, str):
        return entry_point.partition(':')[0]
    return getattr(entry_point, '__module__', None) or 'builtins'


def _probe(module: str, backend: str) -> int:
    """Try in a process of its own, since a second way cannot be tried where one was loaded."""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, '-c', _PROBE, module]
    variables = {**os.environ, 'MUJOCO_GL': backend, 'PYTHONPATH': path}
    return subprocess.run(command, env=variables, capture_output=True, check=False).returncode
