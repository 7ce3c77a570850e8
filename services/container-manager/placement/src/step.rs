//! The next step of an action, derived from the current state.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::environment::{Environment, LiveContainer, LiveState, conflict};
use crate::model::Rules;
use crate::placement::Placement;
use crate::status::{ANY_HOST, Phase, Reason, Status};

pub fn step(mut p: Placement, rules: &Rules, env: &mut impl Environment) -> Placement {
    let live = env
        .processor(&p.processor_id)
        .filter(|(it, _)| it.deployment == p.deployment_id);
    if live.is_none() {
        let id = &p.processor_id;
        let message = format!(
            "process {id} is no longer part of the service: it was scaled down, redeployed or \
             ended"
        );
        fail(&mut p, Reason::JobEnded, message, env);
        return p;
    }
    follow_grant(&mut p, env);
    match p.phase {
        Some(Phase::Running) | None => wait_for_grant(&mut p, rules, env),
        Some(Phase::StopInProgress) => wait_for_stop(&mut p, rules, env),
        Some(Phase::StopFailed) => {
            let why = predecessor(&p, env).and_then(|it| it.reason);
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let message = format!("the process did not end in time and was left running{why}");
            fail(&mut p, Reason::StopFailed, message, env);
        }
        Some(Phase::Stopped) => start_successor(&mut p, rules, env),
    }
    p
}

/// Records the grant. If it is lost before the launch, requests another.
fn follow_grant(p: &mut Placement, env: &impl Environment) {
    let granted = grant(p, env).map(|it| it.allocation);
    match (&p.progress.reserved, granted) {
        (None, Some(allocation)) => p.progress.reserved = Some(allocation),
        (Some(lost), None) if !launched(p) && !env.has_run(lost) => {
            p.progress.requests += 1;
            p.progress.asked_at = env.now();
            p.progress.reserved = None;
            p.response_message = "the reserved place was lost; another is requested".into();
            p.updated_at = env.now();
        }
        _ => {}
    }
}

/// Whether the successor was ordered to start.
fn launched(p: &Placement) -> bool {
    p.final_host.is_some()
}

fn grant(p: &Placement, env: &impl Environment) -> Option<LiveContainer> {
    env.granted(&p.processor_id, &p.request_id())
}

pub fn predecessor(p: &Placement, env: &impl Environment) -> Option<LiveContainer> {
    let id = p.progress.predecessor.as_ref()?;
    let mut live = env.live_containers(&p.processor_id).into_iter();
    live.find(|it| it.allocation == *id)
}

/// Waits for a grant; nothing was changed yet.
fn wait_for_grant(p: &mut Placement, rules: &Rules, env: &mut impl Environment) {
    let now = env.now();
    let Some(old) = predecessor(p, env) else {
        let message = "the process ended by itself; it will start in the requested place";
        p.set_phase(Phase::Stopped, message.to_owned(), now);
        return;
    };
    if let Some((host, why)) = closed_target(p, env) {
        let message = format!("{host} no longer accepts new processes: {why}");
        fail(p, Reason::DestinationBlocked, message, env);
        return;
    }
    let Some(place) = grant(p, env) else {
        fail_if_expired(p, rules, env);
        return;
    };
    // The launch checks run before a healthy process is stopped.
    if let Some(why) = unfit_reason(p, &place, env) {
        if p.progress.host.is_some() {
            let message = format!("{why}; nothing was changed");
            fail(p, Reason::ConstraintAtLaunch, message, env);
        } else {
            request_another_host(p, &place, &why, env);
        }
        return;
    }
    env.stop(&old.allocation);
    p.progress.stop_at = Some(now);
    let message = format!(
        "a place is reserved on {}; the process was ordered to stop",
        place.host
    );
    p.set_phase(Phase::StopInProgress, message, now);
}

fn closed_target(p: &Placement, env: &impl Environment) -> Option<(NodeName, String)> {
    let host = p.progress.host.as_ref()?;
    let why = env.closed_reason(host, &p.processor_id)?;
    Some((host.clone(), why))
}

/// Why the granted place cannot be used.
fn unfit_reason(p: &Placement, place: &LiveContainer, env: &impl Environment) -> Option<String> {
    let (work, host) = (&p.processor_id, &place.host);
    let shared = conflict(env, work, host).map(|other| format!("{other} is on {host}"));
    shared.or_else(|| {
        let untouched = p.phase == Some(Phase::Running);
        let why = env.closed_reason(host, work).filter(|_| untouched)?;
        Some(format!("{host} accepts no new processes: {why}"))
    })
}

fn request_another_host(
    p: &mut Placement,
    place: &LiveContainer,
    why: &str,
    env: &mut impl Environment,
) {
    env.release(&place.allocation);
    p.progress.exclude.push(place.host.clone());
    // The expiry keeps running: the grant was unusable, not lost.
    p.progress.requests += 1;
    p.progress.reserved = None;
    p.response_message = format!("{why}; another place is requested");
    p.updated_at = env.now();
}

