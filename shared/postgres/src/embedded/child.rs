//! The server as a child process that cannot outlive its parent.
//!
//! On Linux the kernel ends it: `setpriv` sets the parent-death signal and then becomes Postgres.
//! That signal belongs to the *thread* that started the child, so that thread stays until the child
//! ends. On systems without such a `setpriv`, a shell holds the other end of a pipe. The shell
//! stops Postgres when the pipe closes, and the pipe closes however the parent ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use tokio::sync::{oneshot, watch};

use super::account::Account;

/// Shell script that runs with the parent-death signal set. It exits at once if the parent ($1)
/// died before that. Otherwise it becomes Postgres.
const EXEC_SCRIPT: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;
/// Shell script that sends SIGQUIT to Postgres when the pipe closes. It ends with Postgres.
const WATCH_SCRIPT: &str = r#"
exec 3<&0
shift
"$@" </dev/null 3<&- &
server=$!
{ read -r _; kill -QUIT $server; } <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait $server
status=$?
kill $watcher 2>/dev/null
exit $status
"#;

/// The program to run and its account.
pub(super) struct ServerCommand {
    pub(super) account: Account,
    pub(super) postgres: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) log: PathBuf,
    /// Lock of the folder. It is held while the server lives and belongs to the owner of the
    /// server.
    pub(super) lock: File,
}

/// Receiver that becomes true when the server has ended.
pub(super) type EndReceiver = watch::Receiver<bool>;

/// Starts the server in a thread that lives as long as the server. Returns when the process
/// exists, which is before it accepts connections.
pub(super) async fn start(command: ServerCommand) -> io::Result<EndReceiver> {
    let (ended_sender, ended) = watch::channel(false);
    let (started_sender, started) = oneshot::channel();
    thread::Builder::new()
        .name("postgres".to_owned())
        .spawn(move || {
            match spawn(&command) {
                Ok(mut child) => {
                    let _ = started_sender.send(Ok(()));
                    // `Child::wait` would close the pipe, and the shell would stop the server. So
                    // the pipe is taken out and stays open until the server has ended.
                    let pipe = child.stdin.take();
                    if let Err(error) = child.wait() {
                        tracing::error!(%error, "cannot wait for the private Postgres");
                    }
                    drop(pipe);
                }
                Err(error) => {
                    let _ = started_sender.send(Err(error));
                }
            }
            drop(command.lock);
            let _ = ended_sender.send(true);
        })?;
    started
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the thread of the server ended")))?;
    Ok(ended)
}

fn spawn(server: &ServerCommand) -> io::Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&server.log)?;
    let mut command = if let Some(setpriv) = find_setpriv() {
        let mut command = server.account.command(setpriv);
        command.args(["--pdeathsig", "QUIT", "--", "/bin/sh", "-c", EXEC_SCRIPT]);
        command.stdin(Stdio::null());
        command
    } else {
        let mut command = server.account.command("/bin/sh");
        command.args(["-c", WATCH_SCRIPT]);
        command.stdin(Stdio::piped());
        command
    };
    command
        .arg("hayward-postgres")
        .arg(std::process::id().to_string())
        .arg(&server.postgres)
        .args(&server.arguments)
        // The child gets its own process group. Ctrl-C at the terminal must reach only us, because
        // Postgres must serve until the services have finished.
        .process_group(0)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// Finds the `setpriv` of util-linux. The one of busybox has no option for the death signal.
fn find_setpriv() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    ["/usr/bin/setpriv", "/bin/setpriv"]
        .into_iter()
        .map(Path::new)
        .find(|program| {
            Command::new(program)
                .arg("--help")
                .output()
                .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--pdeathsig"))
        })
        .map(Path::to_owned)
}
