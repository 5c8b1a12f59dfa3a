"""Search engines behind one interface. `connect` opens one by its address; `ENGINES` lists the supported ones."""

from kinrank.engines.base import ENGINES as ENGINES
from kinrank.engines.base import Engine as Engine
from kinrank.engines.base import FoundDocuments as FoundDocuments
from kinrank.engines.base import Health as Health
from kinrank.engines.base import Hits as Hits
from kinrank.engines.base import LoggedFeatures as LoggedFeatures
from kinrank.engines.base import connect as connect
from kinrank.engines.features import FeatureSet as FeatureSet
