"""Checks that a description cannot express, for all routes alike.

No route is named here. Two checks replace those of schemathesis, and one is new.
"""

import json

import schemathesis
from schemathesis import checks
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi import checks as _registers_them  # noqa: F401


def replaced(name):
    """Returns the check of schemathesis with this name and removes it; ours calls it first."""
    original = checks.CHECKS.get_one(name)
    checks.CHECKS.unregister(name)
    return original


find_reads_after_an_end = replaced("use_after_free")
find_missing_object = replaced("ensure_resource_availability")

# States of objects that have not ended.
ALIVE = {"waiting", "running"}


def is_dry_run(case):
    """A dry run makes nothing and ends nothing (A10)."""
    asked = (case.query or {}).get("dry_run")
    return asked is True or str(asked).lower() == "true"


def fields(response):
    try:
        body = json.loads(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def described(case, status):
    """The route's own description of this answer; empty when it refers to the common one."""
    answers = case.operation.definition.raw.get("responses", {})
    answer = answers.get(str(status), {})
    return {} if "$ref" in answer else answer


@schemathesis.check
def use_after_free(ctx, response, case):
    """A deleted object cannot be read. 204 says that it is gone (RFC 9110). An answer with the object
    says that it ends: it stays readable and must not be alive any more (W13)."""
    try:
        return find_reads_after_an_end(ctx, response, case)
    except Failure as failure:
        ended = failure.deleted_case_id
        if is_dry_run(next(it for it in ctx.internals.find_all_cases() if it.id == ended)):
            return None
        answer = ctx.internals.find_response(case_id=ended)
        if answer.status_code == 204 or fields(response).get("state") in ALIVE:
            raise
        return None


@schemathesis.check
def ensure_resource_availability(ctx, response, case):
    """A created object can be read, unless it was a dry run."""
    parent = ctx.internals.find_parent(case_id=case.id)
    if parent is not None and is_dry_run(parent):
        return None
    return find_missing_object(ctx, response, case)


@schemathesis.check
def refusals_are_described(ctx, response, case):
    """Only a route that describes the reason refuses a valid request with 422. Two reasons hold for
    many routes: the key of another request, and a cursor that no page returned (A4)."""
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
        f"a valid request was refused without a described reason: {problem}"
    )
