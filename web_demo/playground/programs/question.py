"""A question to the user: the client shows a form, and the tool gets the answer."""

from dataclasses import dataclass

from tabserver import Context, tool


@dataclass
class Order:
    """What the person answers."""

    drink: str
    size: int = 2


@tool
async def order_drink(ctx: Context) -> str:
    """Ask the person at the client what to drink, and confirm the order."""
    answer = await ctx.elicit("What would you like?", Order)
    if not answer.accepted:
        return "No order."
    order = answer.data
    print(order)
    return f"{order.size} dl of {order.drink}, coming up."
