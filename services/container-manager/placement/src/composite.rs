//! `STANDBY`: an active takes over the host of one of its standbys.
//!
//! Two child actions run in sequence: the standby moves away, then the active moves in. Their
//! parent counts as the action in flight of the active throughout.

use hayward_vocabulary::{NodeName, Role, WorkId};

use crate::environment::{
    Environment, LiveState, current_container, is_unlisted, last_known_host, partners,
};
use crate::placement::{Placement, Progress};
use crate::placements::Placements;
use crate::status::{Destination, Phase, QueueReason, Reason, Status};

/// The running standby with the lowest number whose host accepts the active.
pub fn choose_standby(p: &Placement, env: &impl Environment) -> Option<(WorkId, NodeName)> {
    let active = &p.processor_id;
    let open = |host: &NodeName| {
        let listed = p.force || !is_unlisted(env, active, host);
        listed && env.closed_reason(host, active).is_none()
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
        let good = container.state == LiveState::Running && open(&container.host);
        good.then_some((work, container.host))
    })
}

pub fn begin(placements: &mut Placements, mut p: Placement, env: &impl Environment) -> Placement {
    let Some((standby, host)) = choose_standby(&p, env) else {
        return p;
    };
    let now = env.now();
    let group = partners(env, &p.processor_id)
        .into_iter()
        .map(|(work, _)| work);
    let group = group.chain([p.processor_id.clone()]);
    let exclude = group
        .filter_map(|work| last_known_host(&work, env))
        .collect();
    p.source_host = last_known_host(&p.processor_id, env);
    p.resolved_host = Some(host.to_string());
    p.request_consumed_at = Some(now);
    p.queued_because = None;
    p.progress.epoch = env.epoch();
    p.progress.standby = Some((standby.clone(), host));
    p.set_phase(Phase::Running, format!("{standby} moves away first"), now);
    let first = ChildSpec {
        number: 1,
        work: standby,
        destination: Destination::AnyHost,
        progress: Progress {
            exclude,
            ..Progress::default()
        },
    };
    let child = child(placements, &p, first);
    placements.put(p.clone());
    placements.put(child);
    p
}

struct ChildSpec {
    /// 1 or 2.
    number: u8,
    work: WorkId,
    destination: Destination,
    progress: Progress,
}

fn child(placements: &mut Placements, parent: &Placement, spec: ChildSpec) -> Placement {
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

/// Never equal to an id from a client, because those are uuids.
fn child_id(parent: &Placement, number: u8) -> String {
    format!("{}.{number}", parent.uuid)
}

/// The parent shows the phase and message of its running child.
pub fn step(placements: &mut Placements, mut p: Placement, env: &impl Environment) -> Placement {
    let now = env.now();
    let first = placements.get(&child_id(&p, 1)).cloned();
    let second = placements.get(&child_id(&p, 2)).cloned();
    let (Some(first), Some((standby, host))) = (first, p.progress.standby.clone()) else {
        p.finish(
            Status::Failed,
            Some(Reason::JobEnded),
            "its child actions are gone".to_owned(),
            now,
        );
        return p;
    };
    match second {
        None if first.status_code == Status::Succeeded => {
            let spec = ChildSpec {
                number: 2,
                work: p.processor_id.clone(),
                destination: Destination::Host(host.clone()),
                progress: Progress {
                    under_parent: true,
                    ..Progress::default()
                },
            };
            let second = child(placements, &p, spec);
            placements.put(second);
            let message = format!("{standby} has left {host}; {} follows", p.processor_id);
            p.set_phase(Phase::Running, message, now);
        }
        None if first.status_code.is_final() => {
            let message = format!("{standby} was not moved: {}", first.response_message);
            p.finish(Status::Failed, first.reason_code, message, now);
        }
        Some(second) if second.status_code.is_final() => {
            p.phase = second.phase;
            p.final_host = second.final_host;
            p.recovery_host = second.recovery_host;
            let status = match second.status_code {
                Status::Succeeded => Status::Succeeded,
                _ => Status::Failed,
            };
            p.finish(status, second.reason_code, second.response_message, now);
        }
        Some(child) => copy_phase(&mut p, &child),
        None => copy_phase(&mut p, &first),
    }
    p
}

fn copy_phase(p: &mut Placement, child: &Placement) {
    if let Some(phase) = child.phase
        && (p.phase, p.updated_at) != (Some(phase), child.updated_at)
    {
        p.set_phase(phase, child.response_message.clone(), child.updated_at);
    }
}
