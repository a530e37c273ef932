"""Parts of a relay: what `create_app` chooses or makes, as one value for `Relay`.

Builds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tabrelay.admission.policy import Policy
from tabrelay.admission.tokens import Tokens
from tabrelay.assets.files import Assets
from tabrelay.bus.bus import Bus
from tabrelay.calls.trace_context import Traces
from tabrelay.config.settings import Settings
from tabrelay.config.specs import HttpSpec, Spec
from tabrelay.faces.web.pairing import OnAsk
from tabrelay.observe.capture.call_capture import CallCapture
from tabrelay.routing.drain import Drain
from tabrelay.system.relay_records import RelayRecord

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier
    from tabrelay.peers.upstreams.transports.answering_client import SignIn


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayParts:
    """What `create_app` chooses or makes, and a relay is built from. The arguments are described there."""

    settings: Settings
    tokens: Tokens
    policy: Policy
    assets: Assets
    url: str
    app_url: str
    token_command: str
    command: str
    drain: Drain
    on_ask: OnAsk
    verifier: TokenVerifier | None
    traces: Traces
    on_stop: Callable[[], None]
    specs: Sequence[Spec]
    sign_in: Callable[[HttpSpec], SignIn | None] | None
    bus: Bus | None
    record: RelayRecord | None
    capture: CallCapture
