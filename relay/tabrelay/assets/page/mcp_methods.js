/**
 * MCP method names that the relay's pages use.
 *
 * One definition for all scripts of the page; nothing here depends on the relay's code.
 */

export const COMPLETION_COMPLETE = "completion/complete";
export const ELICITATION_CREATE = "elicitation/create";
export const LOG_MESSAGE = "notifications/message";
export const PROGRESS = "notifications/progress";
export const PROMPTS_GET = "prompts/get";
export const PROMPTS_LIST = "prompts/list";
export const RESOURCES_LIST = "resources/list";
export const RESOURCES_READ = "resources/read";
export const RESOURCES_TEMPLATES_LIST = "resources/templates/list";
export const ROOTS_LIST = "roots/list";
export const SAMPLING_CREATE_MESSAGE = "sampling/createMessage";
export const SUBSCRIPTIONS_LISTEN = "subscriptions/listen";
export const TOOLS_CALL = "tools/call";
export const TOOLS_LIST = "tools/list";
