//! `hayward block` and `unblock`: block nodes and workers that must be avoided, and remove blocks.

use hayward_blocklist_api::{
    BlockAction, BlockAnswer, BlockEntry, BlockKind, BlockOrder, BlockOutcome, EvacuationPolicy,
};
use hayward_service::client::ClientError;
use hayward_service::{Clock as _, SystemClock};
use hayward_vocabulary::{BadName, NodeName, Timestamp, WorkId};
use serde_json::Value;

use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_duration};
use crate::output::{Renderer, note};
use crate::value_parsers;

/// Route of the blocklist.
pub const ROUTE: &str = "/v1/blocklist";

#[derive(Debug, Clone, clap::Args)]
pub struct BlockArguments {
    #[command(flatten)]
    pub target: BlockTarget,
    /// End the processes on the node at once, and start them elsewhere.
    #[arg(long)]
    pub evacuate: bool,
    /// End the processes on the node within their disruption limits, and the remaining ones after
    /// this time, as 2m.
    #[arg(long, value_name = "DURATION", value_parser = value_parsers::parse_duration_ms)]
    pub graceful: Option<u64>,
    /// Duration of the block, as 10m or 1h30m. Default: the setting of the service.
    #[arg(long = "for", value_name = "DURATION", value_parser = value_parsers::parse_duration_ms)]
    pub duration_ms: Option<u64>,
    /// End of the block, as 2026-11-21T18:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "duration_ms")]
    pub until: Option<Timestamp>,
    /// The block has no end, and stays until it is removed.
    #[arg(long, conflicts_with_all = ["duration_ms", "until"])]
    pub permanent: bool,
    /// Refuse if the node is blocked already. Default: both blocks are merged into one with the
    /// later end and the stronger effect.
    #[arg(long)]
    pub no_merge: bool,
    /// Reason of the block, shown to all callers.
    #[arg(long, value_name = "TEXT", default_value = "an operator said so")]
    pub because: String,
}

/// The blocked node or worker.
#[derive(Debug, Clone, clap::Args)]
pub struct BlockTarget {
    /// Name of the node, or with --worker the id of one allocation.
    #[arg(value_name = "NODE", value_parser = parse_identifier)]
    pub identifier: String,
    /// Block one worker, not a node.
    #[arg(long)]
    pub worker: bool,
    /// Block only for this job, not for all work.
    #[arg(long, value_name = "JOB")]
    pub job: Option<WorkId>,
}

/// Checks a name. Names of nodes and workers have the same character set, which is safe in a path.
fn parse_identifier(text: &str) -> Result<String, BadName> {
    NodeName::new(text).map(String::from)
}

impl BlockTarget {
    fn kind(&self) -> BlockKind {
        if self.worker {
            BlockKind::Worker
        } else {
            BlockKind::Node
        }
    }

    fn path(&self) -> String {
        let kind = match self.kind() {
            BlockKind::Node => "nodes",
            BlockKind::Worker => "workers",
        };
        format!("{ROUTE}/{kind}/{}", self.identifier)
    }

    fn scope(&self) -> Option<String> {
        self.job.as_ref().map(|job| format!("JOB:{job}"))
    }
}

impl BlockArguments {
    /// Checks that the block does not end before it begins. An evacuation has an effect even then.
    fn check(&self, now: Timestamp) -> anyhow::Result<()> {
        if self.evacuate || self.graceful.is_some() {
            return Ok(());
        }
        anyhow::ensure!(
            self.duration_ms != Some(0),
            "--for 0s blocks nothing: say how long, as --for 10m, or --permanent"
        );
        let past = self.until.filter(|end| *end <= now);
        if let Some(end) = past {
            anyhow::bail!("--until {end} has passed: name a later moment, or --permanent");
        }
        Ok(())
    }

    /// Returns the requested block. Merging is the default, so a second block of a node adds to the
    /// first.
    fn request(&self) -> BlockOrder {
        let evacuate = self.evacuate || self.graceful.is_some();
        BlockOrder {
            action: if evacuate {
                BlockAction::Evacuate
            } else {
                BlockAction::Mark
            },
            cause: self.because.clone(),
            duration_ms: self
                .duration_ms
                .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
            end_timestamp: self.until,
            permanent: self.permanent,
            allow_merge: !self.no_merge,
            scope: self.target.scope(),
            evacuation: self
                .graceful
                .map(|grace_ms| EvacuationPolicy::Graceful { grace_ms })
                .or(self.evacuate.then_some(EvacuationPolicy::Immediate)),
            removal_no: None,
        }
    }
}

