"""ACP conductor (`tabrelay acp`): a proxy between an editor and its agent that gives the agent the browser's tools.

Editor and agent use the Agent Client Protocol (ACP); their messages pass unchanged. The conductor uses the relay over
HTTP, like any other client. This file imports nothing: agents wait for `tabrelay mcp`, which must start fast.
"""
