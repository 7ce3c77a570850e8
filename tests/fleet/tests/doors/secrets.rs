//! Secrets are searched in all output of a running fleet: answers and their headers, logs, errors
//! of programs. The tests of telemetry search theirs (S23).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use hayward::prepare::{self, authority};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::Submitted;
use hayward_node_status_api::Enrolment;
use hayward_testkit::until;
use hayward_tests_fleet::{Agent, TestFleet};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Planted secrets by name.
struct Planted(BTreeMap<String, String>);

impl Planted {
    fn in_keys(dir: &Path) -> Self {
        let mut planted = Self(BTreeMap::new());
        planted.gather(dir);
        planted
    }

    fn gather(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.gather(&path);
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

    fn add(&mut self, what: &str, text: &str) {
        assert!(text.len() >= 12, "{what} is too short to be unique");
        self.0.insert(text.to_owned(), what.to_owned());
    }

    fn absent_from(&self, place: &str, text: &str) {
        for (secret, what) in &self.0 {
            assert!(
                !text.contains(secret.as_str()),
                "{place} has {what}: {text:.2000}"
            );
        }
    }
}

async fn raw(fleet: &TestFleet, service: &str, request: &str) -> String {
    let host = fleet.url(service).trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut output = Vec::new();
    let _ = stream.read_to_end(&mut output).await;
    String::from_utf8_lossy(&output).into_owned()
}

/// Reads every readable route of the service's description, with known names in its path.
async fn readable(fleet: &TestFleet, service: &str, known: &[(&str, String)]) -> Vec<String> {
    let operator = fleet.client(service, "operator");
    let described: Value = operator.get("/v1/openapi.json").await.unwrap();
    let paths = described["paths"].as_object().unwrap();
    let read = paths
        .iter()
        .filter(|(_, routes)| routes.get("get").is_some());
    let named = read.map(|(path, _)| {
        known.iter().fold(path.clone(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), value)
        })
    });
    named.collect()
}

#[tokio::test]
async fn planted_secrets_are_in_no_answer_and_no_log() {
    let mut fleet = TestFleet::start().await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.nodes_take_work(1).await;
    authority::renew_certificates(&fleet.keys, &[]).unwrap();
    let mut planted = Planted::in_keys(fleet.keys.dir());
    assert!(planted.0.len() > 12, "there are secrets to search");

    let operator = fleet.client("node-status", "operator");
    let order = json!({ "node": "new-1" });
    let enrolled: Enrolment = operator
        .post("/v1/enrolments", &order, Some("first"))
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

    let known = [
        ("id", submitted.id.to_string()),
        ("work", submitted.id.to_string()),
        ("node", "node-1".to_owned()),
        ("name", "node-1".to_owned()),
        ("user", "ada".to_owned()),
    ];
    let mut answers = 0;
    for (service, _) in prepare::SERVICES {
        let paths = readable(&fleet, service, &known).await;
        for token_name in ["operator", "user-ada"] {
            let token = fleet.keys.token(token_name).unwrap();
            for path in &paths {
                let head =
                    format!("host: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n");
                let ask = format!("GET {path} HTTP/1.1\r\n{head}\r\n");
                let output = raw(&fleet, service, &ask).await;
                answers += usize::from(output.starts_with("HTTP/1.1 200"));
                planted.absent_from(&format!("{service} {path} to {token_name}"), &output);
            }
        }
        odd_requests(&fleet, service, &planted).await;
    }
    assert!(answers > 30, "only {answers} answers were searched");
    errors_of_programs(&fleet, &mut planted);
    absent_from_logs(&fleet, &planted);
}

fn absent_from_logs(fleet: &TestFleet, planted: &Planted) {
    let mut logs = 0;
    for entry in std::fs::read_dir(fleet.dir.path()).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|kind| kind == "log") {
            let output = std::fs::read_to_string(&path).unwrap();
            logs += usize::from(!output.is_empty());
            planted.absent_from(&path.display().to_string(), &output);
        }
    }
    assert!(logs >= 6, "only {logs} logs were searched");
}

/// Sends requests with secrets in wrong places: in the address, in a body, in a wrong header.
async fn odd_requests(fleet: &TestFleet, service: &str, planted: &Planted) {
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
        let output = raw(fleet, service, &request).await;
        assert!(output.starts_with("HTTP/1.1 4"), "{output}");
        planted.absent_from(service, &output);
    }
}

/// Runs programs that fail with secrets in their settings.
fn errors_of_programs(fleet: &TestFleet, planted: &mut Planted) {
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
        assert!(!output.is_empty(), "it says why");
        planted.absent_from("a program that fails", &output);
    }
}
