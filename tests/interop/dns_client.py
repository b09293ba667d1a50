"""Asks a DNS server for 10,000 names by dnspython's resolver, on blocking sockets.

``python -m tests.interop.dns_client PORT`` prints a JSON object: how many answers and denials were
right, and the first outcome that was wrong. A process of its own, which leaves the server its loop.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import dns.exception
import dns.resolver

from tests.interop.dns_names import NAMES, address_of, exists, name_of

# Queries on their way at a time, so that the server has reads of several packets.
CONCURRENT = 8

RIGHT = ("answers", "denials")


def main(port: int) -> None:
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = port
    resolver.timeout = resolver.lifetime = 20.0  # no second try: each query is sent once
    counts: Counter[str] = Counter()

    with ThreadPoolExecutor(CONCURRENT) as threads:
        for outcome in threads.map(lambda number: ask(resolver, number), range(NAMES)):
            counts[outcome] += 1
            if outcome not in RIGHT:  # a dead server would take hours
                threads.shutdown(cancel_futures=True)
                break

    print(json.dumps(counts))


def ask(resolver: dns.resolver.Resolver, number: int) -> str:
    """``answers`` or ``denials`` if what came is right, else what came."""
    expected = [address_of(number)] if exists(number) else []
    try:
        found = [record.address for record in resolver.resolve(name_of(number), "A", search=False)]
    except dns.resolver.NXDOMAIN:
        found = []
    except dns.exception.DNSException as error:
        return f"{name_of(number)}: {error!r}"
    if found != expected:
        return f"{name_of(number)}: {found}"
    return "answers" if expected else "denials"


if __name__ == "__main__":
    main(int(sys.argv[1]))
