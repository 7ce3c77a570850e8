//! Starts the program of a container under its account.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use super::container_files::{LaunchSpec, ProcessAccount};
use super::further_groups;

pub struct Streams {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
}

/// A program of Hayward under an account that may be unable to reach its file.
pub struct OwnProgram<'a> {
    pub argv: &'a [String],
    pub environment: &'a BTreeMap<String, String>,
    pub account: ProcessAccount,
}

impl OwnProgram<'_> {
    /// Starts the program in the current directory of this process.
    pub fn spawn(&self, streams: Streams) -> io::Result<Child> {
        let (program, arguments) = split(self.argv)?;
        // The file is opened by this process, which can reach it.
        let file = open_own(program)?;
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command
            .arg0(program)
            .args(arguments)
            .env_clear()
            .envs(self.environment);
        spawn(command, streams, &self.account)
    }
}

/// Opens the program of this process, if its path is this one. The file at the path may be that of
/// another version by now.
fn open_own(program: &str) -> io::Result<File> {
    let own = std::fs::read_link("/proc/self/exe")?;
    let own = own.to_string_lossy();
    if own.strip_suffix(" (deleted)").unwrap_or(&own) == program {
        File::open("/proc/self/exe")
    } else {
        File::open(program)
    }
}

/// Starts the program of a user, which is looked up with the rights of the user.
pub fn spawn_program(spec: &LaunchSpec, streams: Streams) -> io::Result<Child> {
    let (program, arguments) = split(&spec.argv)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&spec.environment);
    if !spec.own_directory {
        command.current_dir(&spec.working_directory);
    }
    spawn(command, streams, &spec.account())
}

fn split(argv: &[String]) -> io::Result<(&String, &[String])> {
    argv.split_first()
        .ok_or_else(|| io::Error::other("the argument vector is empty"))
}

fn spawn(mut command: Command, streams: Streams, account: &ProcessAccount) -> io::Result<Child> {
    command
        .stdin(streams.stdin)
        .stdout(streams.stdout)
        .stderr(streams.stderr)
        .process_group(0);
    further_groups::spawn(&mut command, account)
}