pub async fn block(session: Session, block: BlockArguments) -> anyhow::Result<()> {
    block.check(SystemClock.now())?;
    let client = session.client(Service::Blocklist, Role::Operator)?;
    let response: Value = client.put(&block.target.path(), &block.request()).await?;
    if let Some(warning) = unknown_target_warning(&session, &block.target).await {
        note(&warning);
    }
    session
        .out
        .print_response(response, |response: &BlockAnswer, renderer| {
            result_text(&block.target, response, renderer)
        })
}

/// Warns about a worker or job that does not exist. The blocklist accepts its name, because it may
/// appear later, but the name may also be a typing error.
async fn unknown_target_warning(session: &Session, target: &BlockTarget) -> Option<String> {
    let mut lookups = Vec::new();
    if target.worker {
        let path = format!("/v1/allocations/{}", target.identifier);
        lookups.push((
            Service::RmScheduler,
            path,
            "worker",
            target.identifier.as_str(),
        ));
    }
    if let Some(job) = &target.job {
        let path = route_of_work(job).unwrap_or_else(|_| format!("/v1/jobs/{job}"));
        lookups.push((Service::JobConverter, path, "job", job.as_str()));
    }
    for (service, path, kind, name) in lookups {
        let client = session.client(service, Role::Operator).ok()?;
        let response: Result<Value, ClientError> = client.get(&path).await;
        let is_absent =
            response.is_err_and(|error| error.problem().is_some_and(|it| it.status() == 404));
        if is_absent {
            return Some(format!(
                "the fleet knows no {kind} {name} now; the block is stored nevertheless"
            ));
        }
    }
    None
}

fn result_text(target: &BlockTarget, response: &BlockAnswer, renderer: &Renderer) -> String {
    let target = &target.identifier;
    let outcome_text = match response.outcome {
        BlockOutcome::None => {
            let reason = response.reason.as_deref().unwrap_or("it was so before");
            let reason = reason.replace('_', " ").to_lowercase();
            return format!("nothing changed for {target}: {reason}\n");
        }
        outcome => enum_text(&outcome),
    };
    let end = response
        .item
        .as_ref()
        .map(|item| remaining_text(item, renderer))
        .unwrap_or_default();
    let mut text = format!("{target} is blocked {end} ({outcome_text})\n");
    for warning in &response.warnings {
        text.push_str(warning);
        text.push('\n');
    }
    text
}

fn remaining_text(item: &BlockEntry, renderer: &Renderer) -> String {
    match item.end {
        Some(end) => format!("for {}", format_duration(end.ms_since(renderer.now))),
        None => "until it is unblocked".to_owned(),
    }
}

pub async fn unblock(session: Session, target: BlockTarget) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Operator)?;
    let path = match target.scope() {
        Some(scope) => format!("{}?scope={scope}", target.path()),
        None => target.path(),
    };
    let response: Value = client.delete(&path).await?;
    session.out.print_response(response, |_: &Value, _| {
        format!("{} is unblocked\n", target.identifier)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(block: &BlockArguments) -> Value {
        serde_json::to_value(block.request()).unwrap()
    }

    #[test]
    fn a_block_request_has_the_values_of_its_flags() {
        let block = BlockArguments {
            target: BlockTarget {
                identifier: "n1".into(),
                worker: false,
                job: None,
            },
            evacuate: false,
            graceful: None,
            duration_ms: None,
            until: None,
            permanent: false,
            no_merge: false,
            because: "fan".into(),
        };
        let plain = request(&block);
        assert_eq!(plain["action"], "MARK_BLOCKLISTED");
        assert_eq!(plain["allow_merge"], true);
        let graceful = request(&BlockArguments {
            graceful: Some(120_000),
            ..block.clone()
        });
        assert_eq!(graceful["action"], "MARK_BLOCKLISTED_AND_EVACUATE_TASKS");
        assert_eq!(graceful["evacuation"]["grace_ms"], 120_000);
        let without_merge = BlockArguments {
            no_merge: true,
            ..block.clone()
        };
        assert_eq!(request(&without_merge)["allow_merge"], false);
        let now = Timestamp::from_unix_ms(1_000);
        let fault = |block: &BlockArguments| block.check(now).unwrap_err().to_string();
        let empty = BlockArguments {
            duration_ms: Some(0),
            ..block.clone()
        };
        assert!(fault(&empty).contains("blocks nothing"));
        let past = BlockArguments {
            until: Some(now),
            ..block.clone()
        };
        assert!(fault(&past).contains("has passed"));
        let mut scoped = block;
        scoped.target.job = Some(WorkId::new("job_1").unwrap());
        assert_eq!(request(&scoped)["scope"], "JOB:job_1");
    }
}