fn fail_if_expired(p: &mut Placement, rules: &Rules, env: &mut impl Environment) {
    if env.now() > expiry(p, rules) {
        let waited = p.request_expiry_ms.unwrap_or(rules.request_timeout_ms);
        let wanted = p.resolved_host.as_deref().unwrap_or(ANY_HOST);
        let why = env
            .wait_reason(&p.request_id())
            .map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        let message = format!("no place on {wanted} within {waited} ms{why}");
        fail(p, Reason::RequestExpired, message, env);
    }
}

fn expiry(p: &Placement, rules: &Rules) -> Timestamp {
    let limit = p.request_expiry_ms.unwrap_or(rules.request_timeout_ms);
    p.progress.asked_at.plus_ms(limit)
}

fn wait_for_stop(p: &mut Placement, rules: &Rules, env: &mut impl Environment) {
    let now = env.now();
    if predecessor(p, env).is_none() {
        let message = "the process has ended; its successor will start".to_owned();
        p.set_phase(Phase::Stopped, message, now);
    } else if stop_deadline(p, rules).is_some_and(|limit| now > limit) {
        p.set_phase(Phase::StopFailed, "the process did not end".to_owned(), now);
    }
}

pub fn stop_deadline(p: &Placement, rules: &Rules) -> Option<Timestamp> {
    p.progress
        .stop_at
        .map(|at| at.plus_ms(rules.stop_timeout_ms))
}

/// Starts the successor in the reserved place; the predecessor has ended.
fn start_successor(p: &mut Placement, rules: &Rules, env: &mut impl Environment) {
    let now = env.now();
    let place = grant(p, env);
    let came_up = p
        .progress
        .reserved
        .as_ref()
        .is_some_and(|id| env.has_run(id));
    if came_up {
        p.phase = Some(Phase::Running);
        let host = p.final_host.as_ref().map_or("", NodeName::as_str);
        let message = format!("running on {host}");
        p.finish(Status::Succeeded, None, message, now);
        return;
    }
    if !launched(p)
        && let Some(other) = other_container(p, env)
    {
        let message = format!(
            "another container was started on {}; a second one is not started",
            other.host
        );
        fail(p, Reason::ConstraintAtLaunch, message, env);
        return;
    }
    let Some(place) = place else {
        if launched(p) {
            let host = p.final_host.take();
            let host = host.as_ref().map_or("the new host", NodeName::as_str);
            let message = format!("the process could not be started on {host}");
            fail(p, Reason::LaunchFailed, message, env);
        } else {
            fail_if_expired(p, rules, env);
        }
        return;
    };
    if place.state != LiveState::Held {
        p.final_host.get_or_insert(place.host);
        return;
    }
    if let Some(why) = unfit_reason(p, &place, env) {
        fail(p, Reason::ConstraintAtLaunch, why, env);
        return;
    }
    env.launch(&place.allocation);
    p.response_message = format!("starting on {}", place.host);
    p.final_host = Some(place.host);
    p.updated_at = now;
}

/// A container of the processor that is not held and was not started by this action.
fn other_container(p: &Placement, env: &impl Environment) -> Option<LiveContainer> {
    let own = grant(p, env).map(|it| it.allocation);
    let mut live = env.live_containers(&p.processor_id).into_iter();
    live.find(|it| it.state != LiveState::Held && Some(&it.allocation) != own.as_ref())
}

/// Fails an action and releases its reserved place. A processor that is down is restarted by its
/// permanent demand once the request is withdrawn (P1).
pub fn fail(p: &mut Placement, reason: Reason, message: String, env: &mut impl Environment) {
    if let Some(place) = grant(p, env)
        && place.state == LiveState::Held
    {
        env.release(&place.allocation);
    }
    let gone = p.progress.predecessor.is_some() && predecessor(p, env).is_none();
    let down = gone && other_container(p, env).is_none();
    if down && reason != Reason::JobEnded {
        let affine = env
            .processor(&p.processor_id)
            .is_some_and(|(it, _)| it.host_affinity);
        let source = p.source_host.clone().filter(|_| affine);
        let open = source.filter(|host| env.closed_reason(host, &p.processor_id).is_none());
        p.recovery_host = Some(open.map_or(ANY_HOST.to_owned(), |host| host.to_string()));
    }
    p.final_host = None;
    p.finish(Status::Failed, Some(reason), message, env.now());
}

/// The next time at which it can step without a new fact. 1 ms is added because a deadline must be
/// exceeded.
pub fn deadline(p: &Placement, rules: &Rules) -> Option<Timestamp> {
    if p.is_parent() {
        return None;
    }
    let at = match p.phase {
        Some(Phase::StopInProgress) => stop_deadline(p, rules)?,
        Some(Phase::StopFailed) => return Some(p.updated_at),
        _ if p.progress.reserved.is_some() => return None,
        _ => expiry(p, rules),
    };
    Some(at.plus_ms(1))
}
