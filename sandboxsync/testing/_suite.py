"""The suite, put together from its groups."""

from __future__ import annotations

from ._commands import OutputRules
from ._commands_env import EnvironmentRules
from ._commands_order import OrderRules
from ._commands_text import CommandTextRules
from ._concurrency import ConcurrencyRules
from ._files import FileRules
from ._files_paths import PathRules
from ._files_trees import TreeRules
from ._files_writes import WriteRules
from ._fixtures import Fixtures
from ._offers import CapabilityRules
from ._processes import ProcessRules
from ._processes_logs import ProcessLogRules
from ._sessions import SessionRules
from ._sessions_end import SessionEndRules
from ._sessions_poison import PoisonRules
from ._sessions_shared import SharedSessionRules
from ._timeouts import TimeoutRules
from ._timeouts_limits import LimitRules


class TransportSuite(
    SessionRules,
    SessionEndRules,
    SharedSessionRules,
    PoisonRules,
    OutputRules,
    EnvironmentRules,
    CommandTextRules,
    OrderRules,
    TimeoutRules,
    LimitRules,
    ProcessRules,
    ProcessLogRules,
    FileRules,
    WriteRules,
    PathRules,
    TreeRules,
    ConcurrencyRules,
    CapabilityRules,
    Fixtures,
):
    """The tests of all rules; see :mod:`sandboxsync.testing`. Each is named by the rule that it proves."""
