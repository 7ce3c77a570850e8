//! `hayward status`: reads the state of all services in parallel.

use std::process::ExitCode;
use std::time::Duration;

use hayward_service::health::Status;
use serde_json::{Map, Value, json};

use crate::connection::{Role, Service, Session};
use crate::output::format::{format_duration, sanitize};
use crate::output::{Renderer, Table, Tone, error_text, print, toned};

/// Timeout of a request. A slower service counts as down.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Response of a service, or the reason why there is none.
type StatusResponse = Result<Value, String>;

/// Prints the states. Returns success only if every service answers and is ready.
pub async fn run(session: Session) -> anyhow::Result<ExitCode> {
    // A fleet without addresses is one error instead of five.
    session.url(Service::JobConverter)?;
    let [
        job_converter,
        rm_scheduler,
        container_manager,
        node_status,
        blocklist,
    ] = Service::ALL.map(|service| read_status(&session, service));
    let responses = tokio::join!(
        job_converter,
        rm_scheduler,
        container_manager,
        node_status,
        blocklist
    );
    let responses: Vec<(Service, StatusResponse)> = Service::ALL
        .into_iter()
        .zip(<[StatusResponse; 5]>::from(responses))
        .collect();
    let all_ready = responses.iter().all(|(_, response)| {
        response
            .as_ref()
            .is_ok_and(|status| status.get("ready") == Some(&Value::Bool(true)))
    });
    if session.out.json {
        session.out.json(&responses_to_json(responses))?;
    } else {
        print(&render_table(&responses, &session.out.renderer()))?;
    }
    Ok(if all_ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn read_status(session: &Session, service: Service) -> StatusResponse {
    let response = async {
        let client = session.client(service, Role::Reader)?;
        anyhow::Ok(client.get_with_timeout("/v1/status", TIMEOUT).await?)
    };
    response.await.map_err(|error: anyhow::Error| {
        error_text::describe(&error)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

/// Returns an object with the response of each service, or its error.
fn responses_to_json(responses: Vec<(Service, StatusResponse)>) -> Value {
    let all: Map<String, Value> = responses
        .into_iter()
        .map(|(service, response)| {
            (
                service.name().to_owned(),
                response.unwrap_or_else(|error| json!({ "error": error })),
            )
        })
        .collect();
    Value::Object(all)
}

fn render_table(responses: &[(Service, StatusResponse)], renderer: &Renderer) -> String {
    let header = [
        "service", "state", "up for", "version", "epoch", "revision", "follows", "notes",
    ];
    let mut table = Table::new(header).align_right(&[4, 5]);
    for (service, response) in responses {
        let parsed = response.clone().and_then(|status| {
            serde_json::from_value::<Status>(status).map_err(|error| error.to_string())
        });
        let status = match parsed {
            Ok(status) => status,
            Err(error) => {
                let dash = || "-".into();
                let unreachable = toned("away", Tone::Bad);
                let name = service.name().into();
                table.push_row([
                    name,
                    unreachable,
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                    dash(),
                    error.into(),
                ]);
                continue;
            }
        };
        let number_text =
            |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let (state, tone) = match (status.ready, status.leader) {
            (true, true) => ("leads", Tone::Good),
            (true, false) => ("ready", Tone::Good),
            (false, _) => ("not ready", Tone::Bad),
        };
        table.push_row([
            service.name().into(),
            toned(state, tone),
            format_duration(status.uptime_ms).into(),
            (&status.version).into(),
            number_text(status.epoch).into(),
            number_text(status.revision).into(),
            followers_text(&status).into(),
            toned(notes_text(&status), Tone::Warning),
        ]);
    }
    table.render(renderer)
}

fn followers_text(status: &Status) -> String {
    let followers = status.followers.iter().map(|follower| {
        let stale = if follower.stale { "stale" } else { "ok" };
        format!("{} {stale}", follower.publication)
    });
    let text = followers.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

/// Lists why the service is not ready, its insecure modes, and the faults of its stale copies.
fn notes_text(status: &Status) -> String {
    let faults = status.followers.iter().filter_map(|follower| {
        let fault = follower.fault.as_ref().filter(|_| follower.stale)?;
        Some(format!("{}: {fault}", follower.publication))
    });
    let all = status
        .not_ready
        .iter()
        .cloned()
        .chain(status.insecure_modes.iter().cloned());
    sanitize(&all.chain(faults).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    #[test]
    fn services_are_listed_in_a_table() {
        let ready = json!({
            "name": "rm-scheduler", "version": "0.1.0", "uptime_ms": 192_000, "ready": true,
            "not_ready": [], "leader": true, "epoch": 3, "revision": 1204, "insecure_modes": [],
            "followers": [
                {"publication": "demand", "lag_ms": 4, "stale": false},
                {"publication": "nodes", "stale": true, "fault": "connection refused"},
            ],
        });
        let standby = json!({
            "name": "blocklist", "version": "0.1.0", "uptime_ms": 900, "ready": false,
            "not_ready": ["on standby"], "leader": false, "insecure_modes": [], "followers": [],
        });
        let responses = [
            (Service::RmScheduler, Ok(ready)),
            (Service::Blocklist, Ok(standby)),
            (Service::NodeStatus, Err("cannot reach it".to_owned())),
        ];
        let renderer = Renderer {
            colour: false,
            now: Timestamp::default(),
        };
        insta::assert_snapshot!(render_table(&responses, &renderer));
    }
}
