//! Applies the reports of agents about the containers of their nodes.

use std::collections::HashSet;

use hayward_container_manager_api::{ContainerReport, ContainerState, Report};
use hayward_container_manager_domain::{Fact, Observation, State};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use crate::command::{ForeignContainers, NodeReport};
use crate::ledger::Ledger;
use crate::model::Rows;

impl Ledger {
    /// Applies a report of an agent.
    pub(crate) fn apply_report(
        &mut self,
        report: &NodeReport,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), ForeignContainers> {
        let NodeReport {
            node,
            observed_revision,
            report,
        } = report;
        let observed_revision = *observed_revision;
        self.check_containers_on_node(node, report)?;
        // The filter only saves work. Old reports would have no effect either.
        let filter = self.report_filters.entry(node.clone()).or_default();
        if !filter.accept(&report.agent_instance, report.sequence, observed_revision) {
            tracing::debug!(%node, sequence = report.sequence, "old report ignored");
            return Ok(());
        }
        for item in &report.containers {
            if self.has_incarnation(node, item)
                && let Some(observation) = to_observation(item, observed_revision)
            {
                self.apply_fact(
                    item.id.as_str(),
                    Fact::Observed(&observation),
                    moment,
                    batch,
                );
            }
        }
        // Absence is proven only by a complete report with an observed revision.
        if let (true, Some(observed_revision)) = (report.complete, observed_revision) {
            let reported: HashSet<&str> = report
                .containers
                .iter()
                .map(|item| item.id.as_str())
                .collect();
            let on_node = self.by_node.get(node).into_iter().flatten();
            let missing = on_node.filter(|id| !reported.contains(id.as_str()));
            for id in missing.cloned().collect::<Vec<_>>() {
                self.apply_fact(
                    id.as_str(),
                    Fact::Missing { observed_revision },
                    moment,
                    batch,
                );
            }
        }
        Ok(())
    }

    /// Refuses the whole report if it names a container of another node (S14).
    fn check_containers_on_node(
        &self,
        node: &NodeName,
        report: &Report,
    ) -> Result<(), ForeignContainers> {
        let is_foreign = |item: &ContainerReport| {
            let container = self.containers.get(&item.id);
            container.is_some_and(|container| container.node != *node)
        };
        let indexed = report.containers.iter().enumerate();
        let foreign = indexed.filter(|(_, item)| is_foreign(item));
        ForeignContainers::check(foreign.map(|(index, _)| index).collect())
    }

    /// Returns whether the container exists with the reported incarnation.
    fn has_incarnation(&self, node: &NodeName, item: &ContainerReport) -> bool {
        match self.containers.get(&item.id) {
            // The container is archived already. The agent sees that it is not desired.
            None => false,
            Some(container) if container.lifecycle.incarnation != item.incarnation => {
                tracing::warn!(%node, container = %item.id, "the report is about another \
                    incarnation");
                false
            }
            Some(_) => true,
        }
    }
}

fn to_observation(item: &ContainerReport, observed_revision: Option<u64>) -> Option<Observation> {
    let state = match item.state {
        ContainerState::Ordered => State::Ordered,
        ContainerState::Launching => State::Launching,
        ContainerState::Running => State::Running,
        ContainerState::Stopping => State::Stopping,
        ContainerState::Ended => State::Ended,
        ContainerState::Unknown => {
            tracing::warn!(
                container = %item.id,
                "the container has an unknown state and is ignored"
            );
            return None;
        }
    };
    Some(Observation {
        incarnation: item.incarnation,
        state,
        pid: item.pid,
        started_at: item.started_at,
        exit: item.exit.clone(),
        reason: item.reason.clone(),
        observed_revision,
    })
}
