//! No secret occurs in the output of a running fleet: answers with their headers, logs, and errors
//! of programs. `telemetry.rs` tests the same for telemetry (S23).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use hayward::prepare::{self, certificate_authority};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::Submitted;
use hayward_node_status_api::Enrolment;
use hayward_testkit::until;
use hayward_tests_fleet::{Agent, TestFleet};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Name of each secret, by the secret. Keys and tokens of the fleet are secrets as well.
struct PlantedSecrets(BTreeMap<String, String>);

impl PlantedSecrets {
    fn from_keys(dir: &Path) -> Self {
        let mut planted = Self(BTreeMap::new());
        planted.collect_from(dir);
        planted
    }

    fn collect_from(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.collect_from(&path);
                continue;
            }
            let name = path.display().to_string();
            let text = std::fs::read_to_string(&path).unwrap();
            let kind = path.extension().unwrap_or_default();
            if kind == "token" {
                // The signature is unique to the token.
                let signature = text.trim().rsplit('.').next().unwrap();
                self.add(&name, signature);
            } else if name.ends_with("issuer.pem") || kind == "key" {
                for line in text.lines().filter(|line| !line.starts_with('-')) {
                    self.add(&name, line);
                }
            }
        }
    }

    fn add(&mut self, name: &str, text: &str) {
        assert!(text.len() >= 12, "{name} is too short to be unique");
        self.0.insert(text.to_owned(), name.to_owned());
    }

    fn assert_absent_from(&self, place: &str, text: &str) {
        for (secret, name) in &self.0 {
            assert!(
                !text.contains(secret.as_str()),
                "{place} has {name}: {text:.2000}"
            );
        }
    }
}

async fn send_raw(fleet: &TestFleet, service: &str, request: &str) -> String {
    let host = fleet.url(service).trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut output = Vec::new();
    let _ = stream.read_to_end(&mut output).await;
    String::from_utf8_lossy(&output).into_owned()
}

/// Returns the paths of all GET routes in the description of the service, with their parameters
/// replaced by values.
async fn readable_paths(
    fleet: &TestFleet,
    service: &str,
    parameters: &[(&str, String)],
) -> Vec<String> {
    let operator = fleet.client(service, "operator");
    let description: Value = operator.get("/v1/openapi.json").await.unwrap();
    let paths = description["paths"].as_object().unwrap();
    let readable = paths
        .iter()
        .filter(|(_, routes)| routes.get("get").is_some());
    let filled = readable.map(|(path, _)| {
        parameters.iter().fold(path.clone(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), value)
        })
    });
    filled.collect()
}

#[tokio::test]
async fn planted_secrets_are_in_no_response_and_no_log() {
    let mut fleet = TestFleet::start().await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    certificate_authority::renew_certificates(&fleet.keys, &[]).unwrap();
    let mut planted = PlantedSecrets::from_keys(fleet.keys.dir());
    assert!(planted.0.len() > 12, "there are secrets to search");

    let operator = fleet.client("node-status", "operator");
    let request = json!({ "node": "new-1" });
    let enrolled: Enrolment = operator
        .post("/v1/enrolments", &request, Some("first"))
        .await
        .unwrap();
    planted.add("the secret of an enrolment", &enrolled.secret);

    let ada = fleet.client("job-converter", "user-ada");
    let job = json!({ "command": ["true"], "tasks": { "count": 2 } });
    let submitted: Submitted = ada.post("/v1/jobs", &job, Some("one")).await.unwrap();
    let path = format!("/v1/jobs/{}", submitted.id);
    until("the job to end", async || {
        let view: WorkView = ada.get(&path).await.ok()?;
        (view.tasks?.succeeded == 2).then_some(())
    })
    .await;

    let parameters = [
        ("id", submitted.id.to_string()),
        ("work", submitted.id.to_string()),
        ("node", "node-1".to_owned()),
        ("name", "node-1".to_owned()),
        ("user", "ada".to_owned()),
    ];
    let mut response_count = 0;
    for (service, _) in prepare::SERVICES {
        let paths = readable_paths(&fleet, service, &parameters).await;
        for token_name in ["operator", "user-ada"] {
            let token = fleet.keys.token(token_name).unwrap();
            for path in &paths {
                let head =
                    format!("host: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n");
                let request = format!("GET {path} HTTP/1.1\r\n{head}\r\n");
                let output = send_raw(&fleet, service, &request).await;
                response_count += usize::from(output.starts_with("HTTP/1.1 200"));
                planted.assert_absent_from(&format!("{service} {path} to {token_name}"), &output);
            }
        }
        send_misplaced_secrets(&fleet, service, &planted).await;
    }
    assert!(
        response_count > 30,
        "only {response_count} answers were searched"
    );
    check_errors_of_programs(&fleet, &mut planted);
    assert_absent_from_logs(&fleet, &planted);
}

