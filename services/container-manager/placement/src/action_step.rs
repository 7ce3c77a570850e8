//! The next step of a placement action, derived from the current state of its containers.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::TimeLimits;
use crate::container_access::{Environment, LiveContainer, LiveState, conflicting_partner};
use crate::destination::ANY_HOST;
use crate::placement::Placement;
use crate::status::{Phase, Reason, Status};

/// Takes the next step of an action.
pub fn step(
    mut placement: Placement,
    limits: &TimeLimits,
    env: &mut impl Environment,
) -> Placement {
    let processor = env
        .processor(&placement.processor_id)
        .filter(|(it, _)| it.deployment == placement.deployment_id);
    if processor.is_none() {
        let id = &placement.processor_id;
        let message = format!(
            "process {id} is no longer part of the service: it was scaled down, redeployed or \
             ended"
        );
        fail(&mut placement, Reason::JobEnded, message, env);
        return placement;
    }
    update_grant(&mut placement, env);
    match placement.phase {
        Some(Phase::Running) | None => wait_for_grant(&mut placement, limits, env),
        Some(Phase::StopInProgress) => wait_for_stop(&mut placement, limits, env),
        Some(Phase::StopFailed) => {
            let reason = live_predecessor(&placement, env).and_then(|it| it.reason);
            let detail = reason.map(|reason| format!(" ({reason})"));
            let detail = detail.unwrap_or_default();
            let message = format!("the process did not end in time and was left running{detail}");
            fail(&mut placement, Reason::StopFailed, message, env);
        }
        Some(Phase::Stopped) => start_successor(&mut placement, limits, env),
    }
    placement
}

/// Records the granted container. Requests another allocation if it is lost before the launch.
fn update_grant(placement: &mut Placement, env: &impl Environment) {
    let granted = granted_container(placement, env).map(|it| it.allocation);
    match (&placement.progress.reserved, granted) {
        (None, Some(allocation)) => placement.progress.reserved = Some(allocation),
        (Some(lost), None) if !is_launched(placement) && !env.has_run(lost) => {
            placement.progress.request_count += 1;
            placement.progress.requested_at = env.now();
            placement.progress.reserved = None;
            placement.response_message =
                "the reserved allocation was lost; another one is requested".into();
            placement.updated_at = env.now();
        }
        _ => {}
    }
}

/// Returns whether the successor was ordered to start. `final_host` is set together with this
/// order.
fn is_launched(placement: &Placement) -> bool {
    placement.final_host.is_some()
}

/// Returns the container granted for the current request.
fn granted_container(placement: &Placement, env: &impl Environment) -> Option<LiveContainer> {
    env.find_granted(&placement.processor_id, &placement.request_id())
}

/// Returns the container that the action replaces, unless it has ended.
pub fn live_predecessor(placement: &Placement, env: &impl Environment) -> Option<LiveContainer> {
    let id = placement.progress.predecessor.as_ref()?;
    let mut live = env.live_containers(&placement.processor_id).into_iter();
    live.find(|it| it.allocation == *id)
}

/// Waits for a grant. The action has changed nothing yet, so it may still fail without effect.
fn wait_for_grant(placement: &mut Placement, limits: &TimeLimits, env: &mut impl Environment) {
    let now = env.now();
    let Some(current) = live_predecessor(placement, env) else {
        let message = "the process ended by itself; it will start in the requested allocation";
        placement.set_phase(Phase::Stopped, message.to_owned(), now);
        return;
    };
    if let Some((host, reason)) = closed_destination(placement, env) {
        let message = format!("{host} no longer accepts new processes: {reason}");
        fail(placement, Reason::DestinationBlocked, message, env);
        return;
    }
    let Some(successor) = granted_container(placement, env) else {
        fail_if_expired(placement, limits, env);
        return;
    };
    // The launch checks run before a healthy process is stopped.
    if let Some(reason) = unfit_reason(placement, &successor, env) {
        if placement.progress.host.is_some() {
            let message = format!("{reason}; nothing was changed");
            fail(placement, Reason::ConstraintAtLaunch, message, env);
        } else {
            request_another_host(placement, &successor, &reason, env);
        }
        return;
    }
    env.stop(&current.allocation);
    placement.progress.stop_ordered_at = Some(now);
    let message = format!(
        "an allocation is reserved on {}; the process was ordered to stop",
        successor.host
    );
    placement.set_phase(Phase::StopInProgress, message, now);
}

/// Returns the requested host and the reason why it accepts no new process. `None` if it accepts
/// one.
fn closed_destination(placement: &Placement, env: &impl Environment) -> Option<(NodeName, String)> {
    let host = placement.progress.host.as_ref()?;
    let reason = env.closed_reason(host, &placement.processor_id)?;
    Some((host.clone(), reason))
}

/// Returns why the granted container cannot be used. `None` if it can.
fn unfit_reason(
    placement: &Placement,
    successor: &LiveContainer,
    env: &impl Environment,
) -> Option<String> {
    let (work, host) = (&placement.processor_id, &successor.host);
    let shared_host =
        conflicting_partner(env, work, host).map(|other| format!("{other} is on {host}"));
    shared_host.or_else(|| {
        let is_before_stop = placement.phase == Some(Phase::Running);
        let reason = env.closed_reason(host, work).filter(|_| is_before_stop)?;
        Some(format!("{host} accepts no new processes: {reason}"))
    })
}

/// Releases an unusable container and requests an allocation on another host.
fn request_another_host(
    placement: &mut Placement,
    successor: &LiveContainer,
    reason: &str,
    env: &mut impl Environment,
) {
    env.release(&successor.allocation);
    placement.progress.exclude.push(successor.host.clone());
    // The expiry is not extended, because the grant was unusable and not lost.
    placement.progress.request_count += 1;
    placement.progress.reserved = None;
    placement.response_message = format!("{reason}; another allocation is requested");
    placement.updated_at = env.now();
}

