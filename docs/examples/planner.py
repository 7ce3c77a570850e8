#!/usr/bin/env python3
"""An external planner: places the work of one pool, first fit, users in turn. Standard library only.

  planner.py --port 9000

It answers POST with JSON (`hayward-planner/1`, see docs/external-planners.md). Each user in turn gets
one process on the first node with space, until nothing fits. Work that still waits gets a note. With
--take-back a user who has twice as much as a waiting user loses the newest process.

--bad shows what Hayward does with a faulty planner:

  overcommit   grants everything that is missing to the first node, and a thousand more
  unknown      grants work and nodes that do not exist
  foreign      vacates everything
  stale        answers the previous question
  garbage      answers something other than JSON
  huge         answers five megabytes
  slow         answers after a minute
  error        answers 500
  redirect     answers with a redirect
"""

import argparse
import http.server
import json
import sys
import time

BAD = "overcommit unknown foreign stale garbage huge slow error redirect".split()


def amounts(size):
    """A size as a map of numbers."""
    plain = {name: it for name, it in size.items() if name != "extras"}
    return {**plain, **size.get("extras", {})}


def fits(question, node, work):
    if not node["schedulable"] or node["free_quanta"] < work["quanta"]:
        return False
    if work.get("machines") and node["node"] not in work["machines"]:
        return False
    if node["node"] in work.get("avoids", []):
        return False
    # Fair-share work may use pools below the pool of its class; other work may not.
    home, pool = question["classes"][work["class"]], node["pool"]
    fair = home["policy"] == "FAIR_SHARE"
    while fair and pool and pool != home["pool"]:
        pool = question["pools"][pool]
    if pool != home["pool"] or home["policy"] == "RESERVE":
        return False
    free = amounts(node["free"])
    return all(free.get(name, 0) >= it for name, it in amounts(work["size"]).items())


def place(node, work):
    node["free_quanta"] -= work["quanta"]
    for name, amount in amounts(work["size"]).items():
        if amount:
            kept = node["free"] if name in node["free"] else node["free"]["extras"]
            kept[name] -= amount


def plan(question, take_back):
    grants, placed = [], {}
    # The user with the least comes first, then the oldest work.
    has = {work["user"]: 0 for work in question["work"]}
    for held in question["allocations"]:
        if held["user"] in has and not held["leaving"]:
            has[held["user"]] += held["quanta"]
    waiting = [work for work in question["work"] if work["missing"] > 0]
    aside = []
    while waiting:
        work = min(waiting, key=lambda it: (has[it["user"]], it["submitted_at"], it["work"]))
        node = next((node for node in question["nodes"] if fits(question, node, work)), None)
        if node is None:
            waiting.remove(work)
            aside.append(work)
            continue
        place(node, work)
        key = work["work"], node["node"]
        placed[key] = placed.get(key, 0) + 1
        has[work["user"]] += work["quanta"]
        work["missing"] -= 1
        if work["missing"] == 0:
            waiting.remove(work)
    for (work, node), processes in placed.items():
        grants.append({"work": work, "node": node, "processes": processes})
    vacates = []
    for work in aside if take_back else []:
        rich = [it for it in question["allocations"] if it["preemptable"] and not it["leaving"]
                and it["user"] in has and has[it["user"]] > 2 * (has[work["user"]] + 1)]
        if rich and not vacates:
            newest = max(rich, key=lambda it: (it["granted_at"], it["allocation"]))
            detail = f"user {work['user']} has less than half as much"
            vacates.append({"allocation": newest["allocation"], "detail": detail})
    notes = [{"work": it["work"], "detail": f"no node has room for {it['quanta']} quanta"}
             for it in aside]
    return {"revision": question["revision"], "grants": grants, "vacates": vacates, "notes": notes}


def misbehaving(question, bad):
    answer = {"revision": question["revision"]}
    if bad == "overcommit":
        first = question["nodes"][0]["node"] if question["nodes"] else "none"
        answer["grants"] = [{"work": it["work"], "node": first, "processes": it["missing"] + 1000}
                            for it in question["work"]]
    elif bad == "unknown":
        answer["grants"] = [{"work": it["work"], "node": "atlantis"} for it in question["work"]]
        answer["grants"].append({"work": "job_of_nobody", "node": "atlantis"})
    elif bad == "foreign":
        answer["vacates"] = [{"allocation": it["allocation"], "detail": "away with it"}
                             for it in question["allocations"]]
        answer["vacates"].append({"allocation": "alc_of_nobody"})
    elif bad == "stale":
        answer["revision"] -= 1
    return answer


class Planner(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options = None

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        bad = self.options.bad
        body = json.dumps(misbehaving(question, bad) if bad else plan(question, self.options.take_back)).encode()
        if bad == "slow":
            time.sleep(60)
        elif bad == "garbage":
            body = b"<html>planned!</html>"
        elif bad == "huge":
            body = b" " * (5 << 20)
        status = {"error": 500, "redirect": 307}.get(bad, 200)
        try:
            self.send(status, body, bad)
        except OSError:
            self.close_connection = True  # The client has closed the connection.

    def send(self, status, body, bad):
        self.send_response(status)
        if bad == "redirect":
            self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said):
        if not self.options.quiet:
            sys.stderr.write("%s\n" % (said[0] % said[1:]))


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--port", type=int, default=9000, help="0: any free port")
    parser.add_argument("--take-back", action="store_true", help="preempt users who have much more")
    parser.add_argument("--bad", choices=BAD, help="misbehave in this way")
    parser.add_argument("--quiet", action="store_true")
    Planner.options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", Planner.options.port), Planner)
    server.daemon_threads = True
    print(f"plans at http://127.0.0.1:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
