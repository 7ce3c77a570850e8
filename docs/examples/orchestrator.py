#!/usr/bin/env python3
"""An orchestrator: keeps a map of its work, and a process in each allocation. Standard library only.

  orchestrator.py --url http://127.0.0.1:7400 --name demo --token-file FILE --state DIR

It does what job-converter asks of an orchestrator (services/job-converter/README.md):

* its map has a job of several processes and, with --reserve, a reserved node. It is put
  periodically, with a sequence that grows with each change, and a lineage that is made when DIR is
  empty and kept there;
* it follows its allocations by long poll. It starts a process in a new allocation, and ends the
  process of one with `vacate`. Its report of that end gives the space to other work;
* when killed, it continues: its state is written before a map is put, and a process writes its
  id to DIR/processes before it begins its work;
* DIR/size, if it exists, is the most processes of the job;
* DIR/stop ends everything: the processes, then the work, then this program.

The processes are local ones that only wait; a real orchestrator would start them on the nodes of
its allocations. Its state is in DIR/orchestrator.json, for observers.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid

MIB = 1 << 20


class Refused(Exception):
    def __init__(self, status, said):
        super().__init__(f"{status}: {said.get('detail', '')}")
        self.status = status


class Unavailable(Exception):
    """No answer, or an incomplete one. The processes continue."""


class Orchestrator:
    def __init__(self, options):
        self.options = options
        self.state = pathlib.Path(options.state)
        self.folder = self.state / "processes"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.token = pathlib.Path(options.token_file).read_text().strip()
        self.lock = threading.RLock()
        self.lineage, self.sequence = self.remember()
        # The map as last put, with its sequence.
        self.last = None
        # The allocations, and the cursor at which they were read.
        self.shares, self.cursor = {}, None
        # Running processes by allocation; ended ones that are still listed.
        self.running, self.over = {}, {}
        self.children = {}
        self.ending = False
        self.adopt()

    def remember(self):
        """The sequence continues after the last one that may have been put."""
        try:
            known = json.loads((self.state / "orchestrator.json").read_text())
            return known["lineage"], known["sequence"]
        except (OSError, ValueError, KeyError):
            return uuid.uuid4().hex, 0

    def adopt(self):
        """Adopts the processes of the previous run of this program."""
        for path in self.folder.iterdir():
            text = path.read_text().strip()
            if text.isdigit() and alive(int(text)):
                self.running[path.name] = int(text)
            else:
                self.over[path.name] = "abandoned"
                path.unlink(missing_ok=True)

    # --- job-converter

    def call(self, method, path, body=None, timeout=15):
        request = urllib.request.Request(
            f"{self.options.url}/v1/orchestrators/{self.options.name}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "authorization": f"Bearer {self.token}",
                "content-type": "application/json",
            },
        )
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
            raise Refused(answer.status, said)
        return said

    def size(self):
        try:
            return int((self.state / "size").read_text())
        except (OSError, ValueError):
            return self.options.processes

    def map(self):
        """All its work in its current state (R-7.1)."""
        reports = {share: {"state": "running", "pid": pid} for share, pid in self.running.items()}
        reports |= {share: {"state": how} for share, how in self.over.items()}
        owner = {"owner": self.options.owner}
        ended = self.ending and not self.running
        job = "completed" if ended else "completing" if self.ending else "running"
        work = {
            "job": owner
            | {
                "kind": "job",
                "state": job if reports or self.ending else "waiting",
                "size": {"memory_bytes": self.options.memory_mib * MIB},
                "max_processes": self.size(),
                "work_items": 1000,
                "time_per_item_ms": 60_000,
                "processes": reports,
            }
        }
        if self.options.reserve:
            state = "completed" if self.ending else "waiting"
            work["machine"] = owner | {"kind": "reservation", "state": state}
        return work

    def put(self):
        """Puts the same map with the same sequence, a changed one with the next."""
        with self.lock:
            work = self.map()
            if work != self.last:
                self.last, self.sequence = work, self.sequence + 1
            body = {"lineage": self.lineage, "sequence": self.sequence, "work": work}
            # An allocation that it has read and does not name has no process.
            body |= {"seen": self.cursor} if self.cursor else {}
            self.save()
        answer = self.call("PUT", "/publication", body)
        if answer["applied"]:
            for refused in answer.get("refused", []):
                say("refused:", refused["pointer"], refused["detail"])
            return body["work"]
        say("not applied:", answer["reason"], answer["detail"])
        if answer["reason"] == "superseded":
            self.quit("another life of this orchestrator has taken over", leave=True)
        with self.lock:
            # A map with this sequence was put before a kill: use the next sequence.
            self.sequence = max(self.sequence, answer.get("sequence", 0))
            self.last = None
        return None

    def follow(self):
        """Reads changes of its allocations; all of them when the cursor is too old."""
        since = f"&since={self.cursor}" if self.cursor else ""
        changes = self.call("GET", f"/allocations/publication?wait=2{since}")
        with self.lock:
            shares = {} if changes["full"] else dict(self.shares)
            for key in changes["removed"]:
                shares.pop(key, None)
            shares |= {k: it for k, it in changes["changed"].items() if it["entry"] == "share"}
            for it in changes["changed"].values():
                if it["entry"] == "work" and it.get("detail"):
                    say(it["work"], it["state"], it["detail"])
            self.shares, self.cursor = shares, changes["cursor"]

    # --- its processes

    def reconcile(self):
        """Keeps a process in each allocation that stays, and none in the others. Can be repeated."""
        with self.lock:
            self.notice_ends()
            if self.cursor is None:
                return  # Its allocations are not known yet.
            for share, it in self.shares.items():
                stays = "vacate" not in it and "exit" not in it and not self.ending
                if it["work"] != "job":
                    continue
                if stays and share not in self.running and share not in self.over:
                    self.start(share, it)
                elif not stays and share in self.running:
                    self.end(share)
            for share in self.running.keys() - self.shares.keys():
                self.end(share)
            for share in self.over.keys() - self.shares.keys():
                del self.over[share]  # Reported and acknowledged.

    def start(self, share, it):
        path = self.folder / share
        path.write_text("")
        script = f'echo $$ > "{path}"; exec sleep 1000'
        child = subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.DEVNULL, start_new_session=True
        )
        say("share", share, "on", it["node"], "process", child.pid)
        self.children[child.pid] = child
        self.running[share] = child.pid

    def end(self, share):
        try:
            os.kill(self.running[share], signal.SIGTERM)
        except OSError:
            pass  # The process has ended.

    def notice_ends(self):
        for share, pid in list(self.running.items()):
            child = self.children.get(pid)
            gone = child.poll() is not None if child else not alive(pid)
            if gone:
                say("share", share, "is given back")
                self.children.pop(pid, None)
                del self.running[share]
                (self.folder / share).unlink(missing_ok=True)
                self.over[share] = "stopped"

    def save(self):
        known = {
            "lineage": self.lineage,
            "sequence": self.sequence,
            "running": self.running,
            "machines": [it["node"] for it in self.shares.values() if it["work"] == "machine"],
        }
        fresh = self.state / "orchestrator.json.new"
        fresh.write_text(json.dumps(known))
        fresh.replace(self.state / "orchestrator.json")

    # --- its lifecycle

    def quit(self, why, leave=False):
        """Ends its processes, unless another program has taken over."""
        say(why)
        with self.lock:
            for share in () if leave else self.running:
                self.end(share)
            os._exit(1)

    def follow_allocations(self):
        while True:
            try:
                self.follow()
            except Refused as refused:
                if refused.status == 404:
                    self.quit("this orchestrator was removed")
                time.sleep(0.2)
            except Unavailable:
                time.sleep(0.2)

    def run(self):
        threading.Thread(target=self.follow_allocations, daemon=True).start()
        while True:
            self.ending = (self.state / "stop").exists()
            self.reconcile()
            try:
                told = self.put()
                if told and told["job"]["state"] == "completed":
                    say("all its work is over")
                    return
            except Refused as refused:
                if refused.status < 500:
                    say("refused:", refused)
            except Unavailable:
                pass
            time.sleep(self.options.rhythm)


def alive(pid):
    """A zombie has ended: its parent has not read the end yet."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return stat.rsplit(") ", 1)[-1][0] != "Z"
    except OSError:
        return False


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--url", required=True, help="address of job-converter")
    parser.add_argument("--name", required=True, help="name of the orchestrator")
    parser.add_argument("--token-file", required=True, help="file with its token")
    parser.add_argument("--state", required=True, help="directory for its state")
    parser.add_argument("--owner", default="ada", help="the user who is charged")
    parser.add_argument("--processes", type=int, default=4, help="processes of its job at most")
    parser.add_argument("--memory-mib", type=int, default=1024, help="memory of one process")
    parser.add_argument("--reserve", action="store_true", help="also reserve a node")
    parser.add_argument("--rhythm", type=float, default=0.5, help="seconds between two maps")
    Orchestrator(parser.parse_args()).run()


if __name__ == "__main__":
    main()
