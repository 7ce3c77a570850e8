"""What schemathesis cannot know of an API from its description, for all routes alike.

There is no route in here. Two of its checks are told what our words mean, and one is ours.
"""

import json

import schemathesis
from schemathesis import checks
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi import checks as _registers_them  # noqa: F401


def replaced(name):
    """Its own check of this name, which ours asks first."""
    theirs = checks.CHECKS.get_one(name)
    checks.CHECKS.unregister(name)
    return theirs


find_reads_after_an_end = replaced("use_after_free")
find_what_is_missing = replaced("ensure_resource_availability")

# A place where something waits or runs, of what was ended before.
ALIVE = {"waiting", "running"}


def only_tried(case):
    """A10: a dry run makes nothing and ends nothing."""
    asked = (case.query or {}).get("dry_run")
    return asked is True or str(asked).lower() == "true"


def fields(response):
    try:
        body = json.loads(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def described(case, status):
    """What the route itself says of this answer; nothing where it names the one of all routes."""
    answers = case.operation.definition.raw.get("responses", {})
    answer = answers.get(str(status), {})
    return {} if "$ref" in answer else answer


@schemathesis.check
def use_after_free(ctx, response, case):
    """What is gone is not there any more. 204 says that it is gone (RFC 9110); an answer with the
    object says that it ends or has ended, and stays to be read with how it ended (W13): then it
    must not be alive any more."""
    try:
        return find_reads_after_an_end(ctx, response, case)
    except Failure as failure:
        ended = failure.deleted_case_id
        if only_tried(next(it for it in ctx.internals.find_all_cases() if it.id == ended)):
            return None
        answer = ctx.internals.find_response(case_id=ended)
        if answer.status_code == 204 or fields(response).get("state") in ALIVE:
            raise
        return None


@schemathesis.check
def ensure_resource_availability(ctx, response, case):
    """What was made is there, unless it was only tried."""
    parent = ctx.internals.find_parent(case_id=case.id)
    if parent is not None and only_tried(parent):
        return None
    return find_what_is_missing(ctx, response, case)


@schemathesis.check
def refusals_are_described(ctx, response, case):
    """A request that keeps to the description is refused with 422 only by a route that says in its
    own words why that may be. Two reasons are those of many routes: a key that came with another
    request before (A4), and a cursor that no page gave (A6)."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return None
    if response.status_code != 422 or described(case, 422):
        return None
    problem = fields(response)
    if problem.get("code") == "idempotency_mismatch":
        return None
    places = {fault["pointer"] for fault in problem.get("errors", [])}
    if places == {"/query/cursor"}:
        return None
    raise AssertionError(
        f"what the description allows was refused, and it does not say why: {problem}"
    )
