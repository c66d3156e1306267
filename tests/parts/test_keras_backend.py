import os
import subprocess
import sys

import keras
import pytest

from agents.parts.keras_backend import import_keras


def last_line_of_error(code, **variables):
    environment = {**os.environ, **variables}
    result = subprocess.run(
        [sys.executable, '-c', code], env=environment, capture_output=True, text=True, timeout=120
    )
    return result.returncode, result.stderr.strip().splitlines()[-1]


def test_keras_is_returned_when_it_runs_on_tensorflow(monkeypatch):
    assert import_keras() is keras
    monkeypatch.setenv('KERAS_BACKEND', '')  # As good as unset.
    assert import_keras() is keras


@pytest.mark.parametrize('backend', ['jax', 'numpy', 'tensorflows'])
def test_another_backend_is_refused_with_the_remedy(backend):
    code = 'from agents.parts.keras_backend import import_keras; import_keras()'
    status, error = last_line_of_error(code, KERAS_BACKEND=backend)
    assert status == 1
    assert error.startswith('ImportError')
    assert f"must be tensorflow, got backend='{backend}'" in error
    assert 'Set KERAS_BACKEND=tensorflow' in error


def test_networks_cannot_be_imported_on_another_backend():
    status, error = last_line_of_error('import agents.parts.networks', KERAS_BACKEND='jax')
    assert status == 1
    assert error.startswith('ImportError') and "got backend='jax'" in error


def test_a_keras_that_was_imported_on_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, 'backend', lambda: 'jax')
    with pytest.raises(ImportError, match=r"got backend='jax'. Set KERAS_BACKEND=tensorflow"):
        import_keras()


def test_a_configuration_file_that_names_another_backend_is_answered_by_the_remedy(tmp_path):
    (tmp_path / 'keras.json').write_text('{"backend": "jax"}')
    code = """
import os
os.environ.pop('KERAS_BACKEND', None)
from agents.parts.keras_backend import import_keras
import_keras()
"""
    status, error = last_line_of_error(code, KERAS_HOME=str(tmp_path))
    assert status == 1
    assert error.startswith('ImportError') and 'Set KERAS_BACKEND=tensorflow' in error
