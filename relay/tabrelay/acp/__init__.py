"""The conductor: stands between an editor and its agent, and gives the agent the browser's tools.

Editor and agent speak the Agent Client Protocol (ACP) with each other; what they say passes as it came. It reaches the
relay over HTTP, like any other client. Nothing is imported here: agents wait for `tabrelay mcp`.
"""