fn fail_if_expired(placement: &mut Placement, limits: &TimeLimits, env: &mut impl Environment) {
    if env.now() > expires_at(placement, limits) {
        let waited_ms = placement
            .request_expiry_ms
            .unwrap_or(limits.request_timeout_ms);
        let host = placement.resolved_host.as_deref().unwrap_or(ANY_HOST);
        let detail = env
            .wait_reason(&placement.request_id())
            .map(|reason| format!(": {reason}"));
        let detail = detail.unwrap_or_default();
        let message = format!("no allocation on {host} within {waited_ms} ms{detail}");
        fail(placement, Reason::RequestExpired, message, env);
    }
}

fn expires_at(placement: &Placement, limits: &TimeLimits) -> Timestamp {
    let limit = placement
        .request_expiry_ms
        .unwrap_or(limits.request_timeout_ms);
    placement.progress.requested_at.plus_ms(limit)
}

fn wait_for_stop(placement: &mut Placement, limits: &TimeLimits, env: &mut impl Environment) {
    let now = env.now();
    if live_predecessor(placement, env).is_none() {
        let message = "the process has ended; its successor will start".to_owned();
        placement.set_phase(Phase::Stopped, message, now);
    } else if stop_deadline(placement, limits).is_some_and(|limit| now > limit) {
        placement.set_phase(Phase::StopFailed, "the process did not end".to_owned(), now);
    }
}

/// Returns the time by which the predecessor must have ended. `None` if no stop was ordered.
pub fn stop_deadline(placement: &Placement, limits: &TimeLimits) -> Option<Timestamp> {
    placement
        .progress
        .stop_ordered_at
        .map(|ordered_at| ordered_at.plus_ms(limits.stop_timeout_ms))
}

/// Starts the successor after the predecessor has ended.
fn start_successor(placement: &mut Placement, limits: &TimeLimits, env: &mut impl Environment) {
    let now = env.now();
    let successor = granted_container(placement, env);
    let has_started = placement
        .progress
        .reserved
        .as_ref()
        .is_some_and(|id| env.has_run(id));
    if has_started {
        placement.phase = Some(Phase::Running);
        let host = placement.final_host.as_ref().map_or("", NodeName::as_str);
        let message = format!("running on {host}");
        placement.finish(Status::Succeeded, None, message, now);
        return;
    }
    if !is_launched(placement)
        && let Some(other) = other_container(placement, env)
    {
        let message = format!(
            "another container of the process was started on {}",
            other.host
        );
        fail(placement, Reason::ConstraintAtLaunch, message, env);
        return;
    }
    let Some(successor) = successor else {
        if is_launched(placement) {
            let host = placement.final_host.take();
            let host = host.as_ref().map_or("the new host", NodeName::as_str);
            let message = format!("the process could not be started on {host}");
            fail(placement, Reason::LaunchFailed, message, env);
        } else {
            fail_if_expired(placement, limits, env);
        }
        return;
    };
    if successor.state != LiveState::Held {
        placement.final_host.get_or_insert(successor.host);
        return;
    }
    if let Some(reason) = unfit_reason(placement, &successor, env) {
        fail(placement, Reason::ConstraintAtLaunch, reason, env);
        return;
    }
    env.launch(&successor.allocation);
    placement.response_message = format!("starting on {}", successor.host);
    placement.final_host = Some(successor.host);
    placement.updated_at = now;
}

/// Returns a container of the processor that is not held and was not started by this action.
fn other_container(placement: &Placement, env: &impl Environment) -> Option<LiveContainer> {
    let own_allocation = granted_container(placement, env).map(|it| it.allocation);
    let mut live = env.live_containers(&placement.processor_id).into_iter();
    live.find(|it| it.state != LiveState::Held && Some(&it.allocation) != own_allocation.as_ref())
}

/// Fails an action and releases its reserved container. A processor that is down is restarted by
/// its permanent demand once the request is withdrawn (P1).
pub fn fail(
    placement: &mut Placement,
    reason: Reason,
    message: String,
    env: &mut impl Environment,
) {
    if let Some(successor) = granted_container(placement, env)
        && successor.state == LiveState::Held
    {
        env.release(&successor.allocation);
    }
    let predecessor_ended =
        placement.progress.predecessor.is_some() && live_predecessor(placement, env).is_none();
    let is_down = predecessor_ended && other_container(placement, env).is_none();
    if is_down && reason != Reason::JobEnded {
        let has_affinity = env
            .processor(&placement.processor_id)
            .is_some_and(|(it, _)| it.host_affinity);
        let source = placement.source_host.clone().filter(|_| has_affinity);
        let usable_source =
            source.filter(|host| env.closed_reason(host, &placement.processor_id).is_none());
        placement.recovery_host =
            Some(usable_source.map_or(ANY_HOST.to_owned(), |host| host.to_string()));
    }
    placement.final_host = None;
    placement.finish(Status::Failed, Some(reason), message, env.now());
}

/// Returns the next time at which the action can step without a change of its environment. This is
/// 1 ms after the deadline, because a deadline must be exceeded.
pub fn deadline(placement: &Placement, limits: &TimeLimits) -> Option<Timestamp> {
    if placement.is_parent() {
        return None;
    }
    let deadline = match placement.phase {
        Some(Phase::StopInProgress) => stop_deadline(placement, limits)?,
        Some(Phase::StopFailed) => return Some(placement.updated_at),
        _ if placement.progress.reserved.is_some() => return None,
        _ => expires_at(placement, limits),
    };
    Some(deadline.plus_ms(1))
}
