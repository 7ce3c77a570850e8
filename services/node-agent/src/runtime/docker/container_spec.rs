//! Builds the description of a container for the engine. All permissions and limits of the
//! container are set here.
//!
//! - A container never runs as root or with an id below [`MIN_USER_ID`].
//! - A container has only the argument vector and environment of the submission.
//! - Memory, cpu and the number of processes are limited. There are no capabilities and no new
//!   privileges.
//! - There is no privileged mode, no device and no host namespace. A container sees only the host
//!   files that the settings list (S21).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
};
use hayward_vocabulary::launch::MIN_USER_ID;
use hayward_vocabulary::{AllocationId, ContainerForm, Exit, ExitCause};

use super::mounts;
use crate::run_as::Accounts;
use crate::runtime::Container;

/// Default uid: without rights and without an account.
const DEFAULT_UID: u32 = 65_534;
const NANO_PER_MILLI: u64 = 1_000_000;

/// Labels of all containers of the agent.
pub const NODE: &str = "hayward.node";
pub const OWNER: &str = "hayward.owner";
pub const ALLOCATION: &str = "hayward.allocation";
pub const INCARNATION: &str = "hayward.incarnation";

/// Settings that apply to every container.
#[derive(Debug, Clone)]
pub struct SpecSettings {
    pub node: String,
    /// Identity of this agent. Another agent may use the same engine.
    pub owner: String,
    /// Accounts of the node, by user of the work.
    pub accounts: Accounts,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub network: String,
    /// Mounts of every container, as `HOST:INSIDE` or `HOST:INSIDE:ro`.
    pub mounts: Vec<String>,
    /// Folders of the node below which work may request mounts.
    pub mountable: Vec<PathBuf>,
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub processes_limit: u64,
    pub output_limit_bytes: u64,
}

/// Returns a name that is unique per incarnation, so that the engine refuses a second container of
/// the same incarnation (I3).
pub fn container_name(id: &AllocationId, incarnation: u64) -> String {
    format!("hayward.{id}.{incarnation}")
}

/// Returns whether these are the labels of this incarnation, set by this agent.
pub fn is_ours(
    labels: &HashMap<String, String>,
    settings: &SpecSettings,
    id: &AllocationId,
    incarnation: u64,
) -> bool {
    let has_value =
        |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    has_value(OWNER, &settings.owner)
        && has_value(ALLOCATION, id.as_str())
        && has_value(INCARNATION, &incarnation.to_string())
}

/// Returns the request that creates a container.
///
/// # Errors
/// Returns the end of the container if the submission is invalid or has no account here.
pub fn create_body(
    container: &Container,
    argv: &[String],
    form: &ContainerForm,
    settings: &SpecSettings,
) -> Result<ContainerCreateBody, Exit> {
    let [program, arguments @ ..] = argv else {
        let message = "the argument vector is empty";
        return Err(Exit::of(ExitCause::LaunchFailed, message));
    };
    let labels = [
        (NODE, settings.node.clone()),
        (OWNER, settings.owner.clone()),
        (ALLOCATION, container.id.to_string()),
        (INCARNATION, container.incarnation.to_string()),
    ];
    Ok(ContainerCreateBody {
        image: Some(form.image.clone()),
        // `entrypoint` and `cmd` are both set. Otherwise the entry point of the image would get the
        // program as an argument.
        entrypoint: Some(vec![program.clone()]),
        cmd: Some(arguments.to_vec()),
        env: Some(environment_variables(container)),
        user: Some(resolve_account(container, form, settings)?),
        working_dir: container.launch.working_directory.clone(),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
        host_config: Some(host_config(container, form, settings)),
        ..ContainerCreateBody::default()
    })
}

