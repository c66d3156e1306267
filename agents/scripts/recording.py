"""What a run leaves in its folder: metrics, TensorBoard events, checkpoints."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from agents.scripts import board, checkpoints, runs, signals

_INTEGERS = (
    'records',
    'evaluations',
    'logged_at',
    'drawn_at',
    'filmed_at',
    'evaluated_at',
    'finished_at',
    'best_step',
    'worker_failures',
)
_SCORES = ('score', 'interim_score', 'best_score')


class Counters(tf.Module):
    """Where a run is, besides the algorithm's own state; part of its checkpoints.

    Attributes:
        records: Lines of metrics.jsonl, int64 [].
        evaluations: Evaluations so far; their seeds are folded from it, int64 [].
        logged_at: Step of the last record of training, int64 [].
        drawn_at: Step of the last histograms, int64 [].
        filmed_at: Step of the last video, int64 [].
        evaluated_at: Step of the last evaluation, int64 [].
        finished_at: Step of the last evaluation at the end, 0 if there was none, int64 [].
        score: Mean score of the last evaluation, NaN before it, float64 [].
        interim_score: The same without evaluations at the end, float64 [].
        best_score: Best mean score of an evaluation, NaN before it, float64 [].
        best_step: Step of the evaluation with that score, int64 [].
        worker_failures: How often processes of environments were started anew, int64 [].
        seconds: Time spent on the run, float64 [].
    """

    def __init__(self) -> None:
        super().__init__(name='counters')
        for name in _INTEGERS:
            setattr(self, name, tf.Variable(0, dtype=tf.int64, trainable=False, name=name))
        for name in _SCORES:
            setattr(self, name, tf.Variable(math.nan, dtype=tf.float64, trainable=False, name=name))
        self.seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False, name='seconds')

    def __getitem__(self, name: str) -> Any:
        """Return a counter as a Python number."""
        return getattr(self, name).numpy().item()

    def assign(self, **values: float) -> None:
        """Set counters by name."""
        for name, value in values.items():
            getattr(self, name).assign(value)


class Recorder:
    """Writes a run's folder; keeps only the counters for a run without one.

    Attributes:
        counters: Where the run is; restored from the newest checkpoint if there is one.
        restored: Name of that checkpoint, or None.
    """

    def __init__(self, run: runs.Run | None, **state: Any):
        """Restore the newest checkpoint.

        Args:
            run: Where to write; None for nowhere.
            **state: Trackable objects that must survive a restart, by name.
        """
        self.counters = Counters()
        self.restored: str | None = None
        self._run = run
        self._writers: dict[str, Any] = {}
        self._file: Any = None
        if run is None:
            return
        self._checkpoint = tf.train.Checkpoint(counters=self.counters, **state)
        for best in (False, True):
            checkpoints.write_list(run, best)
        self._newest, self._best = (
            tf.train.CheckpointManager(
                self._checkpoint, str(checkpoints.folder(run, best)), kept, checkpoint_name='step'
            )
            for best, kept in ((False, 5), (True, 1))
        )
        if checkpoints.exist(run):
            found = checkpoints.find(run)
            self.restored = checkpoints.restore(self._checkpoint, found).name

    def record(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl and scalars to TensorBoard.

        Args:
            phase: 'train' or 'eval'.
            step: Steps trained so far.
            values: Numbers by name; NaN, which JSON does not have, is written as null.
        """
        if self._run is None:
            return
        seconds = round(self.counters['seconds'], 3)
        data = {'step': step, 'phase': phase, **values, 'seconds': seconds}
        line = json.dumps({name: _finite(value) for name, value in data.items()}, allow_nan=False)
        file = self._file or self._open()
        file.write(f'{line}\n')
        file.flush()
        self.counters.records.assign_add(1)
        writer = self._writers[phase]
        with writer.as_default(step=step):
            for name, value in values.items():
                if math.isfinite(value) and not isinstance(value, bool):
                    tf.summary.scalar(name, float(value))
        writer.flush()

    def histograms(self, step: int, arrays: Mapping[str, Any]) -> None:
        """Write histograms to TensorBoard.

        Args:
            step: Steps trained so far.
            arrays: Arrays or variables by name; NaN is left out.
        """
        if self._run is None:
            return
        if self._file is None:
            self._open()
        with self._writers['train'].as_default(step=step):
            for name, array in arrays.items():
                values = np.asarray(array)
                tf.summary.histogram(name, values[~np.isnan(values)])

    def save(self, step: int, best: bool = False) -> None:
        """Write a checkpoint, as a whole even if a signal arrives.

        Args:
            step: Steps trained so far; part of its name.
            best: Whether it is the one that scored best, which is kept besides the newest ones.
        """
        if self._run is not None:
            with signals.deferred():
                (self._best if best else self._newest).save(checkpoint_number=step)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        if self._file is not None:
            self._file.close()

    def _open(self) -> Any:
        """Open the files, when there is something to write; drop what a crash made worthless.

        A checkpoint says how many lines had been written. Later ones would be written again.
        TensorBoard's files cannot be cut: there the two pieces overlap.
        """
        assert self._run is not None
        folder = self._run.folder
        path = folder / 'metrics.jsonl'
        keep = self.counters['records']
        lines = path.read_text(encoding='utf-8').splitlines(True) if path.exists() else []
        if len(lines) > keep:
            runs.write_atomically(path, ''.join(lines[:keep]))
        self._file = path.open('a', encoding='utf-8')
        for phase in ('train', 'eval'):
            self._writers[phase] = tf.summary.create_file_writer(str(folder / phase))
        config = runs.load_config(self._run)
        with self._writers['train'].as_default(step=0):
            tf.summary.text('config', board.config_table(config))
        board.write_hyperparameters(folder, config)
        return self._file


def weights(algorithm: Any) -> dict[str, Any]:
    """Find the weights of an algorithm's networks, by name.

    Args:
        algorithm: Its attributes are searched for what has `weights`, as Keras models do, and for
            trainable variables.
    """
    found = {}
    for name, part in vars(algorithm).items():
        if isinstance(part, tf.Variable) and part.trainable:
            found[name] = part
            continue
        variables = getattr(part, 'weights', None)
        for index, weight in enumerate(variables if isinstance(variables, list) else ()):
            found[f'{name}/{index}_{getattr(weight, "path", weight.name)}'] = weight
    return found


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
