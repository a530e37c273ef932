"""A user who consents to everything: follows an authorization address and its redirects."""

import sys
import urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(sys.argv[1], timeout=30) as response:
    response.read()
