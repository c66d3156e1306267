"""Draw the learning curves of the README from run folders.

python3 -m benchmarks.learning_curves LOGDIR docs/learning_curves.png
"""

import collections
import json
import pathlib
import sys

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np

SOLVED = {'pendulum': -200, 'cartpole': 475}
COLORS = {'pendulum': '#0072B2', 'cartpole': '#D55E00'}  # Told apart by colour-blind people.


def read(logdir):
    """Return {config: [(steps, evaluation scores, seconds of each) of a run]}."""
    runs = collections.defaultdict(list)
    for path in sorted(pathlib.Path(logdir).glob('*/metrics.jsonl')):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [(x['step'], x['score'], x['seconds']) for x in lines if x['phase'] == 'eval']
        runs[path.parent.name.rpartition('-')[2]].append(np.array(rows).T)
    return runs


def draw(runs, path):
    figure, axes = plt.subplots(1, len(runs), figsize=(4.5 * len(runs), 3), layout='constrained')
    for axis, (name, curves) in zip(np.atleast_1d(axes), sorted(runs.items()), strict=True):
        for steps, scores, _ in curves:
            axis.plot(steps / 1000, scores, color=COLORS[name], alpha=0.3, linewidth=1)
        shared = np.mean([scores for _, scores, _ in curves], 0)
        seconds = np.median([seconds[-1] for _, _, seconds in curves])
        axis.plot(curves[0][0] / 1000, shared, color=COLORS[name], linewidth=2.5)
        axis.axhline(SOLVED[name], color='0.5', linestyle=':', linewidth=1)
        axis.set_title(f'{name}: {len(curves)} seeds, {seconds:.0f} s each', fontsize=11)
        axis.set_xlabel('steps (thousands)')
        axis.set_ylabel('evaluation score')
        axis.spines[['top', 'right']].set_visible(False)
        axis.grid(alpha=0.2)
    figure.savefig(path, dpi=150)


if __name__ == '__main__':
    draw(read(sys.argv[1]), sys.argv[2])
