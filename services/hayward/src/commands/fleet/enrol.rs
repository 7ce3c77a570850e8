//! `hayward enrol NODE`: makes a secret with which the agent of a new node fetches its first token.

use hayward_node_status_api::{Enrolment, EnrolmentRequest};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{NodeName, Size};
use serde_json::Value;

use crate::connection::{Role, Service, Session};
use crate::output::format::format_duration;
use crate::output::note;
use crate::value_parsers;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// Maximum memory that the agent may report, as 64G. Default: no limit.
    #[arg(long, value_name = "SIZE", value_parser = value_parsers::parse_bytes)]
    pub memory: Option<u64>,
    /// Maximum number of CPUs that the agent may report. Default: no limit.
    #[arg(long, value_name = "CPUS", value_parser = value_parsers::parse_cpu_milli)]
    pub cpu: Option<u64>,
    /// The only pool that the agent may report. Default: any pool.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
}

impl Arguments {
    fn limit(&self) -> Option<Size> {
        let limit = Size {
            memory_bytes: self.memory.unwrap_or(0),
            cpu_milli: self.cpu.unwrap_or(0),
            ..Size::default()
        };
        (limit != Size::default()).then_some(limit)
    }
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Operator)?;
    let url = session.url(Service::NodeStatus)?;
    let limit = arguments.limit();
    let request = EnrolmentRequest {
        node: arguments.node,
        limit,
        pool: arguments.pool,
    };
    let key = fresh_uuid().simple().to_string();
    let response: Value = client.post("/v1/enrolments", &request, Some(&key)).await?;
    let node = &request.node;
    if !session.out.json {
        note(&format!(
            "The secret is shown only now, and valid for one use. On {node}, write it to a file \
             of mode 600 and name that file in HAYWARD_ENROLMENT_SECRET_FILE of the agent, or \
             call\n\n  \
             curl -sd '{{\"secret\":\"…\"}}' -H 'Content-Type: application/json' \
             {url}/v1/nodes/{node}/credentials\n\nwhich returns the agent's token for a \
             file that HAYWARD_TOKEN_FILE of the agent names.\n"
        ));
    }
    session
        .out
        .print_response(response, |enrolment: &Enrolment, renderer| {
            let remaining = format_duration(enrolment.expires_at.ms_since(renderer.now));
            note(&format!("It can be used for {remaining}:"));
            format!("{}\n", enrolment.secret)
        })
}
