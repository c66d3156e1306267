import dataclasses

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from agents.scripts import board, configs

CONFIG = dataclasses.replace(configs.debug(), wrappers=('A', {'B': {'x': 1}}), stop_at_score=None)


def read(folder):
    metadata = EventAccumulator(str(folder)).Reload().summary_metadata
    contents = [x.plugin_data.content for x in metadata.values()]
    return [plugin_data_pb2.HParamsPluginData.FromString(content) for content in contents]


def test_the_table_has_a_row_for_each_field():
    lines = board.config_table(CONFIG).splitlines()
    assert len(lines) == 2 + len(dataclasses.fields(CONFIG))
    assert '| wrappers | [A, B: {x: 1}] | Wrappers, innermost first' in board.config_table(CONFIG)


def test_hyper_parameters_are_plain_values_and_metrics_are_those_of_the_phases(tmp_path):
    board.write_hyperparameters(tmp_path, CONFIG)
    start = next(x for x in read(tmp_path) if x.HasField('session_start_info')).session_start_info
    assert start.group_name
    assert start.hparams['num_envs'].number_value == 4
    assert start.hparams['normalize_obs'].bool_value is CONFIG.normalize_obs
    assert start.hparams['env'].string_value == 'CartPole-v1'
    assert start.hparams['policy_layers'].string_value == '16'
    assert start.hparams['stop_at_score'].string_value == 'none'
    experiment = next(x for x in read(tmp_path) if x.HasField('experiment')).experiment
    names = {(x.name.group, x.name.tag) for x in experiment.metric_infos}
    assert names == {('eval', 'score'), ('train', 'score'), ('train', 'steps_per_second')}


def test_a_resumed_run_does_not_write_them_again(tmp_path):
    board.write_hyperparameters(tmp_path, CONFIG)
    files = sorted(tmp_path.iterdir())
    board.write_hyperparameters(tmp_path, CONFIG)
    assert sorted(tmp_path.iterdir()) == files
