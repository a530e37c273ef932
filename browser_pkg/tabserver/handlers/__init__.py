"""Tools, resources and prompts as Python functions: decorators, signatures, context, results."""
