import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_hex

from agents.scripts import curves, scores
from tests.scripts.test_scores import make_run

EVALUATIONS = [(100, 1.0, 5.0), (200, 2.0, 8.0), (300, 3.0, 9.0)]


def draw(tmp_path, *evaluations, final=True, **fields):
    """Draw a group of runs, one for each list of evaluations."""
    histories = [
        scores.read(make_run(tmp_path, f'r{seed}', scored, final, seed=seed, **fields))
        for seed, scored in enumerate(evaluations)
    ]
    return curves.draw_groups(scores.group(histories), 'a title')


def texts(svg):
    """Comments of an SVG image: matplotlib draws text as shapes, and notes what it says."""
    builder = ET.TreeBuilder(insert_comments=True)
    root = ET.fromstring(svg, ET.XMLParser(target=builder))
    return [node.text.strip() for node in root.iter(ET.Comment)]


def scaled(factor):
    return [(step, seconds, score * factor) for step, seconds, score in EVALUATIONS]


def test_the_line_of_a_group_is_its_interquartile_mean_in_its_interval(tmp_path):
    figure = draw(tmp_path, scaled(1), scaled(2), scaled(3))
    (line,) = figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [100, 200, 300]
    assert line.get_ydata().tolist() == [10, 16, 18]
    (band,) = figure.axes[0].collections
    # Of three runs all three are the lowest in 1/27 = 3.7 % of the draws, more than 2.5 %.
    heights = band.get_paths()[0].vertices
    assert [heights[heights[:, 0] == x, 1].min() for x in (100, 200, 300)] == [5, 8, 9]
    assert [heights[heights[:, 0] == x, 1].max() for x in (100, 200, 300)] == [15, 24, 27]


@pytest.mark.parametrize(
    ('factor', 'label', 'expected'),
    [
        (1, 'wall time / seconds', [1, 2, 3]),
        (60, 'wall time / minutes', [1, 2, 3]),
        (3600, 'wall time / hours', [1, 2, 3]),
    ],
)
def test_wall_time_has_a_unit_that_can_be_read(tmp_path, factor, label, expected):
    axis = draw(tmp_path, [(n, t * factor, x) for n, t, x in EVALUATIONS]).axes[1]
    assert axis.get_xlabel() == label
    assert axis.get_lines()[0].get_xdata().tolist() == expected


def test_steps_are_written_in_thousands_and_all_axes_have_names(tmp_path):
    figure = draw(tmp_path, [(50_000, 1.0, 5.0)])
    steps, _ = figure.axes
    assert steps.xaxis.get_major_formatter()(50_000) == '50 k'
    assert (steps.get_xlabel(), steps.get_ylabel()) == ('steps', 'score of an episode')
    assert figure.get_suptitle() == 'a title'


def test_one_run_is_a_plain_line(tmp_path):
    axis = draw(tmp_path, EVALUATIONS).axes[0]
    (line,) = axis.get_lines()
    assert line.get_ydata().tolist() == [5, 8, 9]
    assert not axis.collections


def test_two_runs_are_thin_lines_and_their_mean_without_an_interval(tmp_path):
    axis = draw(tmp_path, scaled(1), scaled(3)).axes[0]
    mean, *single = axis.get_lines()
    assert mean.get_ydata().tolist() == [10, 16, 18]
    assert [line.get_ydata().tolist() for line in single] == [[5, 8, 9], [15, 24, 27]]
    assert all(line.get_linewidth() < mean.get_linewidth() for line in single)
    assert not axis.collections


def test_what_lies_beyond_the_mean_is_drawn_as_single_runs(tmp_path):
    axis = draw(tmp_path, EVALUATIONS, EVALUATIONS, EVALUATIONS[:1], final=False).axes[0]
    mean, *single = axis.get_lines()
    assert mean.get_xdata().tolist() == [100]
    assert [line.get_xdata()[-1] for line in single] == [300, 300, 100]


