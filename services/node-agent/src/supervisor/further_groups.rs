//! Starts a program under its account, with the further groups of the account.
//!
//! `Command` gives up all further groups when it changes the user, unless the process may not
//! change groups. So the supervisor sets the groups of the account for itself, gives up the right
//! to change groups, starts the program, and takes both back.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::process::{getgid, getgroups};
use rustix::thread::{
    CapabilitySet, Gid, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
};

use super::container_files::ProcessAccount;

pub fn spawn(command: &mut Command, account: &ProcessAccount) -> io::Result<Child> {
    if let Some(uid) = account.uid {
        command.uid(uid);
    }
    match account.gid {
        Some(gid) if !account.further_groups.is_empty() => {
            spawn_with_groups(command, Gid::from_raw(gid), &account.further_groups)
        }
        Some(gid) => command.gid(gid).spawn(),
        None => command.spawn(),
    }
}

fn spawn_with_groups(command: &mut Command, gid: Gid, further: &[u32]) -> io::Result<Child> {
    let further: Vec<Gid> = further.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (own_gid, groups_before) = (getgid(), getgroups()?);
    let capabilities_before = capabilities(None)?;
    let mut without_groups = capabilities_before;
    without_groups.effective.remove(CapabilitySet::SETGID);
    set_thread_groups(&further)?;
    set_thread_res_gid(gid, gid, gid)?;
    let spawned = set_capabilities(None, without_groups)
        .map_err(io::Error::from)
        .and_then(|()| command.spawn());
    set_capabilities(None, capabilities_before)?;
    set_thread_res_gid(own_gid, own_gid, own_gid)?;
    set_thread_groups(&groups_before)?;
    spawned
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// (TC-24)
    #[test]
    fn a_program_has_exactly_the_groups_of_its_account() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can change groups");
            return;
        }
        let own_gid = getgid();
        let before = (getgroups().unwrap(), capabilities(None).unwrap());
        for (further, expected) in [(vec![], "4002"), (vec![44, 999], "4002 44 999")] {
            let account = ProcessAccount {
                uid: Some(4001),
                gid: Some(4002),
                further_groups: further,
            };
            let mut command = Command::new("sh");
            command.args(["-c", "id -G; id -u; grep CapEff /proc/self/status"]);
            let child = spawn(command.stdout(Stdio::piped()), &account).unwrap();
            let output = child.wait_with_output().unwrap().stdout;
            let text = String::from_utf8(output).unwrap();
            assert_eq!(text, format!("{expected}\n4001\nCapEff:\t{:016x}\n", 0));
            assert_eq!(getgid(), own_gid);
            assert_eq!((getgroups().unwrap(), capabilities(None).unwrap()), before);
        }
    }
}
