import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def snippets(language, file='README.md'):
    return re.findall(rf'```{language}\n(.*?)```', (ROOT / file).read_text(), re.DOTALL)


def test_the_snippet_in_python_runs_as_written():
    (code,) = snippets('python')
    run = subprocess.run(
        [sys.executable, '-c', code], check=True, capture_output=True, text=True, timeout=120
    )
    scores = re.findall(r'score (-?[\d.]+), \d+ steps/s', run.stdout)
    assert len(scores) == 10
    assert all(-2000 < float(score) < 0 for score in scores)


def test_the_environment_of_the_snippet_about_engines_is_learned():
    (code,) = snippets('python', 'docs/engines.md')
    run = subprocess.run(
        [sys.executable, '-c', code], check=True, capture_output=True, text=True, timeout=120
    )
    scores = [float(x) for x in re.findall(r'score (-?[\d.]+), [\d,]+ steps/s', run.stdout)]
    # Random pushes end about where they began, 50 steps at a distance of 1 on average.
    assert len(scores) == 5
    assert max(scores) > -15


def test_the_snippet_in_python_runs_in_a_notebook():
    nbclient = __import__('nbclient')
    nbformat = __import__('nbformat')
    (code,) = snippets('python')
    cells = [nbformat.v4.new_code_cell(part) for part in code.split('\n\n')]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name='python3').execute()
    output = ''.join(x['text'] for x in cells[-1]['outputs'] if x['output_type'] == 'stream')
    assert len(re.findall(r'score -?[\d.]+', output)) == 10


def test_the_snippets_of_policies_run_as_written(tmp_path):
    from agents.scripts import export, train

    logdir = tmp_path / 'logdir'
    assert train.main(['--config=debug', f'--logdir={logdir}', '--timestamp=a']) == 0
    for kind in export.FORMATS:
        flags = [f'--logdir={logdir}/a-debug', f'--outdir={tmp_path}', f'--format={kind}']
        assert export.main(flags) == 0
    load, *others = snippets('py')
    load = load.replace('~/logdir/<time>-<config>', str(logdir / 'a-debug'))
    actions = []
    for code in (load, *others):
        begin = "import numpy\nobs = numpy.ones([3, 4], 'float32')\n"
        end = '\nprint(action.tolist())'
        command = [sys.executable, '-c', begin + code + end]
        run = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        actions.append(run.stdout)
    assert len(actions) == 4
    assert len(set(actions)) == 1 and actions[0].startswith('[')


def test_every_command_to_look_at_runs_is_understood():
    from agents.scripts import export, flags, plot, visualize

    commands = [x for x in snippets('')[2].splitlines() if x.startswith('python3 -m')]
    modules = {'visualize': visualize, 'plot': plot, 'export': export}
    for command in commands:
        module, *words = command.removeprefix('python3 -m agents.scripts.').split()
        modules[module].Arguments(**flags.parse(words, modules[module].Arguments))
    assert len(commands) == 3


def test_the_first_commands_are_the_documented_ones():
    first, second = snippets('')[0].strip().splitlines()
    assert first.startswith('pip install -e . && python3 -m agents.scripts.train')
    assert second == "pip install -e '.[dev]' && pytest -n auto"
    assert second.rpartition('&& ')[2] in (ROOT / '.ci' / 'run').read_text()


def test_every_training_command_is_understood():
    import shlex

    from agents.scripts import configs, flags, train
    from agents.scripts.config import Config

    commands = ''.join(snippets('')[1:2]).replace('\\\n', ' ').strip().splitlines()
    assert len(commands) == 5
    for command in commands:
        arguments = shlex.split(command)
        assert arguments[:3] == ['python3', '-m', 'agents.scripts.train']
        given = flags.parse(arguments[3:], train.Arguments, Config)
        assert given['config'] in configs.TASKS
        fields = {name for name in given if name not in ('config', 'logdir')}
        Config(**{name: given[name] for name in fields})


def test_the_network_of_the_snippet_trains(tmp_path):
    (code,) = snippets('python', 'docs/networks.md')
    (tmp_path / 'my_networks.py').write_text(code)
    flags = ['--config=debug', '--network=my_networks:make', '--compile=off']
    command = [sys.executable, '-m', 'agents.scripts.train', *flags]
    run = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert 'Done.' in run.stdout


def test_the_table_has_every_config():
    from agents.scripts import configs

    readme = pathlib.Path(__file__).parents[1] / 'README.md'
    table = readme.read_text().split('| `--config=` |')[1].split('\n\n')[0]
    assert set(re.findall(r'`([a-z_]+)`[,| ]', table)) == set(configs.TASKS)
