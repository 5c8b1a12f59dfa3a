"""Training on more judged queries than one process carries: from disk, over processes, or on Ray.

Ray is imported where it is asked for and nowhere else.
"""

from kinrank.parallel import Processes, using
from kinrank.scale.executors import RayCluster
from kinrank.scale.training import Batch, train

__all__ = ["Batch", "Processes", "RayCluster", "train", "using"]
