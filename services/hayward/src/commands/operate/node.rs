//! `hayward node`: shows and manages one node. A node that an operator has varied off takes no new
//! work until it is varied on.

mod drain;
mod show;
mod vary_on;

use hayward_node_status_api::{Identity, NodeEntry, Schedulable};
use hayward_vocabulary::NodeName;
use http::Method;
use serde_json::Value;

use crate::connection::{Role, Service, Session};
use crate::output::Renderer;

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The node to show, with its history, the evidence against it and its containers.
    #[arg(value_name = "NODE", required = true)]
    pub node: Option<NodeName>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Show one node: its state, the next step, its history, evidence and containers
    Show(IdArg),
    /// Vary a node off: it takes no new work, and work of fair-share classes leaves it
    ///
    /// Work of all other classes, services and reservations stay there until the node is drained or
    /// they end.
    Off(VaryArguments),
    /// Vary a node on again: it takes new work, and a drain that holds it ends
    On(VaryArguments),
    /// Empty a node: preview, watch, pause or cancel the drain
    Drain(drain::Arguments),
    /// Choose which of two agents with the same name is the node
    Identify(IdentifyArguments),
    /// Remove a node that will not come back
    Forget(IdArg),
}

#[derive(Debug, Clone, clap::Args)]
pub struct IdArg {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
}

#[derive(Debug, Clone, clap::Args)]
pub struct VaryArguments {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// Reason, shown with the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct IdentifyArguments {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// The instance that stays, as `hayward node NODE` lists them; the others are refused.
    #[arg(value_name = "INSTANCE")]
    pub instance: String,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let command = match (arguments.command, arguments.node) {
        (Some(command), _) => command,
        (None, Some(node)) => Command::Show(IdArg { node }),
        (None, None) => anyhow::bail!("name a node; `hayward nodes` lists them"),
    };
    match command {
        Command::Show(arg) => show::run(&session, &arg.node).await,
        Command::Off(vary) => vary_off(&session, vary).await,
        Command::On(vary) => vary_on::run(&session, vary).await,
        Command::Drain(arguments) => drain::run(&session, arguments).await,
        Command::Identify(arguments) => identify(&session, arguments).await,
        Command::Forget(arg) => {
            let client = session.client(Service::NodeStatus, Role::Operator)?;
            let path = format!("/v1/nodes/{}", arg.node);
            let forget = client.call(Method::DELETE, path).if_match_any();
            let response: Value = forget.send().await?;
            session.out.print_response(response, |(): &(), _| {
                format!("{} is forgotten\n", arg.node)
            })
        }
    }
}

async fn vary_off(session: &Session, vary: VaryArguments) -> anyhow::Result<()> {
    let response = set_schedulable(session, vary, false).await?;
    let text = |entry: &NodeEntry, _: &Renderer| format!("{} is off\n", entry.node);
    session.out.print_response(response, text)
}

/// Varies the node on or off, and returns its new state.
async fn set_schedulable(
    session: &Session,
    vary: VaryArguments,
    schedulable: bool,
) -> anyhow::Result<Value> {
    let client = session.client(Service::NodeStatus, Role::Operator)?;
    let body = Schedulable {
        schedulable,
        reason: vary.reason,
    };
    let path = format!("/v1/nodes/{}/schedulable", vary.node);
    let call = client.call(Method::PUT, path).body(&body);
    Ok(call.if_match_any().send().await?)
}

/// Chooses the agent instance that is the node. The other instances are refused.
async fn identify(session: &Session, identify: IdentifyArguments) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Operator)?;
    let body = Identity {
        agent_instance: identify.instance,
    };
    let path = format!("/v1/nodes/{}/identity", identify.node);
    let call = client.call(Method::PUT, path).body(&body);
    let response: Value = call.if_match_any().send().await?;
    session
        .out
        .print_response(response, |entry: &NodeEntry, _| {
            format!("{} is {}\n", body.agent_instance, entry.node)
        })
}
