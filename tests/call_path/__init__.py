"""Call path measurement: which product files one `tools/call` enters, in relay, worker and page together.

`python -m tests.call_path` prints the report, `test_call_path.py` asserts its limits, and docs/project/call-path.md is
written from the same run.
"""
