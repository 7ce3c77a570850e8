#!/usr/bin/env python3
"""An owner of a worker pool: keeps a pool of processes at its size. Standard library only.

  pool_owner.py --url http://127.0.0.1:7401 --pool wp_… --token-file FILE --state DIR --size 4

It does what the specification of worker pools asks of an owner, and no more:

* it takes registrations: a worker makes a file named after its id in DIR/workers and keeps its
  process id in it (a real owner would listen on a port, named in `--address`);
* it connects with its epoch and the list of its workers, and does so again whenever it is told
  NOT_CONNECTED, as after a restart of the scheduler;
* it reports each worker once it has registered, and hears by long poll which of them are dead;
* it says which workers are idle: those that made a file named after their id in DIR/idle;
* it keeps to the number in DIR/size, if there is one, and chooses itself whom it gives back;
* a new owner process is a new leader: it takes the next epoch, and the old one goes;
* DIR/stop ends the pool, with the status that stands in it: SUCCEEDED, FAILED or CANCELED.

What it knows is written to DIR/owner.json, for whoever watches.
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


# How long an owner that ends waits for the scheduler, in seconds.
STOP_WAIT = 5


class Refused(Exception):
    def __init__(self, code, detail):
        super().__init__(f"{code}: {detail}")
        self.code = code


class Away(Exception):
    """No answer, or half of one. The job goes on, and so do its workers."""


class Owner:
    def __init__(self, options):
        self.options = options
        self.state = pathlib.Path(options.state)
        self.folder = self.state / "workers"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.idle_folder = self.state / "idle"
        self.idle_folder.mkdir(exist_ok=True)
        # What the scheduler was told last; a new owner starts with everybody busy.
        self.idle = set()
        # Idle on a node that is blocked, and so replaced already.
        self.spare = set()
        self.token = pathlib.Path(options.token_file).read_text().strip()
        self.epoch = self.next_epoch()
        self.connection = None
        self.after = 0
        self.registered = set()
        # Registered and not yet acknowledged: news for the scheduler.
        self.unreported = set()
        # The size the scheduler was told last.
        self.told_size = None
        self.removed = []
        self.given_up = []
        self.lock = threading.RLock()

    def next_epoch(self):
        """A real owner has a leader election; here the file system counts."""
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
            raise Away(error) from None
        if answer.status >= 400:
            raise Refused(said.get("code", str(answer.status)), said.get("detail", ""))
        return said

    def connect(self):
        with self.lock:
            # The list is all that is registered: what it says need not be reported again.
            workers = sorted(self.registered)
            self.connection = self.told_size = self.idle = None
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

    def tell(self):
        """Reports who registered since; what is refused is listed by the next connection."""
        with self.lock:
            fresh = sorted(self.unreported) if self.connection is not None else []
        for worker in fresh:
            self.call("POST", f"/workers/{worker}/started")
            with self.lock:
                self.unreported.discard(worker)

    def wished(self):
        try:
            return int((self.state / "size").read_text())
        except (OSError, ValueError):
            return self.options.size

    def keep_size(self):
        """First the size, then whom to give up: in the other order each would be replaced.

        A new connection is told in any case, so that nothing is lost while nobody listened.
        """
        size = self.wished()
        with self.lock:
            connection = self.connection
        if connection is None:
            return
        if size != self.told_size:
            self.call("PUT", "/size", {"size": size})
            with self.lock:
                if connection == self.connection:
                    self.told_size = size
        if len(self.registered) <= size:
            return
        # Of those on their way out already, and of strangers, none is to spare.
        started = self.call("GET", "/workers?state=STARTED")["workers"]
        for worker in self.dispensable({it["id"] for it in started}, size):
            self.call("DELETE", f"/workers/{worker}")
            with self.lock:
                self.given_up.append(worker)
                self.forget(worker)

    def dispensable(self, started, size):
        """Only an owner knows: here the spare ones, then the idle, then the last ones by name."""
        with self.lock:
            ours = self.registered & started
            idle = self.idle or set()
            order = sorted(ours, key=lambda it: (it in self.spare, it in idle, it), reverse=True)
            return order[: max(0, len(ours) - size)]

    def tell_idle(self):
        """A new connection is told in any case; after that only what changed."""
        with self.lock:
            idle = {path.name for path in self.idle_folder.iterdir()} & self.registered
            connection = self.connection
        if connection is not None and idle != self.idle:
            answer = self.call("PUT", "/idle", {"workers": sorted(idle)})
            with self.lock:
                if connection == self.connection:
                    self.idle, self.spare = idle, set(answer["idle_blocked"])

    def hear(self):
        """Waits for events; a removed worker is lost, as after a missed heartbeat."""
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
        """Ends the pool and this owner. Without a scheduler nobody is waited for."""
        until = time.monotonic() + (STOP_WAIT if self.connection is not None else 0)
        stopped = False
        while not stopped and time.monotonic() < until:
            try:
                body = {"status": status, "message": "its owner is done"}
                self.call("POST", "/stop", body, timeout=STOP_WAIT)
                stopped = True
            except (Refused, Away):
                time.sleep(0.2)
        if not stopped:
            for registration in self.folder.iterdir():
                end(registration, signal.SIGTERM)
        say("stopped:", status)
        os._exit(0)

    def lose(self, worker):
        """Unknown workers are ignored: our own detection may have been faster."""
        if worker in self.registered:
            self.removed.append(worker)
        self.forget(worker)

    def forget(self, worker):
        for known in (self.registered, self.unreported, self.spare):
            known.discard(worker)
        (self.folder / worker).unlink(missing_ok=True)

    # --- its workers

    def watch_registrations(self):
        """Looks for workers that registered, and for those whose process is gone."""
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
                self.write_down()
            if (self.state / "stop").exists():
                self.stop((self.state / "stop").read_text().strip() or "UNKNOWN")
            try:
                self.tell()
                self.tell_idle()
                self.keep_size()
            except (Refused, Away):
                pass  # Who waits for events finds out why.
            time.sleep(0.1)

    def write_down(self):
        known = {
            "epoch": self.epoch,
            "connection": self.connection,
            "workers": sorted(self.registered),
            "removed": self.removed,
            "given_up": self.given_up,
        }
        # The one before this may be about to go, and write beside it.
        fresh = self.state / f"owner.json.{os.getpid()}"
        fresh.write_text(json.dumps(known))
        fresh.replace(self.state / "owner.json")

    # --- its life

    def run(self):
        threading.Thread(target=self.watch_registrations, daemon=True).start()
        connected = False
        while True:
            try:
                if not connected:
                    self.connect()
                    connected = True
                self.hear()
            except Refused as refused:
                if refused.code in ("stale_epoch", "stale_connection"):
                    sys.exit(f"another owner leads: {refused}")
                # Gone: the pool is over, or we missed too much. The handover says which.
                if refused.code not in ("not_connected", "gone", "standby", "unavailable"):
                    say("refused:", refused)
                connected = connected and refused.code not in ("not_connected", "gone")
                time.sleep(0.2)
            except Away:
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
        pass  # Gone, or not ours to end.


def torment(owner, seconds):
    """Kills a registered worker every now and then, for demonstrations."""
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
    parser.add_argument("--token-file", required=True, help="the token that came with the pool")
    parser.add_argument("--state", required=True, help="directory for what it knows")
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
