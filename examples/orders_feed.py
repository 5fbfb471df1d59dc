"""Orders of some customers in two queues, one of them hours behind, and the baskets that they make."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import NamedTuple

import pika

CUSTOMERS = {"web": ("ann", "bob", "cat", "dan"), "shops": ("eve", "fay", "gus", "hal")}
"""By queue: those who order on the web, and those in shops, which send what they have sold in the evening."""
BEHIND = timedelta(hours=6)
"""How much older an order of a shop is when it arrives, beside one of the web."""
GAP = timedelta(minutes=30)
"""The pause that ends a basket."""
MORNING = datetime(2026, 3, 2, tzinfo=timezone.utc)


class Order(NamedTuple):
    """An item that somebody has put into the basket, and the queue in which it arrives."""

    queue: str
    time: datetime
    customer: str
    cents: int


class Basket(NamedTuple):
    """A row of the result; times are whole seconds since 1970."""

    customer: str
    first_item: int
    last_item: int
    items: int
    cents: int


def orders() -> list[Order]:
    """The orders of a day in the order in which they arrive; always the same."""
    dice = random.Random(2026)  # noqa: S311 - not for secrecy
    found = []
    for queue, customers in CUSTOMERS.items():
        late = BEHIND if queue == "shops" else timedelta(0)
        for customer in customers:
            time = MORNING + timedelta(minutes=dice.randrange(120))
            while time < MORNING + timedelta(days=1):
                for _ in range(dice.randint(1, 20)):
                    found.append(Order(queue, time - late, customer, dice.randint(99, 9_999)))
                    time += timedelta(seconds=dice.randint(5, 600))
                time += max(GAP, timedelta(minutes=dice.randint(0, 120)))
    return sorted(found, key=lambda order: order.time + (BEHIND if order.queue == "shops" else timedelta(0)))


def expected(given: list[Order]) -> list[Basket]:
    """The baskets, computed naively: the orders of each customer, cut at every pause as long as the gap."""
    baskets = []
    for customer, ours in groupby(
        sorted(given, key=lambda each: (each.customer, each.time)), lambda each: each.customer
    ):
        basket: list[Order] = []
        for order in ours:
            if basket and order.time - basket[-1].time >= GAP:
                baskets.append(_basket(customer, basket))
                basket = []
            basket.append(order)
        baskets.append(_basket(customer, basket))
    return baskets


def _basket(customer: str, ordered: list[Order]) -> Basket:
    first, last = ordered[0].time, ordered[-1].time
    return Basket(
        customer, int(first.timestamp()), int(last.timestamp()), len(ordered), sum(each.cents for each in ordered)
    )


def send(port: int, given: list[Order]) -> None:
    """Make the queues and send the orders, each with its own id; returns when the broker has them on disk."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    for queue in CUSTOMERS:
        channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for number, order in enumerate(given):
        body = json.dumps({"customer": order.customer, "cents": order.cents, "at": order.time.isoformat()})
        # Persistent: otherwise a broker that is restarted has forgotten it.
        channel.basic_publish(
            "", order.queue, body.encode(), pika.BasicProperties(message_id=f"order-{number}", delivery_mode=2)
        )
    connection.close()


def left(port: int) -> int:
    """How many orders are in the queues."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    counts = [channel.queue_declare(queue, passive=True).method.message_count for queue in CUSTOMERS]
    connection.close()
    return sum(counts)
