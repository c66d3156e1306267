"""Export what a run has learned, to be used without this package.

    python3 -m agents.scripts.export --logdir=RUN_FOLDER --outdir=FOLDER --format=onnx

The formats are savedmodel, onnx (policy.onnx) and tflite (policy.tflite). The input is `obs`, a
batch of observations, and the output `action`; parts of Dict and Tuple spaces have names of their
own, like `obs_camera` and `action_0`. A policy with memory also takes `first` and `carry_0`, … and
returns `next_carry_0`, … . What was written is run by the format's own library on
observations of the task, and kept only if it acts like the policy itself.
"""

import contextlib
import dataclasses
import importlib.util
import pathlib
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np

from agents.algorithms.hyperparameters import field
from agents.scripts import environments, flags, quiet, runs, signals
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.tools import spaces
from agents.tools.transition import Nest

if TYPE_CHECKING:
    from agents.scripts.exporting import Exported
    from agents.scripts.policies import Policy


class Format(NamedTuple):
    """A way to write a policy.

    Attributes:
        file: Name of the file or folder.
        modules: What must be installed beside this package, by the extra of the format's name.
        snippet: Python that runs the file, where it is at `path` and takes `inputs`.
    """

    file: str
    modules: tuple[str, ...]
    snippet: str


FORMATS = {
    'savedmodel': Format(
        'savedmodel',
        (),
        'import tensorflow as tf\n'
        "act = tf.saved_model.load({path!r}).signatures['serving_default']\n"
        "{action} = act({inputs})['{action}'].numpy()",
    ),
    'onnx': Format(
        'policy.onnx',
        ('tf2onnx', 'onnxruntime'),
        'import onnxruntime\n'
        'session = onnxruntime.InferenceSession({path!r})\n'
        "{action} = session.run(['{action}'], dict({inputs}))[0]",
    ),
    'tflite': Format(
        'policy.tflite',
        ('ai_edge_litert',),
        'from ai_edge_litert.interpreter import Interpreter\n'
        'act = Interpreter({path!r}).get_signature_runner()\n'
        "{action} = act({inputs})['{action}']",
    ),
}
# How much an exported action may differ: far more than rounding, far less than matters.
TOLERANCE = 1e-4
# Observations to compare on, where the policy acts and where actions are random.
_STEPS, _RANDOM_STEPS = 300, 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Flags."""

    logdir: str = field('', 'Folder of the run.')
    outdir: str = field('', 'Where to write; made if it is not there.')
    format: str = field('', f'One of {", ".join(FORMATS)}.')
    checkpoint: str = field('newest', 'Which one to restore: newest, best, or like step-1000.')

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ('logdir', 'outdir', 'format'):
            if not getattr(self, name):
                raise UserError(f'--{name} must be given. --help shows all flags.')
        if self.format not in FORMATS:
            raise UserError(f'The format must be {" or ".join(FORMATS)}, got {self.format!r}.')
        modules = FORMATS[self.format].modules
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            raise UserError(
                f'The format {self.format} needs {" and ".join(missing)}. '
                f"Install it: pip install 'batch-agents[{self.format}]'."
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Export a run as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 0, 2 for a mistake of the user, or 128 plus the number of a signal.
    """
    with signals.handled():
        try:
            given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments)
            if given.pop('help', False):
                example = Arguments(logdir='X', outdir='X', format='savedmodel')
                print(flags.describe(__doc__, example))
                return 0
            print(export(Arguments(**given)))
            return 0
        except UserError as error:
            print(f'export: error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt as stop:
            print('Stopped; no file was left half written.', file=sys.stderr)
            return 128 + getattr(stop, 'signum', signal.SIGINT)


def export(arguments: Arguments) -> str:
    """Write a file, run it, and keep it if it acts like the policy.

    Args:
        arguments: Flags.

    Returns:
        What was written, how well it acts, and how to run it.

    Raises:
        UserError: Something that is needed is not there, the format cannot hold the policy, or the
            file acts differently.
    """
    run = runs.open_folder(arguments.logdir)
    config = runs.load_config(run)
    environments.check(config)
    quiet.import_tensorflow(config)
    from agents.scripts import policies

    policy = policies.load(run.folder, arguments.checkpoint)
    episodes = record(config, policy)
    outdir = pathlib.Path(arguments.outdir).expanduser().absolute()
    target = outdir / FORMATS[arguments.format].file
    try:
        outdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix='.export-', dir=outdir) as folder:
            path = pathlib.Path(folder) / target.name
            exported = _write(policy, arguments.format, path)
            result = compare(policy, exported, *episodes)
            with signals.deferred():
                if target.exists():
                    target.replace(pathlib.Path(folder) / 'former')  # Goes with the folder.
                path.replace(target)
    except OSError as error:
        raise UserError(f'The outdir must be a folder that can be written: {error}.') from None
    inputs = ', '.join(f'{name}={name}' for name in exported.inputs)
    action = next(name for name in exported.outputs if name.startswith('action'))
    snippet = FORMATS[arguments.format].snippet.format(
        path=str(target), inputs=inputs, action=action
    )
    return (
        f'{target}: {_size(target):,} bytes. {result}\n'
        f'Inputs: {_describe(exported.inputs)}. Outputs: {_describe(exported.outputs)}.\n\n'
        f'{snippet}'
    )