fn host_config(container: &Container, form: &ContainerForm, settings: &SpecSettings) -> HostConfig {
    let requested_mounts = form.mounts.iter().map(mounts::bind_spec);
    let memory = to_i64(container.size.memory_bytes);
    let log = [
        ("max-size", settings.output_limit_bytes.max(1).to_string()),
        ("max-file", "2".to_owned()),
    ];
    HostConfig {
        memory: Some(memory),
        // This is equal to `memory`, so the container has no swap.
        memory_swap: Some(memory),
        nano_cpus: Some(to_i64(
            container.size.cpu_milli.saturating_mul(NANO_PER_MILLI),
        )),
        pids_limit: Some(to_i64(settings.processes_limit)),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        readonly_rootfs: Some(form.read_only),
        network_mode: Some(settings.network.clone()),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        binds: Some(
            settings
                .mounts
                .iter()
                .cloned()
                .chain(requested_mounts)
                .collect(),
        ),
        // The limit also bounds the copy of the output that the engine keeps (F36).
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(log.map(|(name, value)| (name.to_owned(), value)).into()),
        }),
        ..HostConfig::default()
    }
}

fn environment_variables(container: &Container) -> Vec<String> {
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
    let format_pair = |(name, value)| format!("{name}={value}");
    variables.into_iter().map(format_pair).collect()
}

/// Returns the account that the container runs under, as `uid:gid`. The first of these applies: the
/// account that the user is mapped to, the account of the settings, the account of the submission,
/// the account that other programs of the user have here, [`DEFAULT_UID`]. With mounts, the
/// submission may not choose the account (S16).
fn resolve_account(
    container: &Container,
    form: &ContainerForm,
    settings: &SpecSettings,
) -> Result<String, Exit> {
    let ids = if let Some(account) = settings.accounts.mapped_account(&container.user) {
        required(form, account.uid, Some(account.gid))
    } else if let Some(uid) = settings.uid {
        required(form, uid, settings.gid)
    } else if form.mounts.is_empty() && form.uid.is_some() {
        Ok((form.uid.unwrap_or(DEFAULT_UID), form.gid))
    } else {
        let chosen = settings
            .accounts
            .choose(&container.user, &container.launch)?;
        let (uid, gid) = chosen.map_or((DEFAULT_UID, DEFAULT_UID), |it| (it.uid, it.gid));
        let free_gid = form.gid.filter(|_| form.mounts.is_empty());
        required(form, uid, free_gid.or(Some(gid)))
    };
    let (uid, gid) = ids.map_err(|message| Exit::of(ExitCause::LaunchFailed, message))?;
    let gid = gid.unwrap_or(uid);
    if uid < MIN_USER_ID || gid < MIN_USER_ID {
        let message = format!(
            "work may not run with a user or group below {MIN_USER_ID}, but it would run as \
            {uid}:{gid}"
        );
        return Err(Exit::of(ExitCause::LaunchFailed, message));
    }
    Ok(format!("{uid}:{gid}"))
}

/// Refuses a submission that requests another account than the one that it has to have.
fn required(
    form: &ContainerForm,
    uid: u32,
    gid: Option<u32>,
) -> Result<(u32, Option<u32>), String> {
    for (kind, own, requested) in [("user", Some(uid), form.uid), ("group", gid, form.gid)] {
        if let (Some(own), Some(requested)) = (own, requested)
            && own != requested
        {
            return Err(format!(
                "this node runs containers as {kind} {own}, not as {requested}"
            ));
        }
    }
    Ok((uid, gid.or(form.gid)))
}

