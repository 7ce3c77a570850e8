//! The destination `STANDBY`: an active takes over the host of one of its standbys.
//!
//! Two child actions run in sequence: the standby moves away, then the active moves in. The
//! takeover is the parent of both, and counts as the action in flight of the active until both
//! have ended.

use hayward_vocabulary::{NodeName, Role, WorkId};

use crate::container_access::{
    Environment, LiveState, current_container, is_unlisted, last_known_host, partners,
};
use crate::destination::Destination;
use crate::placement::{Placement, Progress};
use crate::placements::Placements;
use crate::status::{Phase, QueueReason, Reason, Status};

/// Returns the running standby with the lowest number whose host accepts the active, and that host.
pub fn choose_standby(placement: &Placement, env: &impl Environment) -> Option<(WorkId, NodeName)> {
    let active = &placement.processor_id;
    let accepts_active = |host: &NodeName| {
        let is_listed = placement.force || !is_unlisted(env, active, host);
        is_listed && env.closed_reason(host, active).is_none()
    };
    let mut standbys: Vec<(u32, WorkId)> = partners(env, active)
        .into_iter()
        .filter_map(|(work, role)| match role {
            Role::Standby { replica, .. } => Some((replica, work)),
            Role::Active => None,
        })
        .collect();
    standbys.sort();
    standbys.into_iter().find_map(|(_, work)| {
        let container = current_container(&work, env)?;
        let is_usable = container.state == LiveState::Running && accepts_active(&container.host);
        is_usable.then_some((work, container.host))
    })
}

/// Starts a takeover with its first child action.
pub fn begin(
    placements: &mut Placements,
    mut placement: Placement,
    env: &impl Environment,
) -> Placement {
    let Some((standby, host)) = choose_standby(&placement, env) else {
        return placement;
    };
    let now = env.now();
    // The standby must leave the hosts of the whole group, because the group shares no host.
    let group = partners(env, &placement.processor_id)
        .into_iter()
        .map(|(work, _)| work);
    let group = group.chain([placement.processor_id.clone()]);
    let exclude = group
        .filter_map(|work| last_known_host(&work, env))
        .collect();
    placement.source_host = last_known_host(&placement.processor_id, env);
    placement.resolved_host = Some(host.to_string());
    placement.request_consumed_at = Some(now);
    placement.queued_because = None;
    placement.progress.epoch = env.epoch();
    placement.progress.standby = Some((standby.clone(), host));
    placement.set_phase(Phase::Running, format!("{standby} moves away first"), now);
    let first_child = ChildSpec {
        number: 1,
        work: standby,
        destination: Destination::AnyHost,
        progress: Progress {
            exclude,
            ..Progress::default()
        },
    };
    let child = new_child(placements, &placement, first_child);
    placements.insert(placement.clone());
    placements.insert(child);
    placement
}

/// The fields in which a child placement differs from its parent.
struct ChildSpec {
    /// Position in the sequence: 1 or 2.
    number: u8,
    work: WorkId,
    destination: Destination,
    progress: Progress,
}

fn new_child(placements: &mut Placements, parent: &Placement, spec: ChildSpec) -> Placement {
    Placement {
        uuid: child_id(parent, spec.number),
        processor_id: spec.work,
        destination_host: spec.destination,
        seq: placements.next_sequence(),
        status_code: Status::Created,
        response_message: "queued".to_owned(),
        reason_code: None,
        queued_because: None::<QueueReason>,
        phase: None,
        resolved_host: None,
        source_host: None,
        final_host: None,
        recovery_host: None,
        parent_uuid: Some(parent.uuid.clone()),
        request_consumed_at: None,
        progress: spec.progress,
        ..parent.clone()
    }
}

/// Returns the id of a child action. No client can submit this id, because clients submit uuids.
fn child_id(parent: &Placement, number: u8) -> String {
    format!("{}.{number}", parent.uuid)
}

/// Takes the next step of a takeover. The parent shows the phase and message of its running child.
pub fn step(
    placements: &mut Placements,
    mut placement: Placement,
    env: &impl Environment,
) -> Placement {
    let now = env.now();
    let first = placements.get(&child_id(&placement, 1)).cloned();
    let second = placements.get(&child_id(&placement, 2)).cloned();
    let (Some(first), Some((standby, host))) = (first, placement.progress.standby.clone()) else {
        placement.finish(
            Status::Failed,
            Some(Reason::JobEnded),
            "the actions of the takeover no longer exist".to_owned(),
            now,
        );
        return placement;
    };
    // The second child is created once the first one has succeeded.
    match second {
        None if first.status_code == Status::Succeeded => {
            let spec = ChildSpec {
                number: 2,
                work: placement.processor_id.clone(),
                destination: Destination::Host(host.clone()),
                progress: Progress {
                    is_second_takeover_child: true,
                    ..Progress::default()
                },
            };
            let second = new_child(placements, &placement, spec);
            placements.insert(second);
            let message = format!(
                "{standby} has left {host}; {} follows",
                placement.processor_id
            );
            placement.set_phase(Phase::Running, message, now);
        }
        None if first.status_code.is_final() => {
            let message = format!("{standby} was not moved: {}", first.response_message);
            placement.finish(Status::Failed, first.reason_code, message, now);
        }
        Some(second) if second.status_code.is_final() => {
            placement.phase = second.phase;
            placement.final_host = second.final_host;
            placement.recovery_host = second.recovery_host;
            let status = match second.status_code {
                Status::Succeeded => Status::Succeeded,
                _ => Status::Failed,
            };
            placement.finish(status, second.reason_code, second.response_message, now);
        }
        Some(child) => copy_phase(&mut placement, &child),
        None => copy_phase(&mut placement, &first),
    }
    placement
}

/// Copies the phase and message of a child to its parent.
fn copy_phase(placement: &mut Placement, child: &Placement) {
    if let Some(phase) = child.phase
        && (placement.phase, placement.updated_at) != (Some(phase), child.updated_at)
    {
        placement.set_phase(phase, child.response_message.clone(), child.updated_at);
    }
}
