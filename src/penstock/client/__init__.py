"""The Python SDK: an asynchronous and a blocking client with the same names, and workers.

    async with connect() as client:
        emails = client.queue("emails")
        await emails.put("hello", key=5)
        message = await emails.take(wait=10)
        await message.ack()

What is imported here is public; the rest may change.
"""

from __future__ import annotations

from penstock.client import sync
from penstock.client.aio import Client, connect
from penstock.client.backoff import Backoff
from penstock.client.endpoints import DEFAULT_URL
from penstock.client.errors import (
    AnswerTooLarge,
    BadAnswer,
    BadCommand,
    BadQueueName,
    BadRequest,
    BadSettings,
    BadUrl,
    BatchIncomplete,
    BatchNotStaged,
    ClientClosed,
    ConnectionLost,
    DeadLetterCycle,
    DedupFull,
    DefaultQueue,
    DiskFull,
    FrameTooLarge,
    HandshakeRefused,
    HeadersTooLarge,
    HistoryGone,
    KeyOutOfRange,
    LeaseLost,
    Limited,
    MemoryFull,
    NoSuchBinding,
    NoSuchJob,
    NoSuchQueue,
    NoSuchRecord,
    NotLeader,
    OutcomeUnknown,
    PayloadTooLarge,
    PenstockError,
    QueueExists,
    QueueFull,
    Refused,
    RequestReused,
    RequestTooLarge,
    SettingFixed,
    StageFull,
    StagingFull,
    Stopping,
    Timeout,
    TooManyInFlight,
    TooManyLeases,
    TooManyQueues,
    WrongState,
)
from penstock.client.items import Item, PutResult
from penstock.client.messages import Message, Record
from penstock.client.queue import Queue
from penstock.client.subscription import Subscription
from penstock.client.sync import connect_sync
from penstock.client.worker import Worker, run_workers, worker

__all__ = [
    "AnswerTooLarge",
    "DEFAULT_URL",
    "Backoff",
    "BadAnswer",
    "BadCommand",
    "BadQueueName",
    "BadRequest",
    "BadSettings",
    "BadUrl",
    "BatchIncomplete",
    "BatchNotStaged",
    "Client",
    "ClientClosed",
    "ConnectionLost",
    "DeadLetterCycle",
    "DedupFull",
    "DefaultQueue",
    "DiskFull",
    "HandshakeRefused",
    "HeadersTooLarge",
    "FrameTooLarge",
    "HistoryGone",
    "Item",
    "KeyOutOfRange",
    "LeaseLost",
    "Limited",
    "MemoryFull",
    "Message",
    "NoSuchBinding",
    "NoSuchJob",
    "NoSuchQueue",
    "NoSuchRecord",
    "NotLeader",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "PenstockError",
    "PutResult",
    "Queue",
    "QueueExists",
    "QueueFull",
    "Record",
    "Refused",
    "RequestReused",
    "RequestTooLarge",
    "SettingFixed",
    "StageFull",
    "StagingFull",
    "Stopping",
    "Subscription",
    "Timeout",
    "TooManyInFlight",
    "TooManyLeases",
    "TooManyQueues",
    "Worker",
    "WrongState",
    "connect",
    "connect_sync",
    "run_workers",
    "sync",
    "worker",
]
