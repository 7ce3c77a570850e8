//! A node is lost with its whole state directory. A backup restores the fleet on an empty node
//! (R9).

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use hayward::state_directory::read_fleet;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::{Client, TokenSource};
use hayward_testkit::until_within;
use hayward_tests_fleet::{hayward_program, is_running, wait_for_view};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(3);

/// A fleet of `hayward up` with its own private Postgres. Dropping it ends all its processes.
struct LocalFleet {
    /// Folder of the test, with the state directory and the backup in it.
    dir: TempDir,
    /// The process of `hayward up`. `None` while the fleet is down.
    process: Option<Child>,
}

impl LocalFleet {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        // The account of the private Postgres must be able to reach its folder.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), permissions).expect("permissions are set");
        Self { dir, process: None }
    }

    fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(hayward_program());
        let is_own_variable = |name: &str| name.starts_with("HAYWARD_") && name != "HAYWARD_PG_BIN";
        let other_variables =
            std::env::vars_os().filter(|(name, _)| !is_own_variable(&name.to_string_lossy()));
        command
            .args(arguments)
            .env_clear()
            .envs(other_variables)
            .env_remove("DATABASE_URL")
            .env("HAYWARD_STATE", self.state_dir())
            .env("USER", "ada")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }

    /// Returns the output of a command that must succeed.
    fn run_successfully(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            output_text(&output)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Submits work with these arguments, which contain `--wait`. Returns its path when the job has
    /// succeeded or the service runs.
    fn submit(&self, arguments: &[&str], kind: &str) -> String {
        let output = self.run_successfully(arguments);
        format!("/v1/{kind}/{}", output.lines().next().expect("an id"))
    }

    /// Starts `hayward up`, and waits until work can start. Tries again with other ports if another
    /// program has taken a port meanwhile.
    async fn start(&mut self) {
        until_within("a fleet that is up", LIMIT, async || {
            let has_exited = |process: &mut Child| process.try_wait().expect("a child").is_some();
            if self.process.as_mut().is_none_or(has_exited) {
                let port = first_of_five_free_ports().to_string();
                let arguments = ["up", "--agents", "2", "--port", &port];
                let mut up = self.command(&arguments);
                self.process = Some(up.stdout(Stdio::null()).spawn().expect("the program runs"));
            }
            read_fleet(&self.state_dir()).ok()
        })
        .await;
    }

    fn client(&self, token: &str) -> Client {
        let fleet = read_fleet(&self.state_dir()).expect("a fleet");
        let address = [fleet.addresses.job_converter];
        Client::new(address, TokenSource::fixed(token)).expect("a client")
    }

    fn token(&self) -> String {
        let file = self.state_dir().join("keys/tokens/user-ada.token");
        std::fs::read_to_string(file).expect("a token")
    }

    /// Simulates a loss of power and disk.
    async fn destroy(&mut self) {
        let mut process = self.process.take().expect("a fleet");
        process.kill().expect("killed");
        process.wait().expect("ended");
        // Processes of the fleet may still write while they end.
        let state = self.state_dir();
        until_within("the state directory to be gone", LIMIT, async || {
            drop(std::fs::remove_dir_all(&state));
            (!state.exists()).then_some(())
        })
        .await;
    }
}

impl Drop for LocalFleet {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn output_text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the first of five free ports in a row.
fn first_of_five_free_ports() -> u16 {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    loop {
        let address = bind(0).and_then(|it| it.local_addr()).expect("a free port");
        let first = address.port();
        let listeners: Result<Vec<_>, _> = (first..first.saturating_add(5)).map(bind).collect();
        if listeners.is_ok_and(|listeners| listeners.len() == 5) {
            return first;
        }
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_restores_the_fleet_on_an_empty_host() {
    let mut fleet = LocalFleet::new();
    fleet.start().await;
    let job = ["submit", "-q", "--wait", "--count", "3", "--", "true"];
    let job_path = fleet.submit(&job, "jobs");
    let service = ["service", "submit", "-q", "--wait", "--", "sleep", "1000"];
    let service_path = fleet.submit(&service, "services");
    let token = fleet.token();
    let backup = fleet.dir.path().join("saved");
    fleet.run_successfully(&["backup", path_text(&backup)]);
    let issuer = std::fs::read(fleet.state_dir().join("keys/issuer.pub.pem")).expect("a key");

    fleet.destroy().await;
    let dry_run = fleet.run_successfully(&["restore", path_text(&backup), "--dry-run"]);
    assert!(dry_run.contains("nothing was changed"), "{dry_run}");
    for folder in ["pg", "keys"] {
        assert!(!fleet.state_dir().join(folder).exists(), "{folder}");
    }
    fleet.run_successfully(&["restore", path_text(&backup)]);
    let restored_issuer = std::fs::read(fleet.state_dir().join("keys/issuer.pub.pem"));
    assert_eq!(restored_issuer.expect("the key is restored"), issuer);

    fleet.start().await;
    // The token is from before the loss.
    let ada = fleet.client(&token);
    let restored_job: WorkView = ada.get(&job_path).await.expect("the job is restored");
    assert_eq!(restored_job.state, WorkState::Completed);
    wait_for_view(&ada, &service_path, LIMIT, is_running).await;
    fleet.submit(&job, "jobs");
}
