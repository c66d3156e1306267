"""The page that shows what a run's policy does: one file, with everything in it."""

import base64
import html
import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

_PAGE = string.Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$task · $run</title>
<style>
:root { --back: #f6f7f9; --card: #fff; --text: #1c2430; --dim: #5d6878; --line: #e1e5eb; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12151a; --card: #1b2027; --text: #e6e9ee; --dim: #98a3b3; --line: #2c333d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem; max-width: 76rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.9rem; line-height: 1.2; }
h2 { margin: 2.5rem 0 .9rem; font-size: 1.2rem; }
p { margin: .35rem 0 0; color: var(--dim); overflow-wrap: anywhere; }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); }
.tiles { grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); margin-top: 1.5rem; }
.card { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  overflow: hidden; }
.tiles .card { padding: .8rem 1rem; }
.tiles b { display: block; font-size: 1.4rem; font-weight: 600; }
.tiles span, th { color: var(--dim); font-size: .85rem; font-weight: 500; }
video { display: block; width: 100%; background: #000; }
figcaption { padding: .65rem 1rem; }
figcaption span { color: var(--dim); }
.scroll { overflow-x: auto; }
.curve { padding: 1rem; background: #fff; }
.curve svg { display: block; width: 100%; height: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem 1rem; text-align: left; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
.episodes td:not(:last-child), .episodes th:not(:last-child) { text-align: right; }
.config td:first-child { color: var(--dim); white-space: nowrap; width: 1%; }
.config td { font-family: ui-monospace, monospace; font-size: .85rem; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>$task</h1>
<p>$about</p>
<p>$run</p>
<div class="grid tiles">$tiles</div>
<h2>Episodes</h2>
<div class="grid">$videos</div>
<h2>Statistics</h2>
<div class="card scroll"><table class="episodes">$episodes</table></div>
<h2>Learning curve</h2>
<div class="card curve">$curve</div>
<h2>Config</h2>
<div class="card scroll"><table class="config">$config</table></div>
</body>
</html>
""")


def write(
    stats: Mapping[str, Any],
    videos: Sequence[pathlib.Path],
    curve: str,
    config: Mapping[str, str],
) -> str:
    """Write a page that needs no other file, no network and no JavaScript.

    Args:
        stats: Content of stats.json.
        videos: An MP4 file for each of its episodes.
        curve: Learning curve, an SVG element.
        config: Texts by name.

    Returns:
        HTML; all texts are escaped, the SVG is trusted.
    """
    rows = [('Episode', 'Seed', 'Score', 'Length', 'End')]
    rows += [
        (str(x['episode']), str(x['seed']), number(x['score']), f'{x["length"]:,}', x['end'])
        for x in stats['episodes']
    ]
    return _PAGE.substitute(
        task=html.escape(stats['task']),
        run=html.escape(stats['run']),
        about=html.escape(_about(stats)),
        tiles=''.join(_tiles(stats['summary'])),
        videos=''.join(map(_figure, stats['episodes'], videos)),
        episodes=''.join(_row(row, 'td' if index else 'th') for index, row in enumerate(rows)),
        curve=curve[max(curve.find('<svg'), 0) :],  # Without the head of an SVG file.
        config=''.join(_row(row) for row in config.items()),
    )


def number(value: float) -> str:
    """Write a score for people, to at most two decimals."""
    return f'{value:,.2f}'


def _about(stats: Mapping[str, Any]) -> str:
    parts = [f'{stats["step"]:,} steps trained', f'checkpoint {stats["checkpoint"]}']
    if stats['training_score'] is not None:
        parts.append(f'scored {number(stats["training_score"])} in training')
    parts.append('sampled actions' if stats['stochastic'] else 'most likely actions')
    return ' · '.join([*parts, stats['seeds']])


def _tiles(summary: Mapping[str, float]) -> list[str]:
    tiles = {
        'Mean score': number(summary['score']),
        'Standard deviation': number(summary['score_std']),
        'Lowest score': number(summary['score_min']),
        'Highest score': number(summary['score_max']),
        'Mean length': f'{summary["length"]:,.1f}',
        'Episodes': f'{summary["episodes"]:,}',
    }
    return [f'<div class="card"><span>{x}</span><b>{y}</b></div>' for x, y in tiles.items()]


def _figure(episode: Mapping[str, Any], video: pathlib.Path) -> str:
    data = base64.b64encode(video.read_bytes()).decode('ascii')
    begin = ' autoplay' if episode['episode'] == 0 else ''
    return (
        f'<figure class="card"><video controls loop muted playsinline{begin} '
        f'src="data:video/mp4;base64,{data}"></video><figcaption>Episode {episode["episode"]} '
        f'<span>· score {number(episode["score"])} · {episode["length"]:,} steps, '
        f'{html.escape(episode["end"])}</span></figcaption></figure>\n'
    )


def _row(cells: Sequence[str], tag: str = 'td') -> str:
    return '<tr>' + ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells) + '</tr>\n'
