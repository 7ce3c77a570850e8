//! Invariants of container-manager: containers and placement actions past their deadline, and the
//! number of stored placements.

use hayward_container_manager_domain::State;
use hayward_publication::Moment;
use hayward_publication::invariants::Findings;
use hayward_service::invariants::timed_finding;
use hayward_vocabulary::invariant_finding::{Bound, TimedState, check_deadlines};

use crate::ledger::Ledger;
use crate::model::Container;

/// Maximum time until a node reports a container. A live node polls continuously, and a dead node
/// is declared lost long before this limit.
const MAX_ORDERED_MS: u64 = 300_000;
/// Maximum time of a launch. An image may be large and slow to download.
const MAX_LAUNCHING_MS: u64 = 1_800_000;
/// Maximum time of a stop after the grace period of the work. A kill takes at most a minute.
const MAX_KILL_MS: u64 = 120_000;

/// Returns how long a container may stay in its state. `None` if there is no limit.
fn state_limit_ms(container: &Container) -> Option<u64> {
    // Held containers wait for an action or a predecessor, which have their own deadlines.
    if container.lifecycle.held {
        return None;
    }
    let launch = container.launch.as_ref();
    let grace_ms = launch.map_or(0, |launch| launch.stop_grace_ms);
    match container.lifecycle.state {
        State::Ordered => Some(MAX_ORDERED_MS),
        State::Launching => Some(MAX_LAUNCHING_MS),
        State::Stopping => Some(grace_ms.saturating_add(MAX_KILL_MS)),
        State::Running | State::Ended => None,
    }
}

fn describe_state(state: State) -> &'static str {
    match state {
        State::Ordered => "is ordered, and its node has not reported it",
        State::Launching => "is launching",
        State::Stopping => "is stopping",
        State::Running | State::Ended => "is in a state without a deadline",
    }
}

impl Ledger {
    pub(crate) fn check_invariants(&mut self, moment: &Moment) -> Findings {
        let now_ms = moment.monotonic_ms;
        let with_deadline = self.containers.values();
        // A container on an unreachable node has no deadline (W7).
        let is_unreachable = |it: &Container| self.unreachable.contains(&it.id);
        let with_deadline =
            with_deadline.filter(|it| state_limit_ms(it).is_some() && !is_unreachable(it));
        let with_deadline = with_deadline.map(|it| (it.id.clone(), it.lifecycle.state));
        self.state_ages.record(now_ms, with_deadline);
        let containers = self.state_ages.ages(now_ms).filter_map(|(id, _, age)| {
            let container = self.containers.get(id)?;
            Some(to_timed_state(container, age))
        });
        let limits = self.limits.placement;
        let actions = self.placements.active_with_lateness(&limits, moment.now);
        let max_placements = self.limits.max_final_placements.saturating_mul(2);
        let to_u64 = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Findings {
            findings: vec![timed_finding(|| check_deadlines(containers.chain(actions)))],
            bounds: vec![Bound {
                // The bound is twice the limit, because placements are deleted only once a minute.
                name: "stored final placements",
                current: to_u64(self.placements.finished_count()),
                limit: to_u64(max_placements),
            }],
        }
    }
}

/// Describes the state of a container, and how late the container is in leaving it (I24).
fn to_timed_state(container: &Container, age_ms: u64) -> TimedState<String> {
    let limit = state_limit_ms(container);
    let node = &container.node;
    let reason = container.lifecycle.reason.as_deref();
    TimedState {
        subject: container.id.to_string(),
        state: describe_state(container.lifecycle.state),
        late_ms: limit.map_or(0, |limit| age_ms.saturating_sub(limit)),
        cause: Some(match reason {
            Some(reason) => format!("on {node}: {reason}"),
            None => format!("on {node}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use hayward_container_manager_domain::Lifecycle;
    use hayward_vocabulary::invariant_finding::{Outcome, SWEEP_MS};
    use hayward_vocabulary::{AllocationId, Size, Timestamp, WorkKind};

    use super::*;

    fn container(state: State) -> Container {
        let lifecycle = Lifecycle {
            state,
            reason: Some("it cannot be killed".into()),
            ..Lifecycle::new(1)
        };
        Container {
            id: AllocationId::new("alc_1").unwrap(),
            work: "job_1".parse().unwrap(),
            kind: WorkKind::Job,
            user: "ann".parse().unwrap(),
            node: "n1".parse().unwrap(),
            size: Size::default(),
            exclusive: false,
            predecessor: None,
            request: None,
            launch: None,
            epoch: 1,
            ordered_at: Timestamp::default(),
            lifecycle,
            archived_at: None,
        }
    }

    #[test]
    fn a_container_is_late_after_the_time_limit_of_its_state() {
        let is_late =
            |state, age| !check_deadlines([to_timed_state(&container(state), age)]).holds();
        for (state, limit) in [
            (State::Ordered, MAX_ORDERED_MS),
            (State::Launching, MAX_LAUNCHING_MS),
            (State::Stopping, MAX_KILL_MS),
        ] {
            assert!(!is_late(state, limit + SWEEP_MS), "{state:?}");
            assert!(is_late(state, limit + SWEEP_MS + 1), "{state:?}");
        }
        assert!(!is_late(State::Running, u64::MAX));
        let finding = check_deadlines([to_timed_state(&container(State::Stopping), u64::MAX)]);
        let Outcome::Violated { evidence, .. } = finding.outcome else {
            panic!("it is late");
        };
        assert!(evidence[0].detail.ends_with("on n1: it cannot be killed"));
    }

    #[test]
    fn a_held_container_has_no_deadline() {
        let mut held = container(State::Ordered);
        held.lifecycle.held = true;
        assert_eq!(state_limit_ms(&held), None);
    }
}
