//! Start of a queued placement request: checks whether the request may start and whether it is
//! valid, and takes the first step of its action.
//!
//! Partners are the processors that must not share a host: an active and its standbys.

use hayward_vocabulary::{NodeName, Processor, Role, WorkId};

use crate::container_access::{
    Environment, conflicting_partner, current_container, is_unlisted, is_up, last_known_host,
    partners,
};
use crate::destination::{ANY_HOST, Destination};
use crate::placement::{Placement, Progress};
use crate::placements::Placements;
use crate::status::{Phase, QueueReason, Reason, Status};
use crate::takeover;

/// Starts a queued request, refuses it, or leaves it queued.
pub fn try_start(
    placements: &mut Placements,
    mut placement: Placement,
    env: &mut impl Environment,
) -> Placement {
    let processor = match check_before_queueing(&placement, env) {
        Ok(processor) => processor,
        Err((reason, message)) => {
            placement.refuse(reason, message, env.now());
            return placement;
        }
    };
    let is_forced_restart = placement.destination_host == Destination::ForceRestartLastSeen;
    let parent = placement.parent_uuid.as_deref();
    let queue_reason =
        blocking_action(placements, &placement.processor_id, parent, env).map(|(reason, _)| reason);
    // A forced restart needs a running process and does not wait for one to start.
    let must_wait_for_start =
        || !is_forced_restart && !processor.failed && !is_up(env, &placement.processor_id);
    let queue_reason =
        queue_reason.or_else(|| must_wait_for_start().then_some(QueueReason::NotRunningYet));
    if let Some(reason) = queue_reason {
        if placement.queued_because != Some(reason) {
            placement.queued_because = Some(reason);
            queue_message(reason).clone_into(&mut placement.response_message);
            placement.updated_at = env.now();
        }
        return placement;
    }
    match validate(placements, &placement, &processor, env) {
        Err((reason, message)) => placement.refuse(reason, message, env.now()),
        Ok(()) if is_forced_restart => force_restart(&mut placement, env),
        Ok(()) if placement.destination_host == Destination::Standby => {
            return takeover::begin(placements, placement, env);
        }
        Ok(()) => accept(&mut placement, &processor, env),
    }
    placement
}

/// Returns the message that explains why a request is queued.
fn queue_message(reason: QueueReason) -> &'static str {
    match reason {
        QueueReason::SelfInFlight => "another action of this processor is in flight",
        QueueReason::ActiveInFlight => "an action of its active processor is in flight",
        QueueReason::StandbyInFlight => "an action of one of its standbys is in flight",
        QueueReason::NotRunningYet => "the processor is not running yet",
    }
}

/// Returns the uuid of the action in flight that a request of this processor waits for, and why.
/// `parent` is the parent action of the request, which does not block the request.
pub fn blocking_action(
    placements: &Placements,
    work: &WorkId,
    parent: Option<&str>,
    env: &impl Environment,
) -> Option<(QueueReason, String)> {
    let find_action = |processor: &WorkId| {
        let mut in_flight = placements.active().filter(|it| it.is_in_flight());
        let action =
            in_flight.find(|it| it.processor_id == *processor && Some(it.uuid.as_str()) != parent);
        action.map(|it| it.uuid.clone())
    };
    if let Some(uuid) = find_action(work) {
        return Some((QueueReason::SelfInFlight, uuid));
    }
    let (processor, _) = env.processor(work)?;
    match processor.role {
        Role::Standby { of, .. } => {
            find_action(&of).map(|uuid| (QueueReason::ActiveInFlight, uuid))
        }
        // Standbys of the same active do not block each other.
        Role::Active => partners(env, work)
            .iter()
            .find_map(|(standby, _)| find_action(standby))
            .map(|uuid| (QueueReason::StandbyInFlight, uuid)),
    }
}

/// Reason and message of a refusal.
type RefusalReason = (Reason, String);

/// Refuses a request that could never start, so that no request is queued forever.
fn check_before_queueing(
    placement: &Placement,
    env: &impl Environment,
) -> Result<Processor, RefusalReason> {
    let work = &placement.processor_id;
    if !env.is_live(&placement.deployment_id) {
        let detail = format!("deployment {} has ended", placement.deployment_id);
        return Err((Reason::StaleDeployment, detail));
    }
    if env.is_pool_worker(work) {
        let detail =
            format!("{work} is a worker of a worker pool; only the owner of the pool may move it");
        return Err((Reason::PoolManaged, detail));
    }
    let processor = env.processor(work).map(|(processor, _)| processor);
    let processor = processor
        .filter(|it| it.deployment == placement.deployment_id)
        .ok_or_else(|| {
            let detail = format!(
                "deployment {} has no processor {work}",
                placement.deployment_id
            );
            (Reason::UnknownProcessor, detail)
        })?;
    if let Destination::Host(host) = &placement.destination_host {
        check_listed(placement, host, env)?;
    }
    Ok(processor)
}

