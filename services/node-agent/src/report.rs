//! Reports all containers to container-manager, at each change and periodically. Changes during a
//! report go together into the next one.
//!
//! An end is reported after the last output was sent, or after a time limit. The report of an end
//! leads to the removal of the order, after which the output would be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::{ContainerReport, ContainerState, Report, ReportAnswer};
use hayward_service::{Client, ClientError, Code, Shutdown};
use hayward_vocabulary::{AllocationId, NodeName};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::agent::AgentStatus;
use crate::backoff::Backoff;
use crate::fault_points::{self, Point};

/// Interval of reports without a change.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for which the report of a launch is delayed. Most containers have started by then,
/// which saves a report and a commit.
const LAUNCH_DELAY: Duration = Duration::from_millis(25);

/// Ended containers whose output was sent completely.
pub type Flushed = Arc<BTreeSet<AllocationId>>;

/// Maximum time for which the report of an end waits for the output. It is longer than the maximum
/// backoff of the output loop.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(6);

/// Background loop that reports the containers.
pub struct Reporter {
    pub client: Client,
    pub node: NodeName,
    pub boot_id: String,
    pub agent_instance: String,
    pub status: watch::Receiver<AgentStatus>,
    pub flushed: watch::Receiver<Flushed>,
}

impl Reporter {
    /// Runs until `stop`, which comes after the last change of the status. The last report includes
    /// that change.
    pub async fn run(mut self, stop: Shutdown) {
        let mut sequence = 0;
        tokio::select! {
            () = self.report_loop(&mut sequence) => {}
            () = stop.wait() => {}
        }
        let status = self.status.borrow().clone();
        let mut flushed = self.flushed.clone();
        let are_all_flushed = |flushed: &Flushed| {
            let is_ended = |report: &&ContainerReport| report.state == ContainerState::Ended;
            let mut ended = status.containers.iter().filter(is_ended);
            ended.all(|report| flushed.contains(&report.id))
        };
        let _ = timeout(LAST_REPORT_TIMEOUT, flushed.wait_for(are_all_flushed)).await;
        // The report may fail, because the journal has the same data.
        let containers = status.containers.to_vec();
        let _ = timeout(
            LAST_REPORT_TIMEOUT,
            self.send(&status, containers, sequence + 1),
        )
        .await;
    }

    async fn report_loop(&mut self, sequence: &mut u64) {
        let mut backoff = Backoff::default();
        let mut end_delay = EndDelay::default();
        let mut launching = BTreeSet::new();
        let mut foreign = BTreeSet::new();
        loop {
            let status = next_status(&mut self.status, &mut launching).await;
            let flushed = self.flushed.borrow_and_update().clone();
            let (mut containers, next_deadline) =
                end_delay.apply(&status.containers, &flushed, Instant::now());
            containers.retain(|report| !foreign.contains(&report.id));
            *sequence += 1;
            fault_points::pass(Point::ReportBefore);
            match self.send(&status, containers.clone(), *sequence).await {
                Ok(_) => {
                    fault_points::pass(Point::ReportAfter);
                    backoff.reset();
                    if !self.wait_for_change(next_deadline).await {
                        return;
                    }
                }
                Err(error) => {
                    foreign.extend(foreign_containers(&error, &containers));
                    if backoff.is_first_failure() {
                        tracing::warn!(%error, cause = ?error, "cannot report");
                    }
                    // The output could not be sent either, so its deadlines restart.
                    end_delay.restart(Instant::now());
                    backoff.wait().await;
                }
            }
        }
    }

    /// Waits for a change. Returns false if there will be none.
    async fn wait_for_change(&mut self, next_deadline: Option<Instant>) -> bool {
        let deadline_passed = async {
            match next_deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.status.changed() => changed.is_ok(),
            changed = self.flushed.changed(), if next_deadline.is_some() => changed.is_ok(),
            () = deadline_passed => true,
            () = sleep(REPORT_INTERVAL) => true,
        }
    }

    async fn send(
        &self,
        status: &AgentStatus,
        containers: Vec<ContainerReport>,
        sequence: u64,
    ) -> Result<ReportAnswer, ClientError> {
        let report = Report {
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
            sequence,
            cursor: status.cursor.clone(),
            complete: status.complete,
            containers,
        };
        self.client
            .put(&format!("/v1/nodes/{}/report", self.node), &report)
            .await
    }
}

