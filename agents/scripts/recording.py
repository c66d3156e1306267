"""What a run leaves in its folder: metrics, TensorBoard events, checkpoints."""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from agents.scripts import board, checkpoints, runs, signals
from agents.scripts.mistakes import UserError, first_line

_logger = logging.getLogger(__name__)

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
        continuation: What that checkpoint holds besides variables; empty if it is an older one.
    """

    def __init__(self, run: runs.Run | None, **state: Any):
        """Restore the newest checkpoint.

        Args:
            run: Where to write; None for nowhere.
            **state: Trackable objects that must survive a restart, by name.
        """
        self.counters = Counters()
        self.restored: str | None = None
        self.continuation = b''
        self._run = run
        self._writers: dict[str, Any] = {}
        self._file: Any = None
        self._unwritten: list[str] = []
        if run is None:
            return
        with tf.device('CPU:0'):
            self._continuation = tf.Variable(b'', trainable=False, name='continuation')
        self._checkpoint = tf.train.Checkpoint(
            counters=self.counters, continuation=self._continuation, **state
        )
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
            older = tf.train.Checkpoint(counters=self.counters, **state)
            self.restored = checkpoints.restore(self._checkpoint, found, older).name
            self.continuation = self._continuation.numpy()

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
        self._unwritten.append(f'{line}\n')
        self.write_lines()
        with self._guard(phase), self._events(phase, step) as writer:
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
        with self._guard('train'), self._events('train', step):
            for name, array in arrays.items():
                values = np.asarray(array)
                tf.summary.histogram(name, values[~np.isnan(values)])

    def save(self, step: int, best: bool = False, continuation: bytes = b'') -> bool:
        """Write a checkpoint, as a whole even if a signal arrives.

        Args:
            step: Steps trained so far; part of its name.
            best: Whether it is the one that scored best, which is kept besides the newest ones.
            continuation: What must be kept besides variables.

        Returns:
            Whether it could be written. If not, that is said, and those before it are left alone.
        """
        if self._run is None:
            return True
        with signals.deferred():
            self._continuation.assign(continuation)
            try:
                (self._best if best else self._newest).save(checkpoint_number=step)
            except (OSError, tf.errors.OpError) as error:
                checkpoints.remove_torn(self._run, step, best)
                _logger.warning(
                    'The checkpoint of step %d cannot be written: %s Training goes on, and the '
                    'last checkpoint stays. See to the disk before the next one.',
                    step,
                    first_line(error),
                )
                return False
            finally:
                self._continuation.assign(b'')
        return True

    def write_lines(self) -> bool:
        """Append to metrics.jsonl what waits for it, and return whether nothing is left."""
        try:
            if self._unwritten:
                self._append_lines()
        except OSError as error:
            _logger.warning(
                'metrics.jsonl cannot be written: %s. Training goes on, and %d lines wait for the '
                'next try.',
                error,
                len(self._unwritten),
            )
        return not self._unwritten

    def renew(self) -> None:
        """Begin all files anew, since those of before are gone."""
        self.close()
        self.counters.assign(records=0)

    def close(self) -> None:
        """Close the files."""
        for phase in list(self._writers):
            with self._guard():
                self._writers.pop(phase).close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append_lines(self) -> None:
        """Append lines as a whole: what a full disk cuts off is taken back."""
        file = self._file or self._open_lines()
        data = ''.join(self._unwritten).encode()
        size = file.seek(0, 2)
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(size)
            raise
        self.counters.records.assign_add(len(self._unwritten))
        self._unwritten.clear()

    @contextlib.contextmanager
    def _events(self, phase: str, step: int) -> Iterator[Any]:
        """Let summaries go to TensorBoard's file of a phase."""
        if phase not in self._writers:
            self._open_events(phase)
        with self._writers[phase].as_default(step=step):
            yield self._writers[phase]

    @contextlib.contextmanager
    def _guard(self, phase: str = '') -> Iterator[None]:
        """Go on if TensorBoard's files cannot be written, which is said; then begin a new one."""
        try:
            yield
        except (OSError, UserError, tf.errors.OpError) as error:
            # What follows in a file that was cut in the middle of a record cannot be read.
            self._writers.pop(phase, None)
            _logger.warning(
                "TensorBoard's files cannot be written: %s Training goes on without these values.",
                first_line(error),
            )

    def _open_lines(self) -> Any:
        """Open the metrics, when there is something to write; drop what a crash made worthless.

        A checkpoint says how many lines had been written. Later ones would be written again.
        TensorBoard's files cannot be cut: there the two pieces overlap.
        """
        assert self._run is not None
        path = self._run.folder / 'metrics.jsonl'
        keep = self.counters['records']
        lines = path.read_text(encoding='utf-8').splitlines(True) if path.exists() else []
        if len(lines) > keep:
            runs.write_atomically(path, ''.join(lines[:keep]))
        self._file = path.open('ab', buffering=0)
        return self._file

    def _open_events(self, phase: str) -> None:
        assert self._run is not None
        folder = self._run.folder
        writer = tf.summary.create_file_writer(str(folder / phase))
        if phase == 'train':
            config = runs.load_config(self._run)
            with writer.as_default(step=0):
                tf.summary.text('config', board.config_table(config))
            board.write_hyperparameters(folder, config)
        self._writers[phase] = writer


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