/// Checks that a request which may start is valid.
fn validate(
    placements: &Placements,
    placement: &Placement,
    processor: &Processor,
    env: &impl Environment,
) -> Result<(), RefusalReason> {
    let work = &placement.processor_id;
    let host = match &placement.destination_host {
        Destination::Host(host) => Some(host.clone()),
        Destination::LastSeen => last_known_host(work, env),
        _ => None,
    };
    if let Some(host) = host {
        let reserved_by = || reserved_by_partner(placements, work, &host, env);
        if let Some(other) = conflicting_partner(env, work, &host).or_else(reserved_by) {
            let detail =
                format!("{other} is or will be on {host}, and the two must not share a host");
            return Err((Reason::StandbyConstraint, detail));
        }
        check_listed(placement, &host, env)?;
        if let Some(reason) = env.closed_reason(&host, work) {
            let detail = format!("{host} accepts no new processes: {reason}");
            return Err((Reason::DestinationBlocked, detail));
        }
    }
    if placement.destination_host == Destination::ForceRestartLastSeen && !is_up(env, work) {
        return Err((Reason::NotRunning, format!("{work} is not running")));
    }
    if placement.destination_host == Destination::Standby {
        if !matches!(processor.role, Role::Active) {
            return Err((Reason::NoStandby, format!("{work} is itself a standby")));
        }
        if takeover::choose_standby(placement, env).is_none() {
            let detail = format!("{work} has no running standby on a host that accepts it");
            return Err((Reason::NoStandby, detail));
        }
    }
    Ok(())
}

/// Refuses a host that the service does not list, unless `force` is set.
fn check_listed(
    placement: &Placement,
    host: &NodeName,
    env: &impl Environment,
) -> Result<(), RefusalReason> {
    if placement.force || !is_unlisted(env, &placement.processor_id, host) {
        return Ok(());
    }
    let machines = env.listed_hosts(&placement.processor_id);
    let names: Vec<&str> = machines.iter().map(NodeName::as_str).collect();
    let detail = format!(
        "{host} is not in the `machines` of the service ({}); use one of them, or set `force`",
        names.join(", ")
    );
    Err((Reason::NotAListedMachine, detail))
}

/// Returns a partner that another action in flight is moving to this host.
fn reserved_by_partner(
    placements: &Placements,
    work: &WorkId,
    host: &NodeName,
    env: &impl Environment,
) -> Option<WorkId> {
    let partners = partners(env, work);
    let targets_host = |it: &&Placement| {
        let is_partner = partners.iter().any(|(other, _)| *other == it.processor_id);
        is_partner && it.progress.host.as_ref() == Some(host)
    };
    placements
        .active()
        .find(targets_host)
        .map(|it| it.processor_id.clone())
}

/// Accepts a request and sets its first phase.
fn accept(placement: &mut Placement, processor: &Processor, env: &impl Environment) {
    let (now, work) = (env.now(), placement.processor_id.clone());
    let container = current_container(&work, env);
    let source = last_known_host(&work, env);
    // A takeover needs the host of the standby, regardless of host affinity.
    let needs_host = processor.host_affinity || placement.progress.is_second_takeover_child;
    let host = match &placement.destination_host {
        Destination::Host(host) => Some(host.clone()),
        Destination::LastSeen => source.clone(),
        _ => None,
    };
    let host = host.filter(|_| needs_host);
    placement.resolved_host = Some(host.as_ref().map_or(ANY_HOST, NodeName::as_str).to_owned());
    placement.source_host = source;
    placement.request_consumed_at = Some(now);
    placement.queued_because = None;
    placement.status_code = Status::Accepted;
    placement.progress = Progress {
        epoch: env.epoch(),
        predecessor: container.map(|it| it.allocation),
        host,
        request_count: 1,
        requested_at: now,
        ..std::mem::take(&mut placement.progress)
    };
    let phase = match placement.progress.predecessor {
        Some(_) => Phase::Running,
        // The processor has no container, so there is nothing to stop.
        None => Phase::Stopped,
    };
    let message = format!(
        "an allocation is requested on {}",
        placement.resolved_host.as_deref().unwrap_or("")
    );
    placement.set_phase(phase, message, now);
}

/// Orders the stop of a process. The request succeeds at once, because the permanent demand of the
/// process restarts it.
fn force_restart(placement: &mut Placement, env: &mut impl Environment) {
    let now = env.now();
    let Some(container) = current_container(&placement.processor_id, env) else {
        return;
    };
    env.stop(&container.allocation);
    placement.progress.predecessor = Some(container.allocation.clone());
    placement.progress.stop_ordered_at = Some(now);
    placement.request_consumed_at = Some(now);
    placement.phase = Some(Phase::StopInProgress);
    placement.resolved_host = Some(container.host.to_string());
    placement.source_host = Some(container.host);
    let message = "the process was ordered to stop; its restart follows".to_owned();
    placement.finish(Status::Succeeded, None, message, now);
}