/// Returns containers to omit from all later reports. Such containers are from a time when this
/// machine was another node. container-manager refuses each report that names one of them (S14).
fn foreign_containers<'a>(
    error: &ClientError,
    reported: &'a [ContainerReport],
) -> impl Iterator<Item = AllocationId> + 'a {
    let indices = refused_items(error, "containers").into_iter();
    indices.filter_map(|index| Some(reported.get(index)?.id.clone()))
}

/// Returns the indices in `list` of the items that were refused, because they belong to another
/// node.
pub fn refused_items(error: &ClientError, list: &str) -> Vec<usize> {
    let problem = error
        .problem()
        .filter(|problem| problem.code == Code::Forbidden);
    let faults = problem.into_iter().flat_map(|problem| &problem.errors);
    let indices = faults.filter_map(|fault| {
        let path = fault.pointer.strip_prefix('/')?.strip_prefix(list)?;
        path.strip_prefix('/')?.strip_suffix("/id")?.parse().ok()
    });
    indices.collect()
}

/// Returns the next status to report. Waits a moment for launches to finish, except for those in
/// `launching`, which were reported before.
async fn next_status(
    status: &mut watch::Receiver<AgentStatus>,
    launching: &mut BTreeSet<AllocationId>,
) -> AgentStatus {
    let is_unchanged =
        |status: &AgentStatus| launching_ids(status).all(|id| launching.contains(id));
    let _ = timeout(LAUNCH_DELAY, status.wait_for(is_unchanged)).await;
    let status = status.borrow_and_update().clone();
    *launching = launching_ids(&status).cloned().collect();
    status
}

/// Returns the containers that are launching.
fn launching_ids(status: &AgentStatus) -> impl Iterator<Item = &AllocationId> {
    let containers = status.containers.iter();
    let launching = containers.filter(|report| report.state == ContainerState::Launching);
    launching.map(|report| &report.id)
}

/// Delays the report of an end until the output of the container was sent.
#[derive(Default)]
struct EndDelay {
    /// Last report of each container before its end. It is repeated until the end is reported.
    last_reports: BTreeMap<AllocationId, ContainerReport>,
    /// Times at which an end is reported even without its output.
    deadlines: BTreeMap<AllocationId, Instant>,
}

impl EndDelay {
    /// Returns the reports to send, and the next deadline.
    fn apply(
        &mut self,
        containers: &[ContainerReport],
        flushed: &Flushed,
        now: Instant,
    ) -> (Vec<ContainerReport>, Option<Instant>) {
        let mut reported = Vec::with_capacity(containers.len());
        let mut deadlines = BTreeMap::new();
        let mut last_reports = BTreeMap::new();
        for report in containers {
            let id = &report.id;
            if report.state != ContainerState::Ended {
                last_reports.insert(id.clone(), report.clone());
            } else if !flushed.contains(id) {
                let deadline = *self.deadlines.get(id).unwrap_or(&(now + OUTPUT_TIMEOUT));
                deadlines.insert(id.clone(), deadline);
                if now < deadline {
                    let last_report = self
                        .last_reports
                        .remove(id)
                        .unwrap_or_else(|| report_before_end(report));
                    reported.push(last_report.clone());
                    last_reports.insert(id.clone(), last_report);
                    continue;
                }
            }
            reported.push(report.clone());
        }
        let next = deadlines
            .values()
            .filter(|deadline| **deadline > now)
            .min()
            .copied();
        (self.last_reports, self.deadlines) = (last_reports, deadlines);
        (reported, next)
    }

    /// Restarts the deadlines of ends that were not reported yet.
    fn restart(&mut self, now: Instant) {
        self.deadlines.retain(|_, deadline| *deadline <= now);
    }
}

/// Returns the report to send in place of an end, for a container that was not reported before.
fn report_before_end(report: &ContainerReport) -> ContainerReport {
    let state = match report.started_at {
        Some(_) => ContainerState::Running,
        None => ContainerState::Launching,
    };
    ContainerReport {
        state,
        exit: None,
        ..report.clone()
    }
}

#[cfg(test)]
mod tests {
    use hayward_service::Problem;
    use hayward_vocabulary::{Exit, ExitCause};