def test_runs_without_a_point_in_common_are_drawn_alone(tmp_path):
    late = [(step, seconds + 50, score) for step, seconds, score in EVALUATIONS]
    axis = draw(tmp_path, EVALUATIONS, EVALUATIONS, late, final=False).axes[1]
    mean, *single = axis.get_lines()
    assert not len(mean.get_xdata())
    assert [line.get_xdata()[0] for line in single] == [1, 1, 51]


def test_the_legend_tells_groups_apart_and_counts_their_runs(tmp_path):
    histories = [
        scores.read(make_run(tmp_path, f'{i}', EVALUATIONS, final=i < 2, discount=discount))
        for i, discount in enumerate((0.9, 0.9, 0.8))
    ]
    (legend,) = curves.draw_groups(scores.group(histories), 'a title').legends
    assert [text.get_text() for text in legend.get_texts()] == [
        'debug discount=0.8, 1 run, 1 unfinished',
        'debug discount=0.9, 2 runs',
    ]
    colors = [to_hex(line.get_color()).upper() for line in legend.get_lines()]
    assert colors == ['#0072B2', '#D55E00']


def test_the_legend_says_what_a_band_is_where_there_is_one(tmp_path):
    (without,) = draw(tmp_path / 'two', *[EVALUATIONS] * 2).legends
    (with_band,) = draw(tmp_path / 'three', *[EVALUATIONS] * 3).legends
    assert without.get_title().get_text() == ''
    assert with_band.get_title().get_text() == 'interquartile mean and its 95 % interval'


def test_the_legend_of_many_groups_lies_on_no_curve(tmp_path):
    histories = [
        scores.read(make_run(tmp_path, f'{i}', EVALUATIONS, discount=0.9 + i / 100))
        for i in range(8)
    ]
    figure = curves.draw_groups(scores.group(histories), 'a title')
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert all(box.y1 <= axis.get_tightbbox().y0 for axis in figure.axes)
    # Nor does it leave them little room.
    assert all(axis.get_window_extent().height > 0.5 * figure.bbox.height for axis in figure.axes)


def test_a_dollar_sign_of_the_user_begins_no_formula(tmp_path):
    histories = [
        scores.read(make_run(tmp_path, f'{i}', EVALUATIONS, env_kwargs={'path': path}))
        for i, path in enumerate((r'$\frac$', 'b'))
    ]
    figure = curves.draw_groups(scores.group(histories), r'$\frac$')
    file = io.StringIO()
    figure.savefig(file, format='svg')
    assert r'$\frac$' in texts(file.getvalue())


def test_the_curve_of_a_run_names_its_parts_and_marks_the_best(tmp_path):
    peak = [(100, 1.0, 5.0), (200, 2.0, 12.5), (300, 3.0, 9.0)]
    text = curves.draw_run(make_run(tmp_path, 'a', peak, train=[(50, 1.0), (150, 4.0)]).folder)
    assert text.startswith('<svg')
    assert {
        'training',
        'evaluation ± standard deviation of its episodes',
        'best, 12.50',
        'steps',
        'score of an episode',
    } <= set(texts(text))


def test_the_curve_of_a_run_is_where_its_scores_are(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(curves, '_to_svg', drawn.append)
    peak = [(100, 1.0, 5.0), (200, 2.0, 12.5), (300, 3.0, 9.0)]
    curves.draw_run(make_run(tmp_path, 'a', peak, train=[(50, 1.0), (150, 4.0)]).folder)
    (axis,) = drawn[0].axes
    train, evaluation, best = axis.get_lines()
    assert train.get_xydata().tolist() == [[50, 1], [150, 4]]
    assert evaluation.get_xydata().tolist() == [[100, 5], [200, 12.5], [300, 9]]
    assert best.get_xydata().tolist() == [[200, 12.5]]
    # The episodes of every evaluation deviate by 2.
    heights = axis.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [3, 14.5])


def test_a_run_without_evaluation_has_a_curve_too(tmp_path):
    trained = curves.draw_run(make_run(tmp_path, 'a', [], train=[(50, 1.0)]).folder)
    assert 'training' in texts(trained)
    nothing = curves.draw_run(make_run(tmp_path, 'b', []).folder)
    assert 'steps' in texts(nothing) and 'training' not in texts(nothing)
