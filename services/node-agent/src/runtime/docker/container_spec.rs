//! From a launch to the engine's own words for it: what a container may do is said here and
//! nowhere else.
//!
//! S16: never as uid 0, nor below [`LEAST_ID`]. S17: an argument vector, and an environment of
//! what the submission says and nothing of the agent's. S18: memory, cpu and number of processes
//! limited, no new privileges, no capabilities. S21: no privileged mode, no devices, no host
//! namespaces, and of the host's files only what the agent's own settings list.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
};
use hayward_vocabulary::launch::LEAST_ID;
use hayward_vocabulary::{AllocationId, ContainerForm, UserName};

use super::mounts;
use crate::run_as::Accounts;
use crate::runtime::Container;

/// Who runs in containers that name nobody: a number without rights, and without an account.
const NOBODY: u32 = 65_534;
const NANO_PER_MILLI: u64 = 1_000_000;

/// Labels of every container the agent makes.
pub const NODE: &str = "hayward.node";
pub const OWNER: &str = "hayward.owner";
pub const ALLOCATION: &str = "hayward.allocation";
pub const INCARNATION: &str = "hayward.incarnation";

/// What the operator of this machine says.
#[derive(Debug, Clone)]
pub struct Rules {
    pub node: String,
    /// Tells the containers of this agent from those of another one on the same engine.
    pub owner: String,
    /// Whom the work of users runs as.
    pub accounts: Accounts,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub network: String,
    /// `HOST:INSIDE` or `HOST:INSIDE:ro`.
    pub mounts: Vec<String>,
    /// Below these, and nowhere else, work may ask for directories.
    pub mountable: Vec<PathBuf>,
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub processes_limit: u64,
    pub output_limit_bytes: u64,
}

/// A second container of the same incarnation collides with it (I3).
pub fn name(id: &AllocationId, incarnation: u64) -> String {
    format!("hayward.{id}.{incarnation}")
}

/// Whether these are the labels of this incarnation, made by this agent.
pub fn is_ours(
    labels: &HashMap<String, String>,
    rules: &Rules,
    id: &AllocationId,
    incarnation: u64,
) -> bool {
    let says = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    says(OWNER, &rules.owner)
        && says(ALLOCATION, id.as_str())
        && says(INCARNATION, &incarnation.to_string())
}

/// # Errors
/// With what is wrong, for the user.
pub fn body(
    container: &Container,
    argv: &[String],
    form: &ContainerForm,
    rules: &Rules,
) -> Result<ContainerCreateBody, String> {
    let [program, arguments @ ..] = argv else {
        return Err("the argument vector is empty".to_owned());
    };
    let labels = [
        (NODE, rules.node.clone()),
        (OWNER, rules.owner.clone()),
        (ALLOCATION, container.id.to_string()),
        (INCARNATION, container.incarnation.to_string()),
    ];
    Ok(ContainerCreateBody {
        image: Some(form.image.clone()),
        // Both, or an entry point of the image's own would get the program as an argument.
        entrypoint: Some(vec![program.clone()]),
        cmd: Some(arguments.to_vec()),
        env: Some(environment(container)),
        user: Some(user(&container.user, form, rules)?),
        working_dir: container.launch.working_directory.clone(),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
        host_config: Some(host(container, form, rules)),
        ..ContainerCreateBody::default()
    })
}

fn host(container: &Container, form: &ContainerForm, rules: &Rules) -> HostConfig {
    let own = form.mounts.iter().map(mounts::bind);
    let memory = signed(container.size.memory_bytes);
    let log = [
        ("max-size", rules.output_limit_bytes.max(1).to_string()),
        ("max-file", "2".to_owned()),
    ];
    HostConfig {
        memory: Some(memory),
        // The same: no swap on top.
        memory_swap: Some(memory),
        nano_cpus: Some(signed(
            container.size.cpu_milli.saturating_mul(NANO_PER_MILLI),
        )),
        pids_limit: Some(signed(rules.processes_limit)),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        readonly_rootfs: Some(form.read_only),
        network_mode: Some(rules.network.clone()),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        binds: Some(rules.mounts.iter().cloned().chain(own).collect()),
        // F36: the engine's own copy is bounded too.
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(log.map(|(name, value)| (name.to_owned(), value)).into()),
        }),
        ..HostConfig::default()
    }
}