    use super::*;

    fn report(name: &str, state: ContainerState) -> ContainerReport {
        let ended = state == ContainerState::Ended;
        ContainerReport {
            id: AllocationId::new(format!("alc_{name}")).unwrap(),
            incarnation: 1,
            state,
            pid: None,
            started_at: None,
            exit: ended.then(|| Exit::of(ExitCause::Success, "")),
            reason: None,
        }
    }

    #[test]
    fn only_containers_of_another_node_are_omitted() {
        let reported = ["a", "b"].map(|name| report(name, ContainerState::Running));
        let refused = |code, pointer: &str| {
            let problem = Problem::new(code, "no").at(pointer, "leave it out");
            foreign_containers(&ClientError::Problem(problem), &reported).collect::<Vec<_>>()
        };
        let second = "/containers/1/id";
        assert_eq!(refused(Code::Forbidden, second), [reported[1].id.clone()]);
        for (code, pointer) in [
            (Code::Forbidden, "/containers/2/id"),
            (Code::Forbidden, "/node"),
            (Code::Invalid, second),
        ] {
            assert!(refused(code, pointer).is_empty(), "{pointer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_launch_is_reported_separately_only_if_it_is_slow() {
        use ContainerState::{Launching, Running};
        let status_with = |containers: &[ContainerReport]| AgentStatus {
            containers: Arc::new(containers.to_vec()),
            ..AgentStatus::default()
        };
        let states = |status: &AgentStatus| {
            status
                .containers
                .iter()
                .map(|report| report.state)
                .collect::<Vec<_>>()
        };
        let (sender, mut status) = watch::channel(status_with(&[report("a", Launching)]));
        let (mut reported, started_at) = (BTreeSet::new(), Instant::now());
        let start_later = async {
            tokio::time::sleep(LAUNCH_DELAY / 5).await;
            sender.send_replace(status_with(&[report("a", Running)]));
        };
        let (reported_status, ()) =
            tokio::join!(next_status(&mut status, &mut reported), start_later);
        assert_eq!(states(&reported_status), [Running]);
        assert_eq!(started_at.elapsed(), LAUNCH_DELAY / 5);

        sender.send_replace(status_with(&[report("a", Running), report("b", Launching)]));
        let reported_status = next_status(&mut status, &mut reported).await;
        assert_eq!(states(&reported_status), [Running, Launching]);
        assert!(
            started_at.elapsed() >= LAUNCH_DELAY,
            "it waited for the launch"
        );
        let second_call = Instant::now();
        next_status(&mut status, &mut reported).await;
        assert_eq!(
            second_call.elapsed(),
            Duration::ZERO,
            "it was reported before"
        );
    }

    #[test]
    fn an_end_is_reported_after_its_output_or_a_time_limit() {
        use ContainerState::{Ended, Launching, Stopping};
        let mut end_delay = EndDelay::default();
        let now = Instant::now();
        let flushed = |names: &[&str]| -> Flushed {
            let ids = names
                .iter()
                .map(|name| AllocationId::new(format!("alc_{name}")).unwrap());
            Arc::new(ids.collect())
        };
        let states = |reported: &[ContainerReport]| {
            reported
                .iter()
                .map(|report| report.state)
                .collect::<Vec<_>>()
        };
        let one_ended = [report("a", Stopping), report("b", Ended)];
        let (reported, deadline) = end_delay.apply(&one_ended, &flushed(&[]), now);
        assert_eq!(
            states(&reported),
            [Stopping, Launching],
            "b was not reported before"
        );
        assert_eq!(deadline, Some(now + OUTPUT_TIMEOUT));
        let both_ended = [report("a", Ended), report("b", Ended)];
        let (reported, _) =
            end_delay.apply(&both_ended, &flushed(&["b"]), now + OUTPUT_TIMEOUT / 2);
        assert_eq!(states(&reported), [Stopping, Ended]);
        assert!(reported[0].exit.is_none() && reported[1].exit.is_some());
        let (reported, deadline) =
            end_delay.apply(&both_ended, &flushed(&["b"]), now + OUTPUT_TIMEOUT * 2);
        assert_eq!(
            (states(&reported), deadline),
            (vec![Ended, Ended], None),
            "no report of an end waits longer than the time limit"
        );
    }
}