def record(config: Config, policy: 'Policy') -> tuple[Nest, np.ndarray]:
    """Collect observations of the task, first where the policy acts, then with random actions.

    Args:
        config: Says which task.
        policy: What acts.

    Returns:
        Observations, nest [T, ...], and whether an episode begins with each, bool [T].
    """
    space = policy.observation_space
    env = environments.make_env(config.env, config.env_kwargs, config.wrappers)
    collected = []
    with contextlib.closing(env):
        env.action_space.seed(0)
        (obs, _), first = env.reset(seed=0), True
        for step in range(_STEPS + _RANDOM_STEPS):
            row = spaces.check_row(space, obs, 0)
            collected.append((spaces.copy(row), first))
            action = policy(obs, first) if step < _STEPS else env.action_space.sample()
            obs, _, terminated, truncated, _ = env.step(action)
            first = terminated or truncated
            if first:
                obs, _ = env.reset()
    observations, firsts = zip(*collected, strict=True)
    # As the space says, which an environment need not keep to, but a file does.
    batch = spaces.zeros(space, (len(observations),))
    for index, row in enumerate(observations):
        spaces.put(batch, index, row)
    return batch, np.array(firsts)


def compare(policy: 'Policy', exported: 'Exported', obs: Nest, first: np.ndarray) -> str:
    """Play both through the same observations, one at a time, and then all as one batch.

    Discrete actions must be equal, all of them: two logits hardly ever lie within rounding of each
    other, and an algorithm need not have any logits that would tell.

    Args:
        policy: What it must act like.
        exported: What was written.
        obs: Observations, nest [T, ...].
        first: Whether an episode begins with each, bool [T].

    Returns:
        The largest difference of an action, or how many are equal, as a sentence.

    Raises:
        UserError: The difference is too large.
    """
    pairs = []
    for size in (1, len(first)):
        policy.reset()
        exported.reset(size)
        for start in range(0, len(first), size):
            stop = start + size
            rows = spaces.part(obs, start, stop), first[start:stop]
            pairs.append((policy(*rows), exported(*rows)))
    wanted, actions = (spaces.concatenate(x) for x in zip(*pairs, strict=True))
    structure = spaces.structure(policy.action_space)
    compared = spaces.parts(spaces.map_parts(_difference, structure, wanted, actions))
    differences, good = (np.stack(x) for x in zip(*(part for _, part in compared), strict=True))
    difference, count = differences.max(0), differences.shape[1]
    wrong = np.flatnonzero(~good.all(0))
    if len(wrong):
        raise UserError(
            f'What was written must act like the policy, but {len(wrong)} of {count} actions '
            f'differ, action {wrong[0] % len(first)} by {difference[wrong[0]]:.3g}. Nothing '
            'was kept; choose another format.'
        )
    if not any(isinstance(x, gymnasium.spaces.Box) for _, x in spaces.parts(structure)):
        return f'All {count} actions are equal.'
    return f'Largest difference in {count} actions: {difference.max():.1e}.'


def _difference(
    space: gymnasium.Space, wanted: np.ndarray, actions: np.ndarray
) -> list[np.ndarray]:
    """Return the largest difference of each row of a part, and whether it is good, both [N]."""
    wanted = wanted.astype(np.float64)
    difference = np.abs(actions.astype(np.float64) - wanted)
    good = difference <= TOLERANCE * _unit(space, wanted)  # Not if it is no number.
    flat = difference.reshape(len(wanted), -1)
    return [flat.max(1, initial=0), good.reshape(flat.shape).all(1)]


def _write(policy: 'Policy', kind: str, path: pathlib.Path) -> 'Exported':
    """Write a policy, and tell in one line what a converter wrote many about."""
    from agents.scripts import exporting

    with quiet.output():
        if kind == 'savedmodel':  # TensorFlow's own format has every operation.
            return exporting.write(policy, kind, path)
        try:
            return exporting.write(policy, kind, path)
        except (OSError, UserError):
            raise
        except Exception as error:  # Each converter has its own types.
            # A converter may put the place in its own code in front.
            lines = str(error).splitlines() or ['']
            problem = f'{type(error).__name__}: {lines[0].rpartition("error: ")[2]}'
    double = ' It has no float64, which actions that are float64 or integers need.'
    raise UserError(
        f'The policy must consist of operations that {kind} has: {problem}.'
        f'{double if kind == "tflite" else ""} Choose --format=savedmodel, which has all of them.'
    )


def _unit(space: gymnasium.Space, action: np.ndarray) -> np.ndarray | float:
    """What rounding is relative to: 1, or half a range that actions are scaled to, or an action."""
    if not isinstance(space, gymnasium.spaces.Box):
        return 1.0
    low, high = np.float64(space.low), np.float64(space.high)
    half = np.where(np.isfinite(low) & np.isfinite(high), high / 2 - low / 2, 1.0)
    return np.maximum(np.maximum(half, np.abs(action)), 1.0)


def _describe(tensors: Mapping[str, Any]) -> str:
    return ', '.join(
        f'{name} {x.dtype.name} [{", ".join(map(str, ["rows", *x.shape[1:]]))}]'
        for name, x in tensors.items()
    )


def _size(path: pathlib.Path) -> int:
    files = [path] if path.is_file() else [x for x in path.rglob('*') if x.is_file()]
    return sum(file.stat().st_size for file in files)


if __name__ == '__main__':
    sys.exit(main())
