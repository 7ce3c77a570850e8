//! `hayward block`, `unblock` and `blocks`: machines and workers to be avoided.

use hayward_blocklist_api::{
    BlockAction, BlockAnswer, BlockEntry, BlockKind, BlockList, BlockOutcome, BlockRequest,
};
use hayward_vocabulary::{BadName, NodeName, Timestamp};
use serde_json::Value;

use crate::amounts;
use crate::connection::pages::{self, Pages};
use crate::connection::{Role, Service, Session};
use crate::output::words::{duration, word};
use crate::output::{Look, Table, Tone, toned};

const PAGES: Pages = Pages {
    list: "items",
    next: "next_cursor",
};
const ITEMS: &str = "/v1/blocklist/items";

#[derive(Debug, Clone, clap::Args)]
pub struct Block {
    #[command(flatten)]
    pub what: What,
    /// Take off what runs there and start it elsewhere.
    #[arg(long)]
    pub evacuate: bool,
    /// For so long, as 10m or 1h30m. Default: what the service is set to.
    #[arg(long = "for", value_name = "DURATION", value_parser = amounts::duration_ms)]
    pub duration_ms: Option<u64>,
    /// Until this moment, as 2026-11-21T18:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "duration_ms")]
    pub until: Option<Timestamp>,
    /// Until it is taken away.
    #[arg(long, conflicts_with_all = ["duration_ms", "until"])]
    pub permanent: bool,
    /// Why; shown to everyone who asks.
    #[arg(long, value_name = "TEXT", default_value = "an operator said so")]
    pub because: String,
}

/// What is blocked.
#[derive(Debug, Clone, clap::Args)]
pub struct What {
    /// Name of the node, or with --worker the id of one allocation.
    #[arg(value_name = "NODE", value_parser = identifier)]
    pub identifier: String,
    /// It is one worker, not a node.
    #[arg(long)]
    pub worker: bool,
}

/// Both kinds of names keep to the same signs, so neither can leave the path.
fn identifier(text: &str) -> Result<String, BadName> {
    NodeName::new(text).map(String::from)
}

impl What {
    fn kind(&self) -> BlockKind {
        if self.worker {
            BlockKind::Worker
        } else {
            BlockKind::Node
        }
    }
}

pub async fn block(session: Session, block: Block) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Operator)?;
    let request = BlockRequest {
        kind: block.what.kind(),
        identifier: block.what.identifier,
        action: if block.evacuate {
            BlockAction::Evacuate
        } else {
            BlockAction::Mark
        },
        cause: block.because,
        end: block.until,
        duration_ms: block
            .duration_ms
            .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        permanent: block.permanent,
        removal_no: None,
    };
    let answer: Value = client.put(ITEMS, &request).await?;
    session.out.answer(answer, |answer: &BlockAnswer, look| {
        said(&request, answer, look)
    })
}

fn said(request: &BlockRequest, answer: &BlockAnswer, look: &Look) -> String {
    let what = &request.identifier;
    let done = match answer.outcome {
        BlockOutcome::None => {
            let why = answer.reason.as_deref().unwrap_or("it was so before");
            let why = why.replace('_', " ").to_lowercase();
            return format!("nothing changed for {what}: {why}\n");
        }
        outcome => word(&outcome),
    };
    let end = answer
        .item
        .as_ref()
        .map(|item| lasts(item, look))
        .unwrap_or_default();
    format!("{what} is blocked {end} ({done})\n")
}

fn lasts(item: &BlockEntry, look: &Look) -> String {
    match item.end {
        Some(end) => format!("for {}", duration(end.ms_since(look.now))),
        None => "until it is unblocked".to_owned(),
    }
}

pub async fn unblock(session: Session, what: What) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Operator)?;
    let path = format!("{ITEMS}/{}", what.kind().key(&what.identifier));
    let answer: Value = client.delete(&path).await?;
    session.out.answer(answer, |_: &Value, _| {
        format!("{} is unblocked\n", what.identifier)
    })
}

pub async fn list(session: Session) -> anyhow::Result<()> {
    let client = session.client(Service::Blocklist, Role::Reader)?;
    let answer = pages::all(&client, ITEMS, PAGES).await?;
    session
        .out
        .answer(answer, |list: &BlockList, look| table(&list.items, look))
}

pub fn table(items: &[BlockEntry], look: &Look) -> String {
    if items.is_empty() {
        return "nothing is blocked\n".to_owned();
    }
    let mut table = Table::new(["what", "name", "does", "since", "left", "by", "why"]);
    for item in items {
        let (does, tone) = match item.action {
            BlockAction::Mark => ("nothing new", Tone::Warning),
            BlockAction::Evacuate => ("is emptied", Tone::Bad),
        };
        let left = item.end.map(|end| duration(end.ms_since(look.now)));
        table.row([
            word(&item.kind).into(),
            (&item.identifier).into(),
            toned(does, tone),
            look.age(item.start).into(),
            left.as_deref().unwrap_or("permanent").into(),
            item.sources
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ")
                .into(),
            (&item.cause).into(),
        ]);
    }
    table.text(look)
}

#[cfg(test)]
mod tests {
    use hayward_blocklist_api::EvacuationPolicy;

    use super::*;

    #[test]
    fn a_table_of_blocks() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let item = |identifier: &str, action, end| BlockEntry {
            kind: BlockKind::Node,
            identifier: identifier.into(),
            action,
            cause: "ECC errors".into(),
            start: at,
            end,
            sources: ["manual:ada".to_owned()].into(),
            removal_no: 0,
            job: None,
            automatic: false,
            canary: false,
            evacuation: EvacuationPolicy::Immediate,
        };
        let items = [
            item("node-1", BlockAction::Evacuate, Some(at.plus_ms(600_000))),
            item("node-2", BlockAction::Mark, None),
        ];
        let look = Look {
            colour: false,
            now: at.plus_ms(30_000),
        };
        insta::assert_snapshot!(table(&items, &look));
        assert_eq!(table(&[], &look), "nothing is blocked\n");
    }
}
