"""What TensorBoard shows of a run besides curves: its config, and hyper-parameters to compare."""

import dataclasses
import pathlib
from typing import Any

import tensorflow as tf

from agents.scripts import flags
from agents.scripts.config import Config


def config_table(config: Config) -> str:
    """Write a config as a table in Markdown.

    Args:
        config: Config of the run.
    """
    lines = ['| field | value | meaning |', '|---|---|---|']
    for field in dataclasses.fields(config):
        cells = (field.name, flags.to_text(getattr(config, field.name)), field.metadata['help'])
        lines.append(f'| {" | ".join(cell.replace("|", chr(92) + "|") for cell in cells)} |')
    return '\n'.join(lines)


def write_hyperparameters(folder: pathlib.Path, config: Config) -> None:
    """Write what the tab HPARAMS compares runs by, once for each run.

    Args:
        folder: Folder of the run; the evaluations are in `eval` and training in `train` below it.
        config: Config of the run.
    """
    from tensorboard.plugins.hparams import api

    if any(folder.glob('events.out.*')):
        return
    values = {name: _plain(value) for name, value in vars(config).items()}
    metrics = [
        api.Metric('score', group='eval', display_name='evaluation score'),
        api.Metric('score', group='train', display_name='training score'),
        api.Metric('steps_per_second', group='train', display_name='steps per second'),
    ]
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default(step=0):
        api.hparams_config([api.HParam(name) for name in values], metrics)
        api.hparams(values, trial_id=folder.name)
    writer.close()


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else flags.to_text(value)
