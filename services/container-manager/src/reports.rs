//! Applies the reports of agents.

use std::collections::HashSet;

use hayward_container_manager_api::{ContainerReport, ContainerState, Report};
use hayward_container_manager_domain::{Fact, Observation, State};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use crate::command::{ForeignContainers, NodeReport};
use crate::ledger::Ledger;
use crate::model::Rows;

impl Ledger {
    /// Applies a report that answers revision `answers` of the desired set.
    pub(crate) fn apply_report(
        &mut self,
        report: &NodeReport,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), ForeignContainers> {
        let NodeReport {
            node,
            answers,
            report,
        } = report;
        let answers = *answers;
        self.check_owner(node, report)?;
        let filter = self.report_filters.entry(node.clone()).or_default();
        if !filter.accepts(&report.agent_instance, report.sequence, answers) {
            tracing::debug!(%node, sequence = report.sequence, "an old report is ignored");
            return Ok(());
        }
        for item in &report.containers {
            if self.concerns(node, item)
                && let Some(observation) = observation(item, answers)
            {
                self.apply_fact(
                    item.id.as_str(),
                    Fact::Observed(&observation),
                    moment,
                    batch,
                );
            }
        }
        // Absence is proven only by a complete report that names the revision it answers.
        if let (true, Some(answers)) = (report.complete, answers) {
            let named: HashSet<&str> = report
                .containers
                .iter()
                .map(|item| item.id.as_str())
                .collect();
            let here = self.by_node.get(node).into_iter().flatten();
            let missing = here.filter(|id| !named.contains(id.as_str()));
            for id in missing.cloned().collect::<Vec<_>>() {
                self.apply_fact(id.as_str(), Fact::Missing { answers }, moment, batch);
            }
        }
        Ok(())
    }

    /// Rejects the whole report if it names a container of another node (S14).
    fn check_owner(&self, node: &NodeName, report: &Report) -> Result<(), ForeignContainers> {
        let elsewhere = |item: &ContainerReport| {
            let known = self.containers.get(&item.id);
            known.is_some_and(|known| known.node != *node)
        };
        let all = report.containers.iter().enumerate();
        let foreign = all.filter(|(_, item)| elsewhere(item)).map(|(at, _)| at);
        ForeignContainers::if_any(foreign.collect())
    }

    fn concerns(&self, node: &NodeName, item: &ContainerReport) -> bool {
        match self.containers.get(&item.id) {
            // Already buried. The agent sees that it is not desired.
            None => false,
            Some(known) if known.life.incarnation != item.incarnation => {
                tracing::warn!(%node, container = %item.id, "the report is about another \
                    incarnation");
                false
            }
            Some(_) => true,
        }
    }
}

fn observation(item: &ContainerReport, answers: Option<u64>) -> Option<Observation> {
    let state = match item.state {
        ContainerState::Ordered => State::Ordered,
        ContainerState::Launching => State::Launching,
        ContainerState::Running => State::Running,
        ContainerState::Stopping => State::Stopping,
        ContainerState::Ended => State::Ended,
        ContainerState::Unknown => {
            tracing::warn!(container = %item.id, "an unknown state is ignored");
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
        answers,
    })
}
