"""Write docs/results.md and its pictures from the tables."""

import collections
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.scripts import runs
from benchmarks import intervals
from benchmarks.scores import picture, targets
from benchmarks.scores.entries import Entry, read
from benchmarks.scores.tables import Row
from benchmarks.scores.targets import OBJECTIVES

HEADER = """# Scores

Written by `python3 -m benchmarks.scores` from [scores.csv](results/scores.csv), a row for each run,
[curves.csv](results/curves.csv), its evaluations, and [configs.json](results/configs.json), all of
its settings.

Every config is trained with both objectives and the seeds 0, 1, 2, …, of which none is left out.
The score of a run is the mean undiscounted sum of an episode's rewards over {episodes} fresh
episodes at its end, with the last weights and the policy's mode as action. The score of a config is
the interquartile mean over its seeds, from three seeds on with a 95 % bootstrap interval.
*Maximum* is the mean over seeds of the best evaluation of each: that is how some others count, and
it is never lower than what the runs end with."""

SUMMARY = """*Reached* says whose interquartile mean is as good as wanted. Minutes are wall time.
In the pictures thin lines are seeds and thick ones their means."""

REPEAT = """The first commands go on where they stopped, as often as they are called; the last one
is a single run. Changed settings stand behind the name of a config. Minutes and steps/s are medians
over runs: the former of everything but the start, the latter of training alone."""

NOTHING = '—'


def write(outdir: pathlib.Path) -> None:
    """Write the page and the pictures.

    Args:
        outdir: Where results.md and the folder results are; made if they are not there.
    """
    folder = outdir / 'results'
    folder.mkdir(parents=True, exist_ok=True)
    entries, stale = read(folder)
    pictures = {}
    for family in targets.FAMILIES:
        panels = [
            picture.Panel(f'{entry.label}\n{entry.task}', entry.curves, entry.wanted_score)
            for entry in entries
            if entry.family == family and any(entry.curves.values())
        ]
        if panels:
            pictures[family] = re.sub('[^a-z0-9]+', '-', family.lower()) + '.png'
            picture.draw(panels, folder / pictures[family])
    runs.write_atomically(outdir / 'results.md', compose(entries, stale, pictures))


def compose(entries: Sequence[Entry], stale: Sequence[Row], pictures: Mapping[str, str]) -> str:
    """Write the page as Markdown.

    Args:
        entries: What is known.
        stale: Rows that are left out.
        pictures: File in the folder results, by family.
    """
    measured = [row for x in entries for group in x.rows.values() for row in group]
    episodes = sorted({entry.config.final_eval_episodes for entry in entries})
    sections = [
        HEADER.format(episodes=' or '.join(map(str, episodes))),
        _summary(entries),
        SUMMARY,
        _sources(),
    ]
    for family in targets.FAMILIES:
        members = [entry for entry in entries if entry.family == family]
        if any(entry.finished(x) for entry in members for x in OBJECTIVES):
            sections.append(f'## {family}')
            if family in pictures:
                sections.append(f'![Learning curves: {family}](results/{pictures[family]})')
            sections.append(_details(members))
    problems = [row for row in measured if row.problem]
    if problems:
        lines = [f'- {x.config}, {x.objective}, seed {x.seed}: {x.problem}' for x in problems]
        sections += ['## Failed runs', '\n'.join(lines)]
    if stale:
        names = ', '.join(sorted({row.config for row in stale}))
        sections.append(
            f'Rows that are left out, as the configs ({names}) have other settings by now: '
            f'{len(stale)}.'
        )
    return '\n\n'.join([*sections, _repeat(measured)]) + '\n'


def number(value: float) -> str:
    """Write a score so that its digits mean something."""
    if value != value:
        return NOTHING
    return f'{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2}f}'


def _summary(entries: Sequence[Entry]) -> str:
    names = [f'{title}, final score' for title in OBJECTIVES.values()]
    lines = []
    for entry in sorted(entries, key=lambda x: (targets.FAMILIES.index(x.family), x.label)):
        minutes = [row.seconds / 60 for group in entry.rows.values() for row in group]
        published = [f'{x.published}, {x.source}' for x in entry.targets if x.published]
        lines.append(
            (
                entry.label,
                entry.task,
                f'{entry.config.steps:,}',
                _median(minutes),
                *(_score(entry, objective) for objective in OBJECTIVES),
                _wanted(entry),
                _reached(entry),
                '; '.join(published) or NOTHING,
            )
        )
    columns = ('config', 'environment', 'steps', 'minutes', *names, 'wanted', 'reached')
    return _table((*columns, 'strongest published'), 'llrrrrlll', lines)


