"""Train agents on batches of environments, fused into one TensorFlow operation."""

from typing import TYPE_CHECKING

import lazy_loader

# A worker process imports this package as well, and must not import TensorFlow: hence lazily.
if TYPE_CHECKING:
    from agents import algorithms, envs, parts, scripts, tools
    from agents.scripts.policies import load

__version__ = '0.1.0'
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=['algorithms', 'envs', 'parts', 'scripts', 'tools'],
    submod_attrs={'scripts.policies': ['load']},
)
