"""A long job: it reports progress, and its caller can cancel it."""

import asyncio

from tabserver import Context, tool


@tool
async def count_slowly(ctx: Context, steps: int = 10) -> str:
    """Count to a number, one step a second, with progress. The caller can cancel it."""
    for step in range(1, steps + 1):
        await asyncio.sleep(1)
        ctx.progress(step, steps, f"step {step} of {steps}")
        print(f"step {step} of {steps}")
    return f"Counted to {steps}."
