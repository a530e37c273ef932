"""For the whole suite."""

pytest_plugins = ["tests.canary", "tests.order", "tests.support.relay_pair"]
