"""Names of MCP methods and log levels, of every protocol version from 2024-11-05 to 2026-07-28.

Each name is defined here once; relay and worker compare with these constants. Which method exists in which version is
decided where a message is read, not here.
"""

from __future__ import annotations

from typing import Final

# Requests of clients.
INITIALIZE: Final = "initialize"
PING: Final = "ping"
SERVER_DISCOVER: Final = "server/discover"
TOOLS_LIST: Final = "tools/list"
TOOLS_CALL: Final = "tools/call"
RESOURCES_LIST: Final = "resources/list"
RESOURCES_TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_READ: Final = "resources/read"
RESOURCES_SUBSCRIBE: Final = "resources/subscribe"
RESOURCES_UNSUBSCRIBE: Final = "resources/unsubscribe"
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
COMPLETION_COMPLETE: Final = "completion/complete"
LOGGING_SET_LEVEL: Final = "logging/setLevel"
SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"
TASKS_GET: Final = "tasks/get"
TASKS_LIST: Final = "tasks/list"
TASKS_RESULT: Final = "tasks/result"
TASKS_UPDATE: Final = "tasks/update"
TASKS_CANCEL: Final = "tasks/cancel"
SKILLS_LIST: Final = "skills/list"
SKILLS_GET: Final = "skills/get"
RESOURCES_DIRECTORY_READ: Final = "resources/directory/read"

# Requests of servers.
SAMPLING_CREATE_MESSAGE: Final = "sampling/createMessage"
ELICITATION_CREATE: Final = "elicitation/create"
ROOTS_LIST: Final = "roots/list"

# Notifications.
INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
LOG_MESSAGE: Final = "notifications/message"
TOOLS_LIST_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_LIST_CHANGED: Final = "notifications/resources/list_changed"
RESOURCES_UPDATED: Final = "notifications/resources/updated"
PROMPTS_LIST_CHANGED: Final = "notifications/prompts/list_changed"
SUBSCRIPTIONS_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
TASKS_NOTIFICATION: Final = "notifications/tasks"
TASKS_STATUS: Final = "notifications/tasks/status"

# Severities of `notifications/message`, from the lowest to the highest (RFC 5424).
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
