//! Parser of access control lists (ACLs), which name the users and groups that may use a queue.
//! The form is `"*" | users [" " groups]`. Users and groups are separated by commas. A leading
//! blank means that there are groups only.

use hayward_rm_scheduler_domain::snapshot::queues::Acl;

use super::{Faults, JsonPointer};

/// Parses an access list.
pub(super) fn read(text: &str, pointer: &JsonPointer, faults: &mut Faults) -> Acl {
    if text.trim() == "*" {
        return Acl {
            everyone: true,
            ..Acl::default()
        };
    }
    let fields: Vec<&str> = text.trim_end().split(' ').collect();
    if fields.len() > 2 {
        let detail = "has more than two fields: write users with commas, one blank, groups with \
                      commas";
        faults.add(pointer, detail);
        return Acl::default();
    }
    let names_in = |field: usize| {
        let names = fields.get(field).copied().unwrap_or("").split(',');
        names.filter(|name| !name.is_empty()).map(str::to_owned)
    };
    let acl = Acl {
        everyone: names_in(0).any(|name| name == "*"),
        users: names_in(0).collect(),
        groups: names_in(1).collect(),
    };
    for name in acl.users.iter().chain(&acl.groups) {
        check_name(name, pointer, faults);
    }
    acl
}

/// Checks the name of a user or group.
pub(super) fn check_name(name: &str, pointer: &JsonPointer, faults: &mut Faults) {
    let has_valid_start = name.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_');
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "_.@:/$-".contains(it);
    if name != "*" && !(has_valid_start && name.chars().all(is_allowed)) {
        let detail = format!("{name:?} is not a valid name of a user or group");
        faults.add(pointer, detail);
    }
}
