"""The tour of the API (docs/api-tour.md) with generated clients: no request is written by hand.

`tests/generated-clients.sh` makes the clients, starts a fleet and runs this program. Every answer
must have the type that the description names; any other answer ends the tour with an error.
"""

import argparse
import importlib
import pathlib
import uuid


class Service:
    """The generated client of one service."""

    def __init__(self, name, url, token):
        self.package = f"hayward_{name.replace('-', '_')}_client"
        module = importlib.import_module(self.package)
        self.client = module.AuthenticatedClient(
            base_url=url, token=token, raise_on_unexpected_status=True, timeout=40
        )
        self.models = importlib.import_module(f"{self.package}.models")

    def ask(self, tag, operation, *args, status=200, **kwargs):
        module = importlib.import_module(f"{self.package}.api.{tag}.{operation}")
        answer = module.sync_detailed(*args, client=self.client, **kwargs)
        assert answer.status_code == status, f"{operation}: {answer.status_code} {answer.content!r}"
        print(f"{operation}: {status}")
        return answer.parsed


def token(path):
    return pathlib.Path(path).read_text().strip()


def key():
    return uuid.uuid4().hex


def a_job(jobs, nodes):
    """Submits four tasks, waits for them, reads their output."""
    models = jobs.models
    order = models.JobSubmission(
        command=["echo", "task {task}"], tasks=models.TasksType0(count=4), name="tour"
    )
    dry = jobs.ask("jobs", "submit_job", body=order, idempotency_key=key(), dry_run=True)
    assert dry.tasks.total == 4
    once = key()
    made = jobs.ask("jobs", "submit_job", body=order, idempotency_key=once, status=201)
    again = jobs.ask("jobs", "submit_job", body=order, idempotency_key=once, status=201)
    assert made.id == again.id
    until = models.ShowJobUntil.FINAL
    done = jobs.ask("jobs", "show_job", made.id, wait=20, until=until, min_revision=made.revision)
    assert str(done.state) == "completed" and done.tasks.succeeded == 4, done
    tasks = jobs.ask("tasks", "list_tasks", made.id, limit=2)
    assert [task.task for task in tasks.tasks] == [0, 1]
    assert [task.output.strip() for task in tasks.tasks] == ["task 0", "task 1"]
    rest = jobs.ask("tasks", "list_tasks", made.id, cursor=tasks.next_cursor)
    assert [task.task for task in rest.tasks] == [2, 3]
    events = jobs.ask("jobs", "show_job_timeline", made.id)
    assert events.events
    page = jobs.ask("jobs", "list_jobs", limit=10, state=models.ListJobsState.COMPLETED)
    assert made.id in [job.id for job in page.items]
    assert {task.node for task in tasks.tasks} <= nodes


def a_job_that_waits(jobs):
    """Submits a job that is larger than any node, reads why it waits, and cancels it."""
    models = jobs.models
    size = models.Size(memory_bytes=64 << 30)
    order = models.JobSubmission(command=["true"], size=size)
    made = jobs.ask("jobs", "submit_job", body=order, idempotency_key=key(), status=201)
    why = jobs.ask("jobs", "explain_job", made.id)
    assert why.reason, why
    jobs.ask("jobs", "cancel_job", made.id)
    order = models.JobSubmission(command=[""], tasks=models.TasksType0(count=0))
    problem = jobs.ask("jobs", "submit_job", body=order, idempotency_key=key(), status=422)
    assert [fault.pointer for fault in problem.errors] == ["/command", "/tasks/count"], problem
    missing = jobs.ask("jobs", "show_job", "job_" + "0" * 32, status=404)
    assert str(missing.code) == "not_found" and missing.request_id


def a_service(jobs, containers):
    """Runs a service, finds its container, reads its output, ends it."""
    models = jobs.models
    order = models.ServiceSubmission(command=["sh", "-c", "echo up; sleep 1000"], name="echo")
    made = jobs.ask("services", "submit_service", body=order, idempotency_key=key(), status=201)
    until = models.ShowServiceUntil.RUNNING
    up = jobs.ask("services", "show_service", made.id, wait=20, until=until)
    assert str(up.state) == "running", up
    state = containers.models.ListContainersState.RUNNING
    running = containers.ask("containers", "list_containers", state=state)
    mine = [one.id for one in running.containers if one.work.startswith(made.id)]
    assert mine, running
    containers.ask("containers", "show_container", mine[0])
    logs = containers.ask("containers", "read_logs", mine[0], offset=0, wait=5)
    assert logs is not None
    processors = containers.ask("placements", "list_processors", made.id)
    assert processors.processors
    jobs.ask("services", "cancel_service", made.id, status=202)


def the_machines(nodes, blocks, names):
    """Varies a node off and on, blocks it, reads the block, unblocks it."""
    models = nodes.models
    for wanted in (False, True):
        change = models.Schedulable(schedulable=wanted)
        nodes.ask("nodes", "vary_node", "node-2", body=change, if_match="*")
    order = models.DrainRequest(reason="new disk")
    nodes.ask("nodes", "drain_node", "node-2", body=order, if_match="*")
    assert nodes.ask("nodes", "show_drain", "node-2").node == "node-2"
    nodes.ask("nodes", "cancel_drain", "node-2", if_match="*")
    models = blocks.models
    order = models.BlockOrder(
        action=models.BlockAction.MARK_BLOCKLISTED, cause="the fan is loud", duration_ms=60_000
    )
    blocks.ask("blocks", "block_node", "node-1", body=order, status=201)
    blocks.ask("blocks", "show_node_block", "node-1")
    assert blocks.ask("blocks", "list_blocks").items
    assert blocks.ask("blocks", "list_block_changes").changes
    blocks.ask("blocks", "unblock_node", "node-1", reason="it was replaced", status=204)
    assert names == {"node-1", "node-2"}


def the_shares(scheduler):
    """Reads the policy, shares, allocations and a what-if."""
    policy = scheduler.ask("policy", "show_policy")
    assert policy.generation >= 0
    scheduler.ask("policy", "list_policies")
    for tag, operation in [
        ("shares", "show_shares"),
        ("shares", "show_load"),
        ("shares", "list_occupancy"),
        ("rounds", "list_rounds"),
        ("allocations", "list_allocations"),
        ("queues", "list_queues"),
        ("pools", "list_pools"),
        ("planners", "list_planners"),
    ]:
        assert scheduler.ask(tag, operation) is not None
    forecast = scheduler.models.WhatIf(drain=["node-2"])
    scheduler.ask("what_if", "forecast_changes", body=forecast)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--operator", required=True)
    arguments.add_argument("--user", required=True)
    arguments.add_argument("services", nargs=5)
    given = arguments.parse_args()
    operator, user = token(given.operator), token(given.user)
    urls = dict(one.split("=", 1) for one in given.services)

    def service(name, bearer):
        return Service(name, urls[name], bearer)

    nodes = service("node-status", operator)
    names = {node.node for node in nodes.ask("nodes", "list_nodes").nodes}
    a_job(service("job-converter", user), names)
    a_job_that_waits(service("job-converter", user))
    a_service(service("job-converter", user), service("container-manager", user))
    the_machines(nodes, service("blocklist", operator), names)
    the_shares(service("rm-scheduler", operator))
    for name in urls:
        status = service(name, operator).ask("health", "show_status")
        assert status.version
        service(name, operator).ask("health", "list_invariants")
    print("every stop of the tour was made")


if __name__ == "__main__":
    main()