fn to_i64(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Returns the registry of an image.
pub fn registry_of(image: &str) -> &str {
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
    use crate::run_as::tests::root_accounts;

    fn settings() -> SpecSettings {
        SpecSettings {
            node: "n".into(),
            owner: "o".into(),
            uid: None,
            gid: None,
            network: "bridge".into(),
            mounts: Vec::new(),
            mountable: Vec::new(),
            socket: "/run/x.sock".into(),
            state_dir: "/state".into(),
            accounts: root_accounts("ada=4001:4002"),
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
                account: None,
                limits: None,
            },
        }
    }

    #[test]
    fn containers_never_run_under_a_system_account() {
        let account_of = |form: &ContainerForm, settings: &SpecSettings| {
            resolve_account(&container(), form, settings)
        };
        for (uid, gid) in [(Some(0), None), (Some(999), None), (Some(1000), Some(0))] {
            assert!(
                account_of(&form(uid, gid), &settings()).is_err(),
                "{uid:?} {gid:?}"
            );
        }
        let settings_with_uid = |uid| SpecSettings { uid, ..settings() };
        assert!(account_of(&form(None, None), &settings_with_uid(Some(0))).is_err());
        assert!(account_of(&form(Some(2000), None), &settings_with_uid(Some(3000))).is_err());
        for (form, settings, expected) in [
            (form(None, None), settings(), "65534:65534"),
            (form(Some(1000), None), settings(), "1000:1000"),
            (form(None, None), settings_with_uid(Some(3000)), "3000:3000"),
        ] {
            assert_eq!(account_of(&form, &settings).unwrap(), expected);
        }
    }

    #[test]
    fn users_are_mapped_to_accounts_in_containers() {
        let ada = Container {
            user: "ada".parse().unwrap(),
            ..container()
        };
        let fixed_uid = SpecSettings {
            uid: Some(3000),
            ..settings()
        };
        for settings in [settings(), fixed_uid] {
            assert_eq!(
                resolve_account(&ada, &form(None, None), &settings).unwrap(),
                "4001:4002"
            );
            assert_eq!(
                resolve_account(&ada, &form(Some(4001), None), &settings).unwrap(),
                "4001:4002"
            );
            assert!(resolve_account(&ada, &form(Some(4003), None), &settings).is_err());
        }
    }

    #[test]
    fn a_submission_with_mounts_may_not_choose_its_account() {
        let mount = Mount {
            source: "/srv/a".into(),
            target: "/a".into(),
            read_only: true,
        };
        let form_with_mount = |uid| ContainerForm {
            mounts: vec![mount.clone()],
            ..form(uid, None)
        };
        let ben = container();
        assert_eq!(
            resolve_account(&ben, &form_with_mount(None), &settings()).unwrap(),
            "65534:65534"
        );
        assert!(resolve_account(&ben, &form_with_mount(Some(1000)), &settings()).is_err());
        let fixed_uid = SpecSettings {
            uid: Some(3000),
            ..settings()
        };
        assert_eq!(
            resolve_account(&ben, &form_with_mount(None), &fixed_uid).unwrap(),
            "3000:3000"
        );
        let body = create_body(
            &container(),
            &["x".to_owned()],
            &form_with_mount(None),
            &settings(),
        )
        .unwrap();
        assert_eq!(body.host_config.unwrap().binds.unwrap(), ["/srv/a:/a:ro"]);
    }

    #[test]
    fn a_container_has_limits_and_no_privileges() {
        let argv = ["/bin/x".to_owned(), "$HOME;y".to_owned()];
        let body = create_body(&container(), &argv, &form(None, None), &settings()).unwrap();
        assert_eq!(body.entrypoint.unwrap(), ["/bin/x"]);
        assert_eq!(body.cmd.unwrap(), ["$HOME;y"]);
        assert_eq!(body.env.unwrap(), ["A=b=c", "HAYWARD_ALLOCATION=alc_1"]);
        let labels = body.labels.unwrap();
        assert!(is_ours(&labels, &settings(), &container().id, 3));
        assert!(!is_ours(&labels, &settings(), &container().id, 4));
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
        assert_eq!(registry_of("debian:12"), "docker.io");
        assert_eq!(registry_of("library/debian"), "docker.io");
        assert_eq!(registry_of("localhost/x"), "localhost");
        assert_eq!(registry_of("r.example:5000/a/b@sha256:0"), "r.example:5000");
    }
}
