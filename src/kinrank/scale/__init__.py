"""Training on more judged queries than one process carries: from disk, over processes, or on Ray.

Ray is imported where it is asked for and nowhere else.
"""

from kinrank.parallel import Processes, use_executor
from kinrank.scale.executors import RayCluster
from kinrank.scale.training import TrainingProgress, train

__all__ = ["Processes", "RayCluster", "TrainingProgress", "train", "use_executor"]
