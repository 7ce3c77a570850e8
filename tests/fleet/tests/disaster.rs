//! A node is lost with its whole state directory. A backup restores the fleet on an empty node
//! (R9).

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use hayward::state::read_fleet;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::{Client, TokenSource};
use hayward_testkit::until_within;
use hayward_tests_fleet::{is_running, program, reaches};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(3);

/// A fleet of `hayward up` with a private Postgres of its own. Dropping it ends all its processes.
struct Machine {
    /// Folder of the test, with the state directory and the backup in it.
    dir: TempDir,
    up: Option<Child>,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        // The account of the private Postgres must be able to reach its folder.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), passable).expect("open to pass");
        Self { dir, up: None }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        let ours = |name: &str| name.starts_with("HAYWARD_") && name != "HAYWARD_PG_BIN";
        let other_variables =
            std::env::vars_os().filter(|(name, _)| !ours(&name.to_string_lossy()));
        command
            .args(words)
            .env_clear()
            .envs(other_variables)
            .env_remove("DATABASE_URL")
            .env("HAYWARD_STATE", self.state())
            .env("USER", "ada")
            .stdin(Stdio::null());
        command
    }

    fn hayward(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the program runs")
    }

    /// Returns the output of a command that must succeed.
    fn printed(&self, words: &[&str]) -> String {
        let output = self.hayward(words);
        assert!(output.status.success(), "{words:?}: {}", text_of(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Submits work. Returns its path when it has succeeded or, for a service, when it runs.
    fn submitted(&self, words: &[&str], kind: &str) -> String {
        let printed = self.printed(words);
        format!("/v1/{kind}/{}", printed.lines().next().expect("an id"))
    }

    /// Waits until work can start. Another program may take a port that was free.
    async fn start(&mut self) {
        until_within("a fleet that is up", LIMIT, async || {
            let gone = |up: &mut Child| up.try_wait().expect("a child").is_some();
            if self.up.as_mut().is_none_or(gone) {
                let port = first_of_five().to_string();
                let words = ["up", "--agents", "2", "--port", &port];
                let mut up = self.command(&words);
                self.up = Some(up.stdout(Stdio::null()).spawn().expect("the program runs"));
            }
            read_fleet(&self.state()).ok()
        })
        .await;
    }

    fn client(&self, token: &str) -> Client {
        let fleet = read_fleet(&self.state()).expect("a fleet");
        let address = [fleet.addresses.job_converter];
        Client::new(address, TokenSource::fixed(token)).expect("a client")
    }

    fn token(&self) -> String {
        let file = self.state().join("keys/tokens/user-ada.token");
        std::fs::read_to_string(file).expect("a token")
    }

    /// Simulates a loss of power and disk.
    async fn lose(&mut self) {
        let mut up = self.up.take().expect("a fleet");
        up.kill().expect("ours");
        up.wait().expect("ours");
        // Processes of the fleet may still write while they end.
        let state = self.state();
        until_within("the state directory to be gone", LIMIT, async || {
            drop(std::fs::remove_dir_all(&state));
            (!state.exists()).then_some(())
        })
        .await;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut up) = self.up.take() {
            drop(up.kill());
            drop(up.wait());
        }
    }
}

fn text_of(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the first of five free ports in a row.
fn first_of_five() -> u16 {
    let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    loop {
        let found = free(0).and_then(|it| it.local_addr()).expect("a free port");
        let first = found.port();
        let five: Result<Vec<_>, _> = (first..first.saturating_add(5)).map(free).collect();
        if five.is_ok_and(|five| five.len() == 5) {
            return first;
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_makes_the_fleet_again_on_an_empty_machine() {
    let mut machine = Machine::new();
    machine.start().await;
    let job = ["submit", "-q", "--wait", "--count", "3", "--", "true"];
    let done = machine.submitted(&job, "jobs");
    let service = ["service", "submit", "-q", "--wait", "--", "sleep", "1000"];
    let service_path = machine.submitted(&service, "services");
    let token = machine.token();
    let backup = machine.dir.path().join("saved");
    machine.printed(&["backup", text(&backup)]);
    let issuer = std::fs::read(machine.state().join("keys/issuer.pub.pem")).expect("a key");

    machine.lose().await;
    let dry_run = machine.printed(&["restore", text(&backup), "--dry-run"]);
    assert!(dry_run.contains("nothing was changed"), "{dry_run}");
    for made in ["pg", "keys"] {
        assert!(!machine.state().join(made).exists(), "{made}");
    }
    machine.printed(&["restore", text(&backup)]);
    let put_back = std::fs::read(machine.state().join("keys/issuer.pub.pem"));
    assert_eq!(put_back.expect("the key is back"), issuer);

    machine.start().await;
    // The token is from before the loss.
    let ada = machine.client(&token);
    let known: WorkView = ada.get(&done).await.expect("what was done is known");
    assert_eq!(known.state, WorkState::Completed);
    reaches(&ada, &service_path, LIMIT, is_running).await;
    machine.submitted(&job, "jobs");
}
