"""The exceptions of kinrank.

::

    KinrankError
    ├── DataError (also ValueError)          invalid queries or candidates
    │   ├── FileFormatError                  a file that cannot be read, with its line
    │   ├── LeakError                        test queries that were seen in training
    │   └── OtherHistoryError                judgments that were learned are not those of the store
    ├── ParameterError (also ValueError)     an invalid setting
    ├── MissingExtraError (also ImportError) an optional dependency is not installed
    ├── DownloadError (also OSError)         a data set that cannot be downloaded, or is not the published one
    ├── EncoderError                         a text encoder that is missing or not that of the model
    ├── ServiceError                         a request that the service cannot serve
    │   ├── UnknownModelError                no model of this name
    │   ├── ForbiddenFieldError              a field that the caller must not read
    │   ├── ModelNotLoadedError              the model is not loaded yet
    │   ├── UnsupportedByModelError          the model does not support the request
    │   ├── RejectedModelError               a new model was rejected; the old one stays in use
    │   ├── NotStoredError                   the judgment store did not confirm a change
    │   ├── StoreUnavailableError            the judgment store cannot be read
    │   └── StaleReplicaError                judgments that a request asks for are not learned yet
    ├── EngineError                          a failed request to a search engine
    │   ├── EngineUnreachableError           no node can be reached
    │   ├── EngineTimeoutError               no answer in time
    │   ├── EngineBusyError                  overloaded, or a node was lost: retry later
    │   ├── EngineFailedError                an error inside the engine (HTTP 500): see its log
    │   ├── EngineRefusedError               an invalid request: field, vector, script, key
    │   └── MissingIndexError                the index does not exist
    ├── JobError                             a long job that was not finished; finished parts are kept
    └── StoreError                           a folder that cannot be used
        ├── DamagedFolderError               it has changed since kinrank wrote it
        ├── IncompleteVersionError           a published model of which files are missing
        ├── ForeignFolderError               it was not written by kinrank, or holds something else
        └── NewerFormatError                 it was written by a newer kinrank

Messages state what is wrong, what was given and what to do. This module does not know HTTP: the service maps the
classes to status codes.
"""

from __future__ import annotations

import os


class KinrankError(Exception):
    """Base class of the exceptions of kinrank."""


class DataError(KinrankError, ValueError):
    """Queries or candidates are invalid."""


class FileFormatError(DataError):
    """A file cannot be read.

    Parameters
    ----------
    path
        The file.
    line
        The line, from 1; 0 if the error concerns the whole file.
    problem
        What was expected, what was found and what to do.
    """

    def __init__(self, path: str | os.PathLike[str], line: int, problem: str) -> None:
        location = f"{os.fspath(path)}, line {line}" if line else os.fspath(path)
        super().__init__(f"{location}: {problem}")
        self.path = os.fspath(path)
        self.line = line
        self._problem = problem

    def __reduce__(self) -> tuple[type[FileFormatError], tuple[str, int, str]]:
        # Unpickled in another process with these arguments.
        return type(self), (self.path, self.line, self._problem)


class LeakError(DataError):
    """Test queries were seen in training, so their measures do not predict those of new queries."""


class OtherHistoryError(DataError):
    """The judgment store has another history than what was learned from it, as after restoring an older copy."""


class ParameterError(KinrankError, ValueError):
    """A setting is invalid."""


class MissingExtraError(KinrankError, ImportError):
    """An optional dependency is not installed; the message has the pip command."""


class DownloadError(KinrankError, OSError):
    """A data set cannot be downloaded, or is not the published one."""


class EncoderError(KinrankError):
    """A text encoder cannot be loaded, or is not the one the model was fitted with."""


class EngineError(KinrankError):
    """A request to a search engine failed."""


class EngineUnreachableError(EngineError):
    """No node of the engine can be reached; a retry may succeed once one is back."""


class EngineTimeoutError(EngineError):
    """The engine did not answer in time; a retry with a longer timeout may succeed."""


class EngineBusyError(EngineError):
    """The engine is overloaded (HTTP 429, 502, 503, 504) or has lost a node; a later retry may succeed."""


class EngineFailedError(EngineError):
    """The engine failed while it processed the request (HTTP 500); the engine's log has the reason."""


class EngineRefusedError(EngineError):
    """The engine refused the request as invalid; a retry would fail again."""


class MissingIndexError(EngineError):
    """The index does not exist; a retry would fail again."""


class ServiceError(KinrankError):
    """The service cannot serve a request."""


class UnknownModelError(ServiceError):
    """The service has no model of this name."""


class ForbiddenFieldError(ServiceError):
    """The caller must not read a field of the documents."""


class ModelNotLoadedError(ServiceError):
    """The model is not loaded yet, or was refused; a retry may succeed."""


class UnsupportedByModelError(ServiceError):
    """The model does not support the request, such as weights or new judgments."""


class RejectedModelError(ServiceError):
    """A new model was rejected; the old one stays in use.

    Parameters
    ----------
    message
        Why.
    temporary
        Whether a later try may succeed, as after a timeout on a busy machine.
    """

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary


class NotStoredError(ServiceError):
    """The judgment store did not confirm a change; a retry may succeed, and is safe."""


class StoreUnavailableError(ServiceError):
    """The judgment store cannot be read now; a retry may succeed."""


class StaleReplicaError(ServiceError):
    """The process has not learned the judgments that a request asks for; a retry may succeed."""


class JobError(KinrankError):
    """A long job was not finished; finished parts are kept, and the message explains how to continue."""


class StoreError(KinrankError):
    """A folder cannot be used."""


class DamagedFolderError(StoreError):
    """The folder has changed since kinrank wrote it."""


class IncompleteVersionError(StoreError):
    """Files of a published model are missing or too short; they may still be on their way."""


class ForeignFolderError(StoreError):
    """The folder was not written by kinrank, or holds something else."""


class NewerFormatError(StoreError):
    """The folder was written by a newer kinrank."""