def _details(entries: Sequence[Entry]) -> str:
    lines = []
    for entry in entries:
        for objective, title in OBJECTIVES.items():
            rows = entry.finished(objective)
            if not rows:
                continue
            scores = np.array([row.score for row in rows])
            low, high = intervals.interval(scores)
            deviation = f' ± {number(scores.std(ddof=1))}' if len(rows) > 1 else ''
            lines.append(
                (
                    entry.label,
                    title,
                    str(len(rows)),
                    number(entry.middle(objective)),
                    NOTHING if low != low else f'{number(low)} … {number(high)}',
                    f'{number(scores.mean())}{deviation}',
                    number(float(np.mean([row.maximum for row in rows]))),
                    f'{int(np.median([row.steps for row in rows])):,}',
                    _median([row.seconds / 60 for row in rows]),
                    _median([row.steps_per_second for row in rows], 0),
                )
            )
    columns = ('config', 'objective', 'seeds', 'interquartile mean', '95 % interval')
    columns += ('mean ± sd', 'maximum', 'steps', 'minutes', 'steps/s')
    return _table(columns, 'llrrrrrrrr', lines)


def _score(entry: Entry, objective: str) -> str:
    rows = entry.rows[objective]
    finished = entry.finished(objective)
    failed = f'{len(rows) - len(finished)} failed' if len(rows) > len(finished) else ''
    if not finished:
        return failed or 'not yet measured'
    low, high = intervals.interval([row.score for row in finished])
    text = number(entry.middle(objective))
    if low == low:
        text += f' [{number(low)}, {number(high)}]'
    if len(finished) < 3:
        text += f' ({len(finished)} seed{"s" * (len(finished) > 1)})'
    return f'{text}, {failed}' if failed else text


def _wanted(entry: Entry) -> str:
    if not entry.targets:
        return NOTHING
    target = entry.targets[0]
    if target.score is None:
        return target.words
    text = f'≥ {number(target.score)}'
    if target.steps != entry.config.steps:
        text += f' after {target.steps:,} steps'
    return text


def _reached(entry: Entry) -> str:
    score = entry.wanted_score
    measured = [x for x in OBJECTIVES if entry.finished(x)]
    if score is None or not measured:
        return NOTHING
    good = [OBJECTIVES[x] for x in measured if entry.middle(x) >= score]
    if not good:
        return '**no**'
    more = ', after more steps' * (entry.config.steps > entry.targets[0].steps)
    return ('both' if len(good) == len(OBJECTIVES) else good[0]) + more


def _sources() -> str:
    lines = [f'- [{name}]({url}): {how}.' for name, (url, how) in targets.SOURCES.items()]
    return '\n'.join(['Where they are published, and how they were computed:', '', *lines])


def _repeat(rows: Sequence[Row]) -> str:
    commands = collections.defaultdict(set)
    for name, flags in {(row.config, row.flags) for row in rows}:
        seeds = {row.seed for row in rows if (row.config, row.flags) == (name, flags)}
        commands[max(seeds) + 1, flags].add(name)
    lines = ['## To repeat it', '', '```']
    for (seeds, flags), names in sorted(commands.items()) or [((5, ''), ())]:
        line = 'python3 -m benchmarks.scores --logdir=~/scores --minutes=600'
        line += f' --configs={",".join(sorted(names))}' * bool(names)
        lines.append(f'{line} --seeds={seeds}' + f' --set {flags}' * bool(flags))
    single = 'python3 -m agents.scripts.train --config=cartpole --objective=clip --seed=0'
    lines += [single, '```', '', REPEAT]
    for title, name in (
        ('Machines', 'machine'),
        ('Versions', 'versions'),
        ('Versions of this package, and commits', 'commit'),
        ('Dates', 'date'),
    ):
        found = sorted({getattr(row, name) for row in rows} - {''})
        if found:
            lines += ['', f'{title}: {"; ".join(found)}.']
    return '\n'.join(lines)


def _median(values: Sequence[float], digits: int = 1) -> str:
    known = [value for value in values if value == value]
    return f'{np.median(known):,.{digits}f}' if known else NOTHING


def _table(columns: Sequence[str], align: str, lines: Sequence[Sequence[Any]]) -> str:
    rule = ['--:' if side == 'r' else '---' for side in align]
    cells = [columns, rule, *lines]
    return '\n'.join(f'| {" | ".join(row)} |' for row in cells)
