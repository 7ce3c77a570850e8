//! `hayward enrol NODE`: a secret with which the agent of a new machine fetches its first token.

use hayward_node_status_api::{Enrolment, EnrolmentRequest};
use hayward_service::clock::fresh_uuid;
use serde_json::Value;

use crate::commands::node::Which;
use crate::connection::{Role, Service, Session};
use crate::output::note;
use crate::output::words::duration;

pub async fn run(session: Session, which: Which) -> anyhow::Result<()> {
    let client = session.client(Service::NodeStatus, Role::Operator)?;
    let url = session.url(Service::NodeStatus)?;
    let request = EnrolmentRequest { node: which.node };
    let key = fresh_uuid().simple().to_string();
    let answer: Value = client.post("/v1/enrolments", &request, Some(&key)).await?;
    let node = &request.node;
    if !session.out.json {
        note(&format!(
            "Shown this once, and good for one use. On {node}:\n\n  \
             curl -sd '{{\"secret\":\"…\"}}' -H 'Content-Type: application/json' \
             {url}/v1/nodes/{node}/credentials\n\nanswers with the agent's token, which \
             HAYWARD_TOKEN_FILE names for it.\n"
        ));
    }
    session.out.answer(answer, |enrolment: &Enrolment, look| {
        let left = duration(enrolment.expires_at.ms_since(look.now));
        note(&format!("It can be used for {left}:"));
        format!("{}\n", enrolment.secret)
    })
}
