//! A fake agent. It follows the desired set of its node, and reports what the test prescribes.

use std::collections::BTreeMap;

use hayward_container_manager_api::{
    ContainerReport, ContainerState, DesiredEntry, Goal, Report, ReportAnswer,
};
use hayward_publication::Update;
use hayward_service::client::{Client, ClientError};
use hayward_vocabulary::{AllocationId, Exit, ExitCause};

use super::fixture::{Fixture, TIME_LIMIT};

pub struct FakeAgent {
    pub client: Client,
    pub node: &'static str,
    /// Name of this run of the agent.
    pub instance: String,
    /// Number of the last report.
    pub sequence: u64,
    /// Cursor of the desired set. `None` until the first poll.
    pub cursor: Option<String>,
    /// The desired set of the node, by allocation id.
    pub desired: BTreeMap<String, DesiredEntry>,
}

impl FakeAgent {
    pub fn new(fixture: &Fixture, node: &'static str) -> Self {
        Self {
            client: fixture.client(&format!("agent-{node}")),
            node,
            instance: "first".into(),
            sequence: 0,
            cursor: None,
            desired: BTreeMap::new(),
        }
    }

    /// Returns the agent with a client of the restarted container-manager.
    pub fn reconnect(mut self, fixture: &Fixture) -> Self {
        self.client = fixture.client(&format!("agent-{}", self.node));
        self
    }

    /// Returns a restarted agent on the same node.
    pub fn restart(mut self, instance: &str) -> Self {
        instance.clone_into(&mut self.instance);
        self.sequence = 0;
        self.cursor = None;
        self.desired.clear();
        self
    }

    /// Polls the desired set once. `wait` is in seconds. With `wait` 0 the cursor advances even
    /// without changes.
    pub async fn poll(&mut self, wait: u64) {
        let since = self
            .cursor
            .as_ref()
            .map(|cursor| format!("&since={cursor}"));
        let path = format!(
            "/v1/desired/{}/publication?wait={wait}{}",
            self.node,
            since.unwrap_or_default()
        );
        let update: Update<DesiredEntry> = self.client.get(&path).await.unwrap();
        if update.full {
            self.desired.clear();
        }
        self.desired.extend(update.changed);
        for id in update.removed {
            self.desired.remove(&id);
        }
        self.cursor = Some(update.cursor);
    }

    /// Follows the desired set until it meets a condition.
    pub async fn wait_until(
        &mut self,
        description: &str,
        condition: impl Fn(&BTreeMap<String, DesiredEntry>) -> bool,
    ) {
        let polling = async {
            self.poll(0).await;
            while !condition(&self.desired) {
                self.poll(5).await;
            }
        };
        let outcome = tokio::time::timeout(TIME_LIMIT, polling).await;
        outcome.unwrap_or_else(|_| panic!("not within the time limit: {description}"));
    }

    /// Waits until a container is in the desired set.
    pub async fn wait_for_container(&mut self, id: &str) {
        let description = format!("{id} is in the desired set");
        self.wait_until(&description, |desired| desired.contains_key(id))
            .await;
    }

    /// Waits until the desired set has this many containers.
    pub async fn wait_for_container_count(&mut self, count: usize) {
        let description = format!("{count} containers are in the desired set");
        self.wait_until(&description, |desired| desired.len() == count)
            .await;
    }

    /// Waits until a container is ordered to stop.
    pub async fn wait_for_stop_order(&mut self, id: &str) {
        let description = format!("the stop of {id} is ordered");
        self.wait_until(&description, |desired| desired[id].goal == Goal::Stop)
            .await;
    }

    /// Creates the next report, without sending it.
    pub fn next_report(&mut self, containers: Vec<ContainerReport>) -> Report {
        self.sequence += 1;
        Report {
            boot_id: "boot".into(),
            agent_instance: self.instance.clone(),
            sequence: self.sequence,
            cursor: self.cursor.clone(),
            complete: true,
            containers,
        }
    }

    /// Sends a report. Returns the revision at which the report is applied.
    pub async fn send(&self, report: &Report) -> Result<u64, ClientError> {
        let path = format!("/v1/nodes/{}/report", self.node);
        self.client
            .put(&path, report)
            .await
            .map(|response: ReportAnswer| response.revision)
    }

    /// Creates and sends the next report. Returns the revision at which the report is applied.
    pub async fn report(&mut self, containers: Vec<ContainerReport>) -> u64 {
        let report = self.next_report(containers);
        self.send(&report).await.unwrap()
    }

    /// Sends a report of one container in a state. Returns the revision at which it is applied.
    pub async fn report_state(&mut self, id: &str, state: ContainerState) -> u64 {
        self.report(vec![container_report(id, state)]).await
    }
}

/// Creates the report of one container.
pub fn container_report(id: &str, state: ContainerState) -> ContainerReport {
    let exit = (state == ContainerState::Ended).then(|| Exit {
        code: Some(3),
        ..Exit::of(ExitCause::UserError, "status 3")
    });
    ContainerReport {
        id: AllocationId::new(id).unwrap(),
        incarnation: 1,
        state,
        pid: Some(7),
        started_at: None,
        exit,
        reason: None,
    }
}
