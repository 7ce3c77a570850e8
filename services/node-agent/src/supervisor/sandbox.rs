//! What a supervisor takes from itself before it starts the program, which inherits the rest
//! (S18, F36). No code of ours runs between the fork and the program.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::close;

use super::Order;

/// Most open files of a program; more has to be allowed to the agent first.
const FILES: u64 = 65_536;

/// Closes whatever the agent was started with and did not know of. Before anything is opened here.
pub fn close_inherited() {
    let names: Vec<_> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let numbers = names.iter().filter_map(|name| name.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2) {
        // The listing's own is closed already.
        let _ = close(number);
    }
}

/// No set-id program gives rights, no memory lands in a file, and there are as many files and
/// processes as were said.
pub fn confine(order: &Order) -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o022));
    set_no_new_privs()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    lower(Resource::RLIMIT_NOFILE, FILES)?;
    if let Some(most) = order.processes_limit {
        lower(Resource::RLIMIT_NPROC, most)?;
    }
    Ok(())
}

fn lower(resource: Resource, most: u64) -> Result<(), Errno> {
    let (_, hard) = getrlimit(resource)?;
    let most = if hard == RLIM_INFINITY {
        most
    } else {
        hard.min(most)
    };
    setrlimit(resource, most, most)
}
