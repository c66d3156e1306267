"""Environments in other processes, and single-environment wrappers that Gymnasium lacks."""

from agents.tools.wrappers.action_repeat import ActionRepeat
from agents.tools.wrappers.external_process import (
    ExternalProcess,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from agents.tools.wrappers.only_allowed import OnlyAllowed

__all__ = [
    'ActionRepeat',
    'ExternalProcess',
    'OnlyAllowed',
    'WorkerDied',
    'WorkerError',
    'WorkerTimeout',
]
