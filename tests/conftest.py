"""For the whole suite."""

pytest_plugins = ["tests.canary", "tests.order"]
