"""Environments in batches, in other processes, and in the graph; and the loop that runs them."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from agents.tools import wrappers
    from agents.tools.batch_env import BatchEnv
    from agents.tools.checking.report import check_env
    from agents.tools.evaluation import evaluate
    from agents.tools.in_graph_batch_env import InGraphBatchEnv
    from agents.tools.make_batch import make_batch_env
    from agents.tools.simulation import MOST_ITERATIONS, simulate
    from agents.tools.transition import StepResult, Transition

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=['wrappers'],
    submod_attrs={
        'batch_env': ['BatchEnv'],
        'checking.report': ['check_env'],
        'evaluation': ['evaluate'],
        'in_graph_batch_env': ['InGraphBatchEnv'],
        'make_batch': ['make_batch_env'],
        'simulation': ['MOST_ITERATIONS', 'simulate'],
        'transition': ['StepResult', 'Transition'],
    },
)
