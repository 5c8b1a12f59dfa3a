"""The exception tree: everything kinrank raises on purpose.

::

    KinrankError
    ├── DataError (also ValueError)          judged queries that cannot be what they claim to be
    │   ├── FileFormatError                  the same, with the file and the line
    │   └── LeakError                        test queries that were seen in training
    ├── ParameterError (also ValueError)     a setting that makes no sense
    ├── MissingExtraError (also ImportError) an optional dependency is not installed
    ├── EncoderError                         a text encoder that is missing or not the one of the model
    ├── ServiceError                         a service that cannot do what it was asked
    │   ├── UnknownModelError                it has no model of this name
    │   ├── UnsupportedByModelError                 its model is of a kind that cannot do this
    │   ├── RejectedModelError                an offered model is not taken; the one in use stays
    │   └── NotStoredError                     judgments could not be written to disk
    ├── EngineError                          a search engine that does not do what it was asked
    │   ├── EngineUnreachableError           no node of it can be reached
    │   ├── EngineTimeoutError               it did not answer in time
    │   ├── EngineBusyError                  it has too much to do, or lost a node: ask again later
    │   └── EngineRefusedError               it refuses: a wrong field, vector, script, key
    │       └── MissingIndexError            the index is not there
    ├── JobError                             a long job that could not be finished; what is done is kept
    └── StoreError                           a folder on disk that cannot be trusted
        ├── DamagedFolderError               it was written by kinrank, and has changed since
        ├── ForeignFolderError               it was not written by kinrank, or is of another kind
        └── NewerFormatError                 it was written by a newer kinrank

Every message says what was expected, what was found, and what to do. Nothing in here knows HTTP: the
service maps these classes to status codes.
"""

from __future__ import annotations

import os


class KinrankError(Exception):
    """Base of all errors that kinrank raises on purpose."""


class DataError(KinrankError, ValueError):
    """Judged queries or candidates that cannot be what they claim to be."""


class FileFormatError(DataError):
    """A line of a file that cannot be read.

    Parameters
    ----------
    path
        The file.
    line
        Its line, counted from 1; 0 where no single line is to blame.
    problem
        What was expected, what was found, and what to do.
    """

    def __init__(self, path: str | os.PathLike[str], line: int, problem: str) -> None:
        where = f"{os.fspath(path)}, line {line}" if line else os.fspath(path)
        super().__init__(f"{where}: {problem}")
        self.path = os.fspath(path)
        self.line = line
        self._problem = problem

    def __reduce__(self) -> tuple[type[FileFormatError], tuple[str, int, str]]:
        # An exception comes back from another process by the arguments it was made of.
        return type(self), (self.path, self.line, self._problem)


class LeakError(DataError):
    """Test queries that were seen in training: what is measured on them says nothing about new ones."""


class ParameterError(KinrankError, ValueError):
    """A setting that makes no sense."""


class MissingExtraError(KinrankError, ImportError):
    """An optional dependency is not installed; the message has the pip line."""


class EncoderError(KinrankError):
    """A text encoder that cannot be loaded, or is not the one that the model was trained with."""


class EngineError(KinrankError):
    """A search engine that does not do what it was asked."""


class EngineUnreachableError(EngineError):
    """No node of the engine can be reached; asking again may help, once one is back."""


class EngineTimeoutError(EngineError):
    """The engine did not answer in time; asking again, with more time, may help."""


class EngineBusyError(EngineError):
    """The engine has too much to do (HTTP 429, 502, 503, 504) or has lost a node: asking again after a pause helps."""


class EngineRefusedError(EngineError):
    """The engine refuses the request, which asking again will not change."""


class MissingIndexError(EngineRefusedError):
    """The index that was asked is not there."""


class ServiceError(KinrankError):
    """A service that cannot do what it was asked."""


class UnknownModelError(ServiceError):
    """The service has no model of this name."""


class UnsupportedByModelError(ServiceError):
    """The model is of a kind that cannot do what was asked: no weights, no judgments without fitting again."""


class RejectedModelError(ServiceError):
    """A model that was offered is not taken into use; the one in use stays."""


class NotStoredError(ServiceError):
    """Judgments could not be written to disk, so they are not kept; asking again may help."""


class JobError(KinrankError):
    """A long job that could not be finished; what is done is kept, and the message says how to go on."""


class StoreError(KinrankError):
    """A folder on disk that cannot be trusted."""


class DamagedFolderError(StoreError):
    """The folder was written by kinrank and has changed since."""


class ForeignFolderError(StoreError):
    """The folder was not written by kinrank, or holds another kind of thing."""


class NewerFormatError(StoreError):
    """The folder was written by a newer kinrank."""
