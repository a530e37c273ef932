"""Builds what serves pages with MCP-B's embed widget, of the parts of one relay."""

from __future__ import annotations

from tabrelay.admission.page_refusals import PageRefusals
from tabrelay.admission.widget_pages import WidgetPages
from tabrelay.faces.web.pairing import PairingRoutes
from tabrelay.peers.browsers.endpoint import BrowserEndpoint
from tabrelay.peers.browsers.widget_endpoint import WidgetEndpoint
from tabrelay.server.relay_parts import RelayParts


def make_widgets(
    parts: RelayParts, pairing: PairingRoutes, browsers: BrowserEndpoint, refusals: PageRefusals
) -> WidgetEndpoint:
    pages = WidgetPages(parts.policy, parts.tokens, pairing.requests, pairing.show)
    widgets = WidgetEndpoint(browsers.plain, parts.settings, parts.drain, refusals, browsers.refusal, pages.admit)
    parts.tokens.on_revoked.append(widgets.end)
    return widgets
