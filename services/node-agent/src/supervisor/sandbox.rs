//! Restrictions that a supervisor applies to itself before it starts the program. The program
//! inherits the restrictions, so no code runs between fork and exec (S18).

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::close;

use super::LaunchSpec;

/// Maximum number of open files of a program.
const MAX_OPEN_FILES: u64 = 65_536;

/// Closes inherited file descriptors. This must run before any file is opened.
pub fn close_inherited() {
    let names: Vec<_> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let numbers = names.iter().filter_map(|name| name.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2) {
        // The descriptor of the directory listing is already closed, so errors are ignored.
        let _ = close(number);
    }
}

/// Disables set-id programs and core dumps, and limits open files and processes.
pub fn confine(spec: &LaunchSpec) -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o022));
    set_no_new_privs()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    lower_limit(Resource::RLIMIT_NOFILE, MAX_OPEN_FILES)?;
    if let Some(limit) = spec.processes_limit {
        lower_limit(Resource::RLIMIT_NPROC, limit)?;
    }
    Ok(())
}

fn lower_limit(resource: Resource, limit: u64) -> Result<(), Errno> {
    let (_, hard) = getrlimit(resource)?;
    let limit = if hard == RLIM_INFINITY {
        limit
    } else {
        hard.min(limit)
    };
    setrlimit(resource, limit, limit)
}
