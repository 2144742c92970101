"""Every exception the package raises, whose fault it is, and whether to retry.

* BiremeError
  * ConfigError            -- the caller passed something wrong; never retry, change the call
    + UnknownKeyError      -- a key that was never initialised
    + FileError            -- a file cannot be written there: the folder, the rights, a full disk
    + UnsupportedError     -- a right request that this store, compressor or build cannot serve
  * StateError             -- right call, wrong moment (a closed store, a key initialised twice)
  * DataError              -- a file is truncated, corrupt or of another format; get the file again
  * ProtocolError          -- a rule of the wire protocol was broken; never retry on this link
    + LocalProtocolError   -- this process tried an illegal step: a defect of ours
    + RemoteProtocolError  -- the peer sent something illegal, or bytes that are no frame
  * TransportError         -- the network's fault; the link is gone, a new one may be tried
    + PeerLost             -- the peer closed the link or cannot be reached
    + AuthError            -- the peer does not hold the job's secret; never retry
  * JobError               -- the job cannot go on here; the message names the node and the reason
    + WaitTimeout          -- a wait reached its limit; names who is missing; may be retried
    + NodeLost             -- a node of the job died and the job's policy is to stop
    + JobAborted           -- the scheduler ended the job; names the culprit
    + CollectiveError      -- a collective operation failed, on every rank alike
      - MismatchError      -- the ranks do not agree on an operation; the next one may be right
      - RankLost           -- a rank of the job is gone; names it
      - EngineClosed       -- the collectives were shut down, here or on another rank

Messages name what was wrong, the value, and what to do about it.
"""

__all__ = (
    "AuthError",
    "BiremeError",
    "CollectiveError",
    "ConfigError",
    "DataError",
    "EngineClosed",
    "FileError",
    "JobAborted",
    "JobError",
    "LocalProtocolError",
    "MismatchError",
    "NodeLost",
    "PeerLost",
    "ProtocolError",
    "RankLost",
    "RemoteProtocolError",
    "StateError",
    "TransportError",
    "UnknownKeyError",
    "UnsupportedError",
    "WaitTimeout",
)


class BiremeError(Exception):
    """Base of every error that Bireme raises on purpose."""


class ConfigError(BiremeError, ValueError):
    """The caller passed something wrong. Never retried: the same call fails again."""


class UnknownKeyError(ConfigError):
    """The caller named a key that the store does not hold."""


class UnsupportedError(ConfigError, NotImplementedError):
    """The request is meaningful, but this implementation cannot serve it."""


class FileError(ConfigError, OSError):
    """A file cannot be written; what was there before is as it was."""


class StateError(BiremeError, RuntimeError):
    """The call is right but comes at the wrong moment, such as on a closed store."""


class DataError(BiremeError, ValueError):
    """A data file or checkpoint is truncated, corrupt, or of another format."""


class ProtocolError(BiremeError):
    """A rule of the wire protocol was broken. The link is closed."""


class LocalProtocolError(ProtocolError):
    """This process tried an illegal step; a defect of Bireme's, please report it."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something illegal, or bytes that are no frame of this protocol."""


class TransportError(BiremeError, ConnectionError):
    """The network failed. The link is gone; a new one may be tried."""


class PeerLost(TransportError):
    """The peer closed the link, was killed, or cannot be reached."""


class AuthError(TransportError):
    """The peer could not prove that it holds the job's secret. Never retried."""


class JobError(BiremeError, RuntimeError):
    """The job cannot go on; the message names the node and the reason."""


class WaitTimeout(JobError, TimeoutError):
    """A wait reached its limit; the message names who is missing. The wait may be repeated."""


class NodeLost(JobError):
    """A node of the job died, and the job's policy is to stop."""


class JobAborted(JobError):
    """The scheduler ended the job; the message names the culprit and the reason."""


class CollectiveError(JobError):
    """A collective operation failed; every rank that takes part in it gets the same error."""


class MismatchError(CollectiveError):
    """The ranks do not agree on an operation. Nothing else is affected."""


class RankLost(CollectiveError):
    """A rank died or cannot be reached; every operation under way fails."""


class EngineClosed(CollectiveError):
    """The collectives were shut down with this operation under way, here or on another rank."""
