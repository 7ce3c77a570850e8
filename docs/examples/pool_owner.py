#!/usr/bin/env python3
"""An owner of a worker pool: keeps a pool of processes at its size. Standard library only.

  pool_owner.py --url http://127.0.0.1:7401 --pool wp_… --token-file FILE --state DIR --size 4

It does what docs/worker-pools.md asks of an owner, and no more:

* it accepts registrations: a worker makes a file named after its id in DIR/workers with its process
  id (a real owner would listen on a port, named in `--address`);
* it connects with its epoch and the list of its workers, and again after each NOT_CONNECTED, for
  example when the scheduler was restarted;
* it reports each registered worker, and learns of deaths by long poll;
* it reports idle workers: those that made a file named after their id in DIR/idle;
* it keeps the size in DIR/size, if the file exists, and chooses which workers it gives back;
* a new owner process is a new leader: it takes the next epoch, and the old process exits;
* DIR/stop ends the pool with the status in the file: SUCCEEDED, FAILED or CANCELED.

Its state is written to DIR/owner.json, for observers.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid


# Seconds that an ending owner waits for the scheduler.
STOP_WAIT = 5


class Refused(Exception):
    def __init__(self, code, detail):
        super().__init__(f"{code}: {detail}")
        self.code = code


class Unavailable(Exception):
    """No answer, or an incomplete one. The job and its workers continue."""


class Owner:
    def __init__(self, options):
        self.options = options
        self.state = pathlib.Path(options.state)
        self.folder = self.state / "workers"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.idle_folder = self.state / "idle"
        self.idle_folder.mkdir(exist_ok=True)
        # The idle workers as last reported; a new owner starts with none.
        self.idle = set()
        # Idle on a blocked node, and therefore replaced already.
        self.spare = set()
        self.token = pathlib.Path(options.token_file).read_text().strip()
        self.epoch = self.next_epoch()
        self.connection = None
        self.after = 0
        self.registered = set()
        # Registered and not yet reported to the scheduler.
        self.unreported = set()
        # The size as last reported.
        self.reported_size = None
        self.removed = []
        self.given_up = []
        self.lock = threading.RLock()

    def next_epoch(self):
        """A real owner has a leader election; here a file has the epoch."""
        path = self.state / "epoch"
        epoch = int(path.read_text()) + 1 if path.exists() else 1
        fresh = path.with_suffix(".new")
        fresh.write_text(str(epoch))
        fresh.replace(path)
        return epoch

    # --- the scheduler

    def call(self, method, path, body=None, timeout=35):
        url = f"{self.options.url}/v1/pools/{self.options.pool}{path}"
        headers = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            "x-owner-epoch": str(self.epoch),
        }
        with self.lock:
            if self.connection is not None:
                headers["x-connection"] = str(self.connection)
        if method == "POST":
            headers["idempotency-key"] = uuid.uuid4().hex
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            try:
                answer = urllib.request.urlopen(request, timeout=timeout)
            except urllib.error.HTTPError as refused:
                answer = refused
            with answer:
                text = answer.read()
            said = json.loads(text) if text else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(error) from None
        if answer.status >= 400:
            raise Refused(said.get("code", str(answer.status)), said.get("detail", ""))
        return said

    def connect(self):
        with self.lock:
            # The list has all registered workers, so they need no other report.
            workers = sorted(self.registered)
            self.connection = self.reported_size = self.idle = None
            body = {"epoch": self.epoch, "address": self.options.address, "workers": workers}
            try:
                answer = self.call("PUT", "/owner", body)
            except Refused as refused:
                if refused.code == "gone":
                    sys.exit("the pool is stopped")
                raise
            self.connection = answer["connection"]
            self.after = answer["event_seq"]
            self.unreported -= set(workers)
        say(f"connection {self.connection} of epoch {self.epoch}: {len(workers)} workers")

    def report_started(self):
        """Reports new workers; the next connection lists those that were refused."""
        with self.lock:
            fresh = sorted(self.unreported) if self.connection is not None else []
        for worker in fresh:
            self.call("POST", f"/workers/{worker}/started")
            with self.lock:
                self.unreported.discard(worker)

    def wanted_size(self):
        try:
            return int((self.state / "size").read_text())
        except (OSError, ValueError):
            return self.options.size

    def keep_size(self):
        """Reports the size, then gives workers back: in the other order each would be replaced.

        A new connection gets the size in any case.
        """
        size = self.wanted_size()
        with self.lock:
            connection = self.connection
        if connection is None:
            return
        if size != self.reported_size:
            self.call("PUT", "/size", {"size": size})
            with self.lock:
                if connection == self.connection:
                    self.reported_size = size
        if len(self.registered) <= size:
            return
        # Workers that are leaving, or unknown, cannot be given back.
        started = self.call("GET", "/workers?state=STARTED")["workers"]
        for worker in self.to_give_back({it["id"] for it in started}, size):
            self.call("DELETE", f"/workers/{worker}")
            with self.lock:
                self.given_up.append(worker)
                self.forget(worker)

    def to_give_back(self, started, size):
        """Which workers to give back is the owner's choice: spare ones, idle ones, the last by name."""
        with self.lock:
            ours = self.registered & started
            idle = self.idle or set()
            order = sorted(ours, key=lambda it: (it in self.spare, it in idle, it), reverse=True)
            return order[: max(0, len(ours) - size)]

    def report_idle(self):
        """A new connection gets the list in any case, later only changes."""
        with self.lock:
            idle = {path.name for path in self.idle_folder.iterdir()} & self.registered
            connection = self.connection
        if connection is not None and idle != self.idle:
            answer = self.call("PUT", "/idle", {"workers": sorted(idle)})
            with self.lock:
                if connection == self.connection:
                    self.idle, self.spare = idle, set(answer["idle_blocked"])

    def follow_events(self):
        """Waits for events. A removed worker is lost, as after a missed heartbeat."""
        answer = self.call("GET", f"/events?after={self.after}&wait_ms=1000")
        with self.lock:
            self.after = answer["after"]
            for event in answer["events"]:
                say(event["seq"], event["kind"], event.get("worker_id", ""), event["text"])
                if event["kind"] == "RESOURCE_REMOVED":
                    self.lose(event["worker_id"])
                elif event["kind"] == "RECONNECT_REQUESTED":
                    raise Refused("not_connected", "the scheduler has restarted")
                elif event["kind"] == "POOL_FAILED":
                    sys.exit("the pool has failed: " + event["text"])

    def stop(self, status):
        """Ends the pool and this owner. Without a scheduler it does not wait."""
        until = time.monotonic() + (STOP_WAIT if self.connection is not None else 0)
        stopped = False
        while not stopped and time.monotonic() < until:
            try:
                body = {"status": status, "message": "its owner is done"}
                self.call("POST", "/stop", body, timeout=STOP_WAIT)
                stopped = True
            except (Refused, Unavailable):
                time.sleep(0.2)
        if not stopped:
            for registration in self.folder.iterdir():
                end(registration, signal.SIGTERM)
        say("stopped:", status)
        os._exit(0)

    def lose(self, worker):
        """Ignores unknown workers: this owner may have noticed the death itself."""
        if worker in self.registered:
            self.removed.append(worker)
        self.forget(worker)

    def forget(self, worker):
        for known in (self.registered, self.unreported, self.spare):
            known.discard(worker)
        (self.folder / worker).unlink(missing_ok=True)

    # --- its workers

    def watch_registrations(self):
        """Finds new workers, and workers without a process."""
        while True:
            with self.lock:
                for path in self.folder.iterdir():
                    text = path.read_text().strip()
                    if not text.isdigit():
                        continue
                    if alive(int(text)):
                        if path.name not in self.registered:
                            self.registered.add(path.name)
                            self.unreported.add(path.name)
                    elif path.name in self.registered:
                        self.lose(path.name)
                    else:
                        path.unlink(missing_ok=True)
                self.save()
            if (self.state / "stop").exists():
                self.stop((self.state / "stop").read_text().strip() or "UNKNOWN")
            try:
                self.report_started()
                self.report_idle()
                self.keep_size()
            except (Refused, Unavailable):
                pass  # The wait for events reports the reason.
            time.sleep(0.1)

    def save(self):
        known = {
            "epoch": self.epoch,
            "connection": self.connection,
            "workers": sorted(self.registered),
            "removed": self.removed,
            "given_up": self.given_up,
        }
        # A previous owner may still write its own file.
        fresh = self.state / f"owner.json.{os.getpid()}"
        fresh.write_text(json.dumps(known))
        fresh.replace(self.state / "owner.json")

    # --- its lifecycle

    def run(self):
        threading.Thread(target=self.watch_registrations, daemon=True).start()
        connected = False
        while True:
            try:
                if not connected:
                    self.connect()
                    connected = True
                self.follow_events()
            except Refused as refused:
                if refused.code in ("stale_epoch", "stale_connection"):
                    sys.exit(f"another owner leads: {refused}")
                # Gone: the pool is over, or events were missed. Connecting again tells which.
                if refused.code not in ("not_connected", "gone", "standby", "unavailable"):
                    say("refused:", refused)
                connected = connected and refused.code not in ("not_connected", "gone")
                time.sleep(0.2)
            except Unavailable:
                time.sleep(0.2)


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False
    except PermissionError:
        return True


def say(*words):
    print(*words, flush=True)


def end(registration, how):
    try:
        os.kill(int(registration.read_text()), how)
    except (OSError, ValueError):
        pass  # The process is gone, or may not be ended.


def torment(owner, seconds):
    """Kills a registered worker from time to time, for demonstrations."""
    while True:
        time.sleep(random.uniform(0.5, 1.5) * seconds)
        with owner.lock:
            victims = [path for path in owner.folder.iterdir() if path.name in owner.registered]
        if victims:
            victim = random.choice(victims)
            say("killing", victim.name)
            end(victim, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--url", required=True, help="address of rm-scheduler")
    parser.add_argument("--pool", required=True, help="id of the pool")
    parser.add_argument("--token-file", required=True, help="file with the owner's token")
    parser.add_argument("--state", required=True, help="directory for its state")
    parser.add_argument("--size", type=int, required=True, help="workers to keep")
    parser.add_argument("--address", default="", help="where workers register")
    parser.add_argument("--torment", type=float, help="kill a worker every so many seconds")
    options = parser.parse_args()
    owner = Owner(options)
    if options.torment:
        threading.Thread(target=torment, args=(owner, options.torment), daemon=True).start()
    owner.run()


if __name__ == "__main__":
    main()
