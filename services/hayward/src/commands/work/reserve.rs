//! `hayward reserve`, `reservations` and `release`: reserve whole nodes, list and end reservations.

use std::process::ExitCode;

use anyhow::bail;
use hayward_job_converter_api::submission::ReservationSubmission;
use hayward_vocabulary::{NodeName, Size};

use crate::commands::work::cancel;
use crate::commands::work::submit::{self, AfterSubmit};
use crate::commands::work::{self, Listing};
use crate::connection::Session;
use crate::value_parsers;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Name of the reservation, for people.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// The class whose share the reservation uses. Default: the policy's class for reservations.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Minimum memory of the node, as 8G.
    #[arg(long, value_name = "SIZE", value_parser = value_parsers::parse_bytes)]
    pub memory: Option<u64>,
    /// Minimum number of CPUs of the node.
    #[arg(long, value_name = "CPUS", value_parser = value_parsers::parse_cpu_milli)]
    pub cpu: Option<u64>,
    /// Reserve only this node. May be repeated for a choice of nodes.
    #[arg(long = "machine", value_name = "NODE")]
    pub machines: Vec<NodeName>,
    /// A label, for people and programs. May be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = value_parsers::parse_pair)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub after: AfterSubmit,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (memory, cpu) = (arguments.memory, arguments.cpu);
    let size = (memory.is_some() || cpu.is_some()).then(|| Size {
        memory_bytes: memory.unwrap_or(0),
        cpu_milli: cpu.unwrap_or(0),
        ..Size::default()
    });
    let reservation = ReservationSubmission {
        name: arguments.name,
        class: arguments.class,
        size,
        machines: arguments.machines,
        labels: arguments.labels.into_iter().collect(),
    };
    submit::send(&session, "reservations", &reservation, &arguments.after).await
}

pub async fn list(session: Session, listing: Listing) -> anyhow::Result<()> {
    work::print_list(session, "reservations", &listing).await
}

pub async fn release(session: Session, arg: cancel::Arguments) -> anyhow::Result<()> {
    if let Some(other) = arg.ids.iter().find(|id| !id.as_str().starts_with("rsv_")) {
        bail!("{other} is no reservation; `hayward cancel` ends other work");
    }
    cancel::run(session, arg).await
}
