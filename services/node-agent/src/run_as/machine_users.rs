//! The machine's own list of users and groups, from all its sources such as files and LDAP.

use std::ffi::CString;

use hayward_node_agent_domain::account_choice::{MachineUsers, SystemGroup, SystemUser};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

#[derive(Debug)]
pub struct SystemLists;

impl MachineUsers for SystemLists {
    fn user(&self, name: &str) -> Result<Option<SystemUser>, String> {
        let found = User::from_name(name).map_err(|error| error.to_string())?;
        Ok(found.map(|user| SystemUser {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir,
            shell: user.shell,
        }))
    }

    fn name_of(&self, uid: u32) -> Result<Option<String>, String> {
        let found = User::from_uid(Uid::from_raw(uid)).map_err(|error| error.to_string())?;
        Ok(found.map(|user| user.name))
    }

    fn groups_of(&self, user: &SystemUser) -> Result<Vec<SystemGroup>, String> {
        let name = CString::new(user.name.as_str()).map_err(|error| error.to_string())?;
        let gids = getgrouplist(&name, Gid::from_raw(user.gid));
        let gids = gids.map_err(|error| error.to_string())?;
        gids.into_iter()
            .map(|gid| {
                let group = Group::from_gid(gid).map_err(|error| error.to_string())?;
                Ok(SystemGroup {
                    gid: gid.as_raw(),
                    name: group.map(|group| group.name),
                })
            })
            .collect()
    }
}