fn environment(container: &Container) -> Vec<String> {
    let mut variables: BTreeMap<&str, &str> = container
        .launch
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    variables.insert("HAYWARD_ALLOCATION", container.id.as_str());
    if let Some(parent) = &container.launch.traceparent {
        variables.insert("TRACEPARENT", parent);
    }
    let pair = |(name, value)| format!("{name}={value}");
    variables.into_iter().map(pair).collect()
}

/// S16: whom its user is mapped to; else whom the node says; else whom the submission does, unless
/// it sees files of the node, whose owner it would choose itself; else nobody.
fn user(user: &UserName, form: &ContainerForm, rules: &Rules) -> Result<String, String> {
    let chosen = |what: &str, own: Option<u32>, asked: Option<u32>| match (own, asked) {
        (Some(own), Some(asked)) if own != asked => Err(format!(
            "this node runs containers as {what} {own}, not as {asked}"
        )),
        (own, asked) => Ok(own.or(asked)),
    };
    let account = rules.accounts.mapped(user);
    let strange = account.is_none() && rules.uid.is_none() && !form.mounts.is_empty();
    let (own_uid, own_gid) = match account {
        Some(account) => (Some(account.uid), Some(account.gid)),
        None if strange => (Some(NOBODY), Some(NOBODY)),
        None => (rules.uid, rules.gid),
    };
    let uid = chosen("user", own_uid, form.uid)?.unwrap_or(NOBODY);
    let gid = chosen("group", own_gid, form.gid)?.unwrap_or(uid);
    if uid < LEAST_ID || gid < LEAST_ID {
        return Err(format!(
            "work runs as no user or group below {LEAST_ID}, and it would as {uid}:{gid}"
        ));
    }
    Ok(format!("{uid}:{gid}"))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// The host an image comes from.
pub fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::launch::Mount;
    use hayward_vocabulary::{Launch, Program, Size};

    use super::*;
    use crate::run_as::Own;

    const ROOT: Own = Own { uid: 0, gid: 0 };

    fn rules() -> Rules {
        Rules {
            node: "n".into(),
            owner: "o".into(),
            uid: None,
            gid: None,
            network: "bridge".into(),
            mounts: Vec::new(),
            mountable: Vec::new(),
            socket: "/run/x.sock".into(),
            state_dir: "/state".into(),
            accounts: Accounts::new(ROOT, "ada=4001:4002", (None, None)).unwrap(),
            processes_limit: 64,
            output_limit_bytes: 1000,
        }
    }

    fn form(uid: Option<u32>, gid: Option<u32>) -> ContainerForm {
        ContainerForm {
            image: "i".into(),
            uid,
            gid,
            read_only: true,
            mounts: Vec::new(),
        }
    }

    fn container() -> Container {
        let argv = vec!["/bin/x".to_owned(), "$HOME;y".to_owned()];
        Container {
            id: AllocationId::new("alc_1").unwrap(),
            incarnation: 3,
            epoch: 1,
            exclusive: false,
            work: "svc_1".parse().unwrap(),
            user: "ben".parse().unwrap(),
            size: Size {
                memory_bytes: 7 << 20,
                cpu_milli: 1500,
                ..Size::default()
            },
            launch: Launch {
                program: Program::Command { argv },
                environment: [("A".to_owned(), "b=c".to_owned())].into(),
                working_directory: None,
                stop_grace_ms: 1,
                traceparent: None,
                within: None,
            },
        }
    }

    #[test]
    fn s16_never_as_root_nor_as_a_system_account() {
        let as_whom =
            |form: &ContainerForm, rules: &Rules| user(&"ben".parse().unwrap(), form, rules);
        for (uid, gid) in [(Some(0), None), (Some(999), None), (Some(1000), Some(0))] {
            assert!(
                as_whom(&form(uid, gid), &rules()).is_err(),
                "{uid:?} {gid:?}"
            );
        }
        let own = |uid| Rules { uid, ..rules() };
        assert!(as_whom(&form(None, None), &own(Some(0))).is_err());
        assert!(as_whom(&form(Some(2000), None), &own(Some(3000))).is_err());
        for (form, rules, expected) in [
            (form(None, None), rules(), "65534:65534"),
            (form(Some(1000), None), rules(), "1000:1000"),
            (form(None, None), own(Some(3000)), "3000:3000"),
        ] {
            assert_eq!(as_whom(&form, &rules).unwrap(), expected);
        }
    }

    #[test]
    fn s16_the_map_of_users_holds_in_containers_too() {
        let ada = "ada".parse().unwrap();
        let own = Rules {
            uid: Some(3000),
            ..rules()
        };
        for rules in [rules(), own] {
            assert_eq!(user(&ada, &form(None, None), &rules).unwrap(), "4001:4002");
            assert_eq!(
                user(&ada, &form(Some(4001), None), &rules).unwrap(),
                "4001:4002"
            );
            assert!(user(&ada, &form(Some(4003), None), &rules).is_err());
        }
    }

    #[test]
    fn s21_who_sees_files_of_the_node_does_not_choose_whose_they_are() {
        let mount = Mount {
            source: "/srv/a".into(),
            target: "/a".into(),
            read_only: true,
        };
        let sees = |uid| ContainerForm {
            mounts: vec![mount.clone()],
            ..form(uid, None)
        };
        let ben = "ben".parse().unwrap();
        assert_eq!(user(&ben, &sees(None), &rules()).unwrap(), "65534:65534");
        assert!(user(&ben, &sees(Some(1000)), &rules()).is_err());
        let own = Rules {
            uid: Some(3000),
            ..rules()
        };
        assert_eq!(user(&ben, &sees(None), &own).unwrap(), "3000:3000");
        let body = body(&container(), &["x".to_owned()], &sees(None), &rules()).unwrap();
        assert_eq!(body.host_config.unwrap().binds.unwrap(), ["/srv/a:/a:ro"]);
    }

    #[test]
    fn s17_s18_s21_what_a_container_gets() {
        let argv = ["/bin/x".to_owned(), "$HOME;y".to_owned()];
        let body = body(&container(), &argv, &form(None, None), &rules()).unwrap();
        assert_eq!(body.entrypoint.unwrap(), ["/bin/x"]);
        assert_eq!(body.cmd.unwrap(), ["$HOME;y"]);
        assert_eq!(body.env.unwrap(), ["A=b=c", "HAYWARD_ALLOCATION=alc_1"]);
        let labels = body.labels.unwrap();
        assert!(is_ours(&labels, &rules(), &container().id, 3));
        assert!(!is_ours(&labels, &rules(), &container().id, 4));
        let host = body.host_config.unwrap();
        assert_eq!(
            (host.memory, host.memory_swap),
            (Some(7 << 20), Some(7 << 20))
        );
        assert_eq!(
            (host.nano_cpus, host.pids_limit),
            (Some(1_500_000_000), Some(64))
        );
        assert_eq!(host.privileged, Some(false));
        assert_eq!(host.cap_drop.unwrap(), ["ALL"]);
        assert_eq!(host.security_opt.unwrap(), ["no-new-privileges"]);
        assert_eq!(host.readonly_rootfs, Some(true));
        assert!(host.pid_mode.is_none() && host.devices.is_none() && host.cap_add.is_none());
        assert_eq!(host.log_config.unwrap().config.unwrap()["max-size"], "1000");
    }

    #[test]
    fn an_image_has_a_registry() {
        assert_eq!(registry("debian:12"), "docker.io");
        assert_eq!(registry("library/debian"), "docker.io");
        assert_eq!(registry("localhost/x"), "localhost");
        assert_eq!(registry("r.example:5000/a/b@sha256:0"), "r.example:5000");
    }
}
