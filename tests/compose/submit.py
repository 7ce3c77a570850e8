#!/usr/bin/env python3
"""Submits small jobs, five a second, while parts of the stack fail, and reports the results.

usage: submit.py TOKEN ADDRESSES AUTHORITY LOG

TOKEN holds the header line. ADDRESSES lists the replicas of job-converter, one on each line, and is read
again when it changes. AUTHORITY is the authority of their certificates. A refused submission goes to
the next replica with the same key, for ten seconds at most; then it has failed. Each submission is a
line in LOG: begin, acceptance, number of tries, and its id or `failed`. On SIGTERM it stops submitting,
waits until every acknowledged job has ended well, and prints one line.
"""

import http.client
import json
import os
import signal
import ssl
import sys
import time

PACE = 0.2
PATIENCE = 10.0
# Seconds that a job may take to end after the previous one ended.
END = 60.0
BODY = json.dumps({"name": "load", "command": ["true"], "tasks": {"count": 1}, "max_attempts": 10})


class Replicas:
    """Connections to the replicas in the file, used in turn."""

    def __init__(self, path, authority, headers):
        self.path, self.headers = path, headers
        self.believing = ssl.create_default_context(cafile=authority)
        self.seen, self.all, self.at, self.open = None, [], 0, {}

    def ask(self, method, path, body=None, key=None):
        """Status and document, or `None` without an answer; then the next replica is used."""
        if (now := os.stat(self.path).st_mtime_ns) != self.seen:
            with open(self.path, encoding="ascii") as file:
                self.seen, self.all = now, file.read().split()
        address = self.all[self.at % len(self.all)]
        headers = self.headers | ({"Idempotency-Key": key} if key else {})
        try:
            if address not in self.open:
                self.open[address] = http.client.HTTPSConnection(
                    address, timeout=5, context=self.believing
                )
            self.open[address].request(method, path, body, headers)
            answer = self.open[address].getresponse()
            text = answer.read()
            if answer.status < 500:
                return answer.status, json.loads(text)
        except (OSError, http.client.HTTPException):
            pass
        if address in self.open:
            self.open.pop(address).close()
        self.at += 1
        return None


def submit(replicas, key):
    """Tries, id."""
    until = time.time() + PATIENCE
    tries = 0
    while time.time() < until:
        tries += 1
        if answer := replicas.ask("POST", "/v1/jobs", BODY, key):
            status, document = answer
            if status in (200, 201):
                return tries, document["id"]
            print(f"submit.py: answered {status}: {document}", file=sys.stderr)
            return tries, None
        time.sleep(0.02)
    return tries, None


def lost(replicas, ids):
    """Acknowledged jobs that are missing or did not end well."""
    for job in ids:
        until = time.time() + END
        state = None
        while time.time() < until:
            answer = replicas.ask("GET", f"/v1/jobs/{job}?wait=5&until=final")
            if answer is None:
                time.sleep(0.1)
                continue
            state = answer[1].get("state")
            if answer[0] == 404 or state in ("completed", "failed", "cancelled", "refused"):
                break
        if state != "completed":
            yield job, state


def main():
    token, addresses, authority, log = sys.argv[1:]
    with open(token, encoding="ascii") as file:
        name, value = file.read().split(": ", 1)
    headers = {name: value, "Content-Type": "application/json"}
    replicas = Replicas(addresses, authority, headers)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    ids, first, slowest, number = [], 0, 0.0, 0
    with open(log, "w", encoding="ascii", buffering=1) as file:
        while not stopped:
            began = time.time()
            number += 1
            tries, job = submit(replicas, f"load-{os.getpid()}-{number}")
            ended = time.time()
            file.write(f"{began:.3f} {ended:.3f} {tries} {job or 'failed'}\n")
            if job:
                ids.append(job)
                first += tries == 1
                slowest = max(slowest, ended - began)
            time.sleep(max(0.0, began + PACE - ended))
    gone = list(lost(replicas, ids))
    for job, state in gone:
        print(f"submit.py: {job} was acknowledged and is {state}", file=sys.stderr)
    taken = 100 * len(ids) / max(1, number)
    print(f"{number} submissions: {taken:.2f} % accepted, {first} of them at the first try, the"
          f" slowest after {slowest:.2f} s; {len(ids) - len(gone)} of {len(ids)} ended well")
    # The objective of successful submissions, and no lost acknowledgement (G11).
    sys.exit(0 if number and taken >= 99.9 and not gone else 1)


main()
