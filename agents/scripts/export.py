"""Export what a run has learned, to be used without this package.

    python3 -m agents.scripts.export --logdir=RUN_FOLDER --outdir=FOLDER --format=onnx

The formats are savedmodel, onnx (policy.onnx) and tflite (policy.tflite). The input is `obs`, a
batch of observations, and the output `action`; a policy with memory also takes `first` and
`carry_0`, … and returns `next_carry_0`, … . What was written is run on observations of the task and
must act like the policy itself.
"""

import dataclasses
import importlib.util
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.algorithms.hyperparameters import field
from agents.scripts import environments, flags, quiet, runs
from agents.scripts.configs import Config
from agents.scripts.mistakes import UserError

if TYPE_CHECKING:
    from agents.scripts.exporting import Exported

# For each format: the file, and what must be installed beside this package, by extra.
FORMATS = {
    'savedmodel': ('savedmodel', ()),
    'onnx': ('policy.onnx', ('tf2onnx', 'onnxruntime')),
    'tflite': ('policy.tflite', ('ai_edge_litert',)),
}
# How much an exported action may differ: far more than rounding, far less than matters.
TOLERANCE = 1e-4
# Observations to compare on.
_STEPS = 200


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
        missing = [x for x in FORMATS[self.format][1] if importlib.util.find_spec(x) is None]
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
        Exit code: 0, or 2 for a mistake of the user.
    """
    try:
        given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments)
        if given.pop('help', False):
            print(flags.describe(__doc__, Arguments(logdir='X', outdir='X', format='savedmodel')))
            return 0
        path, difference = export(Arguments(**given))
    except UserError as error:
        print(f'export: error: {error}', file=sys.stderr)
        return 2
    print(f'{path}: {_size(path):,} bytes; largest difference of an action {difference:.1e}.')
    return 0


def export(arguments: Arguments) -> tuple[pathlib.Path, float]:
    """Write a file, run it, and keep it if it acts like the policy.

    Args:
        arguments: Flags.

    Returns:
        The file, and the largest difference of an action.

    Raises:
        UserError: Something that is needed is not there, or the file acts differently.
    """
    run = runs.open_folder(arguments.logdir)
    config = runs.load_config(run)
    environments.check(config)
    quiet.import_tensorflow(config)
    from agents.scripts import exporting, policies

    policy = policies.load(run.folder, arguments.checkpoint)
    obs = record(config, policy)
    outdir = pathlib.Path(arguments.outdir).expanduser().absolute()
    target = outdir / FORMATS[arguments.format][0]
    try:
        outdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix='.export-', dir=outdir) as folder:
            path = pathlib.Path(folder) / target.name
            with quiet.output():
                copy = policies.load(run.folder, arguments.checkpoint)
                exported = exporting.write(copy, arguments.format, path)
            difference = compare(policy, exported, obs)
            if target.is_dir():
                shutil.rmtree(target)
            path.replace(target)
    except OSError as error:
        raise UserError(f'The outdir must be a folder that can be written: {error}.') from None
    return target, difference


def record(config: Config, policy: Callable[[Any], Any]) -> list[np.ndarray]:
    """Collect observations of the task, half of them with random actions.

    Args:
        config: Says which task.
        policy: Acts in the other half.
    """
    config = dataclasses.replace(config, engine='process', num_workers=0)
    env = environments.make_env(config.env, config.env_kwargs, config.wrappers)
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    collected = []
    for step in range(_STEPS):
        collected.append(np.array(obs))
        action = policy(obs) if step < _STEPS // 2 else env.action_space.sample()
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()
    return collected


def compare(policy: Any, exported: 'Exported', obs: Sequence[np.ndarray]) -> float:
    """Play both through the same observations, as one episode.

    Args:
        policy: What it must act like.
        exported: What was written.
        obs: Observations.

    Returns:
        Largest difference of an action.

    Raises:
        UserError: It is too large.
    """
    policy.reset()
    largest = 0.0
    for index, row in enumerate(obs):
        wanted = np.asarray(policy(row), np.float64)
        action = exported(row[None], np.array([index == 0]))[0]
        difference = float(np.abs(action - wanted).max())
        if not difference <= TOLERANCE:  # Also if it is no number.
            raise UserError(
                f'What was written must act like the policy, but action {index} differs by '
                f'{difference:.3g}, more than {TOLERANCE:g}. Nothing was kept; choose another '
                'format.'
            )
        largest = max(largest, difference)
    return largest


def _size(path: pathlib.Path) -> int:
    files = [path] if path.is_file() else [x for x in path.rglob('*') if x.is_file()]
    return sum(file.stat().st_size for file in files)


if __name__ == '__main__':
    sys.exit(main())
