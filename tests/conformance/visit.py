"""A user who agrees to everything: follows an authorization address to where it leads back to."""

import sys
import urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(sys.argv[1], timeout=30) as response:
    response.read()