fn assert_absent_from_logs(fleet: &TestFleet, planted: &PlantedSecrets) {
    let mut logs = 0;
    for entry in std::fs::read_dir(fleet.dir.path()).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|kind| kind == "log") {
            let output = std::fs::read_to_string(&path).unwrap();
            logs += usize::from(!output.is_empty());
            planted.assert_absent_from(&path.display().to_string(), &output);
        }
    }
    assert!(logs >= 6, "only {logs} logs were searched");
}

/// Sends requests with secrets in wrong places: in the address, in a body, in a wrong header.
async fn send_misplaced_secrets(fleet: &TestFleet, service: &str, planted: &PlantedSecrets) {
    let token = fleet.keys.token("operator").unwrap();
    let head = "host: x\r\nconnection: close\r\n";
    let requests = [
        format!("GET /v1/status HTTP/1.1\r\n{head}authorization: Basic {token}\r\n\r\n"),
        format!("GET /v1/status HTTP/1.1\r\n{head}authorization: Bearer x{token}\r\n\r\n"),
        format!("GET /v1/status HTTP/1.1\r\n{head}authorization: Bearer {token}x\r\n\r\n"),
        format!("GET /v1/status?token={token} HTTP/1.1\r\n{head}\r\n"),
        format!(
            "POST /v1/status HTTP/1.1\r\n{head}authorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: 3\r\n\r\n{{{{{{"
        ),
    ];
    for request in requests {
        let output = send_raw(fleet, service, &request).await;
        assert!(output.starts_with("HTTP/1.1 4"), "{output}");
        planted.assert_absent_from(service, &output);
    }
}

/// Runs programs that fail with secrets in their settings.
fn check_errors_of_programs(fleet: &TestFleet, planted: &mut PlantedSecrets) {
    let password = "planted-password-of-a-role";
    planted.add("a password", password);
    let url = format!("postgres://role:{password}@127.0.0.1:1/none");
    let mut service = fleet.command("failing");
    service
        .args(["run", "blocklist"])
        .env("HAYWARD_KEYS", fleet.keys.dir())
        .env("HAYWARD_DATABASE_URL", &url);
    let mut unreadable = fleet.command("failing");
    unreadable
        .args(["run", "blocklist"])
        .env("HAYWARD_KEYS", fleet.keys.dir())
        .env(
            "HAYWARD_DATABASE_URL",
            format!("postgres://role:{password}@[/none"),
        );
    let mut prepare = fleet.command("failing");
    let keys = fleet.dir.path().join("other-keys");
    prepare
        .args(["prepare", "--keys"])
        .arg(keys)
        .env("HAYWARD_ADMIN_URL", &url);
    for mut command in [service, unreadable, prepare] {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        assert!(!output.status.success());
        let output = [output.stdout, output.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(!output.is_empty(), "the program gives a reason");
        planted.assert_absent_from("a program that fails", &output);
    }
}
