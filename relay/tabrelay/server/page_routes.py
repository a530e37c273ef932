"""Routes of pages that depend on the parts of a relay only: documentation, playground, packages, proof, reports, OAuth.

Routes that depend on the registry, the switch or the console are added in `relay`. Builds them, and decides nothing.
"""

from __future__ import annotations

from tabrelay.assets.docs_site import DocsSite
from tabrelay.faces.web.csp_reports import CspReports
from tabrelay.faces.web.documentation import DocsRoutes
from tabrelay.faces.web.oauth_metadata import OAuthMetadata
from tabrelay.faces.web.package_files import PackageRoutes
from tabrelay.faces.web.playground import PlaygroundRoutes
from tabrelay.faces.web.proving import Proving
from tabrelay.faces.web.routes import RouteGroup
from tabrelay.server.relay_parts import RelayParts


def page_routes(parts: RelayParts) -> tuple[RouteGroup, ...]:
    return (
        Proving(parts.tokens.prove, parts.policy.authorities),
        CspReports(parts.policy),
        OAuthMetadata(parts.verifier),
        PackageRoutes(parts.settings.home),
        PlaygroundRoutes(parts.assets, parts.settings.public_url),
        DocsRoutes(DocsSite(parts.assets.docs)),
    )
