"""Training from disk, in processes or on Ray, for data larger than memory.

Ray is imported only when a `RayCluster` is used.
"""

from kinrank.parallel import Processes, use_executor
from kinrank.scale._sum_tree import TrainingProgress
from kinrank.scale.executors import RayCluster
from kinrank.scale.training import train

__all__ = ["Processes", "RayCluster", "TrainingProgress", "train", "use_executor"]
