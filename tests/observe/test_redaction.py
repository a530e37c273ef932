"""Redaction of JSON values and of the beginnings of JSON texts, and its reversal for a call that is sent again."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from tabrelay.observe.redaction import HIDDEN, LONGEST, redacted, redacted_beginning, restored

BEARER = "Bearer " + secrets.token_hex(12)


def test_values_of_members_with_the_name_of_a_secret_are_hidden_whatever_they_are() -> None:
    value = {"password": 1, "a": [{"api_key": {"b": "c"}}, BEARER], "_meta": {"progressToken": 7}}
    assert redacted(value) == {
        "password": HIDDEN,
        "a": [{"api_key": HIDDEN}, f"Bearer {HIDDEN}"],
        "_meta": {"progressToken": 7},
    }


@pytest.mark.parametrize("value", ["hunter22", 12345, True, {"deep": "hunter22"}, ["hunter22"], 'with "quotes"'])
def test_a_text_that_was_cut_hides_them_too(value: Any) -> None:
    text = json.dumps({"text": "x", "client_secret": value, "rest": "y" * 3 * LONGEST})
    shown = redacted_beginning(text)
    assert shown.startswith('{"text": "x", "client_secret": "[redacted]"') and "hunter22" not in shown


def test_a_secret_that_the_cut_splits_is_not_shown() -> None:
    text = json.dumps({"text": "y" * 3 * LONGEST + BEARER})
    for end in range(len(text) - len(BEARER), len(text)):
        assert BEARER[7:12] not in redacted_beginning(text[:end])


def test_what_was_hidden_is_put_back_where_it_was_and_what_was_edited_stays() -> None:
    original = {"password": "hunter22", "texts": [BEARER, "b"], "n": 1}
    shown = redacted(original)
    assert restored(shown, original) == original
    edited = {**shown, "texts": [shown["texts"][0], "changed", "new"], "password": "other", "n": HIDDEN}
    assert restored(edited, original) == {**original, "texts": [BEARER, "changed", "new"], "password": "other", "n": 1}
    assert restored({"else": HIDDEN}, original) == {"else": HIDDEN}
