//! Access lists of the form `"*" | users [" " groups]`, each a comma-separated list. A leading
//! blank means that there are groups only.

use hayward_rm_scheduler_domain::snapshot::queues::Acl;

use super::{At, Faults};

pub(super) fn read(text: &str, at: &At, faults: &mut Faults) -> Acl {
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
        faults.add(at, detail);
        return Acl::default();
    }
    let list = |at: usize| {
        let names = fields.get(at).copied().unwrap_or("").split(',');
        names.filter(|name| !name.is_empty()).map(str::to_owned)
    };
    let acl = Acl {
        everyone: list(0).any(|name| name == "*"),
        users: list(0).collect(),
        groups: list(1).collect(),
    };
    for name in acl.users.iter().chain(&acl.groups) {
        check_name(name, at, faults);
    }
    acl
}

/// Checks the name of a user or group.
pub(super) fn check_name(name: &str, at: &At, faults: &mut Faults) {
    let starts = name.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_');
    let rest = |it: char| it.is_ascii_alphanumeric() || "_.@:/$-".contains(it);
    if name != "*" && !(starts && name.chars().all(rest)) {
        let detail = format!("{name:?} is not a valid name of a user or group");
        faults.add(at, detail);
    }
}
