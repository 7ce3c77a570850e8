//! Settings of the agent.

mod container_engine;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::run_as::{AccountSettings, Accounts, AgentAccount, RunAs};
use anyhow::{Context as _, ensure};
use hayward_node_agent_domain::NodeFault;
use hayward_node_status_api::ONLY_USERS;
use hayward_service::config::LogFormat;
use hayward_service::{ServerSettings, TokenSource};
use hayward_vocabulary::{NodeName, UserName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of the value of a label.
const MAX_LABEL_BYTES: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    /// Name of this node. No default. With `simulate`, the prefix of the names.
    pub node: String,
    /// File with the agent's token. Default `tokens/agent-<node>.token` in the keys directory.
    pub token_file: Option<PathBuf>,
    /// File with the enrolment secret, which is exchanged for the first token. Default none.
    pub enrolment_secret_file: Option<PathBuf>,
    /// Directory with keys and tokens; the default location of the token. Default none.
    pub keys: Option<PathBuf>,
    /// Directory of the journal and the containers. Required by the `process` runtime; without a
    /// journal, work could start twice (I3).
    pub state_dir: Option<PathBuf>,
    /// Runtime of containers: `process` (default) runs real ones, `simulated` only simulates them.
    pub runtime: RuntimeKind,
    /// Addresses of node-status, which receives heartbeats; comma-separated. The default has the
    /// port of `hayward up`.
    pub node_status_url: String,
    /// Addresses of container-manager, which provides the desired set; comma-separated. The default
    /// has the port of `hayward up`.
    pub container_manager_url: String,
    /// Addresses of job-converter, from which task runners lease tasks; comma-separated. The
    /// default has the port of `hayward up`.
    pub job_converter_url: String,
    /// Node pool. Default: the one of the policy.
    pub pool: Option<String>,
    /// Labels of the node, such as `rack=7,disk=fast`. Default none.
    pub labels: String,
    /// Bytes of memory to offer. Default: measured; the total without the memory of system
    /// accounts, with at least a sixteenth or 2 GiB reserved.
    pub memory_bytes: Option<u64>,
    /// Accounts with a user id below this are system accounts. Default 500.
    pub system_uid_below: u32,
    /// Thousandths of a cpu to offer. Default: all of the machine.
    pub cpu_milli: Option<u64>,
    /// Thousandths of a gpu to offer. Default: all of the machine.
    pub gpu_milli: Option<u64>,
    /// The node accepts no new work while this file exists; its first line is the reason. Default
    /// `quiesce` in the state directory.
    pub quiesce_file: Option<PathBuf>,
    /// The node accepts no new work while fewer bytes are free on the disk of the state directory.
    /// Default 512 MiB, for the journal and outputs. 0: never.
    pub quiesce_disk_bytes: u64,
    /// The node accepts no new work above this memory pressure, in percent of the time. Default 50:
    /// the machine is thrashing. 0: never.
    pub quiesce_memory_pressure_percent: u64,
    /// Cgroup below which cgroups of containers are created; `none` to disable them. Default: the
    /// cgroup of the agent.
    pub cgroup_root: Option<String>,
    /// Account of work: `auto` (the system user of the same name if it is allowed, else the number
    /// of the user in the range), `system`, `range`, `fixed` or `agent`. Default: `fixed` with
    /// `run_as_uid`, else `auto` if the agent is root, else `agent`, its own account (TC-21).
    #[schemars(with = "Option<String>")]
    pub run_as: Option<RunAs>,
    /// Smallest user id of users without a system account: the account of a user is this number
    /// plus that of the user. Default 1,900,000,000 (TC-22).
    pub run_as_range_first: u32,
    /// Count of user ids from `run_as_range_first` on. Default 65,536; the last 256 are Hayward's
    /// own (TC-22).
    pub run_as_range_size: u32,
    /// Work runs under no system user with a user id or group id below this. Default 1,000, and at
    /// least that (TC-23).
    pub least_uid: u32,
    /// Groups of system users that work does not have. The default groups let their members become
    /// root (TC-24).
    pub never_groups: Vec<String>,
    /// Allows two users in `run_as_users` with one account. Default false (TC-21).
    pub shared_accounts: bool,
    /// The node offers itself to these users alone. Default none: to all users (TC-26).
    pub only_users: Vec<String>,
    /// Directory with home directories of users without a system account; they are made with mode
    /// 0700. Default none: the directory of the container (TC-24).
    pub home_root: Option<PathBuf>,
    /// System accounts of users, such as `ada=alice,ben=2001:2001`: an account name, or a user id
    /// with an optional group id. Default none (S16).
    pub run_as_users: String,
    /// User id of all other work with `run_as: fixed`. Default none. Work never runs as root.
    pub run_as_uid: Option<u32>,
    /// Group id of that work. Default: as for `run_as_uid`.
    pub run_as_gid: Option<u32>,
    /// Socket of a container engine on this machine, such as `/var/run/docker.sock`, for work with
    /// an image. Default none: such work does not run here (S21).
    pub docker_socket: Option<PathBuf>,
    /// Network of the engine for containers. Default `bridge`; the host network is not allowed.
    pub docker_network: String,
    /// Directories of this machine mounted into every container, such as `/data:/data:ro`; needs
    /// `run_as_uid`. Default none.
    pub docker_mounts: Vec<String>,
    /// Directories of this machine below which work may request mounts, if the policy of the pool
    /// lists them too. Default none (S21).
    pub docker_mountable: Vec<PathBuf>,
    /// Registries from which images may be pulled, such as `docker.io`. Default none: only images
    /// on the machine are used.
    pub docker_registries: Vec<String>,
    /// Bytes of output stored per container. Default 16 MiB (F36).
    pub output_limit_bytes: u64,
    /// Maximum processes and threads of a container, or of its account if there are no cgroups.
    /// Default 4,096.
    pub processes_limit: u64,
    /// Milliseconds after which a hanging launch fails. Default one minute (F31).
    pub launch_limit_ms: u64,
    /// Ends the containers when the agent ends. Default false: they outlive it.
    pub end_containers_on_exit: bool,
    /// Runs this many simulated agents instead of a real one, named `<node>-0001` and so on.
    pub simulate: u32,
    /// Milliseconds that a simulated command runs; 0 (default): until it is stopped.
    pub simulated_container_ms: u64,
    /// Milliseconds that a simulated task takes. Default 100.
    pub simulated_task_ms: u64,
    /// Percent of simulated tasks that fail. Default 0.
    pub simulated_failure_percent: u32,
    /// Every start on the simulated machine fails with this fault: `disk_full`, `read_only_fs`,
    /// `image_pull`, `device_error` or `runtime_down`. Default none.
    #[schemars(with = "Option<String>")]
    pub simulated_fault: Option<NodeFault>,
    /// Command that starts this program for supervisors and task runners; `supervise DIR` or
    /// `run-tasks` is appended. Default: the running program.
    pub command: Vec<String>,
    /// Base address of an OTLP/HTTP collector. A collector on another machine needs https (S3).
    /// Default: the value of `OTEL_EXPORTER_OTLP_ENDPOINT`, or none, which exports nothing.
    pub otlp_endpoint: Option<String>,
    /// File with the authorities that may sign the certificate of the collector. Default none: the
    /// trust store of the machine.
    pub otlp_authority: Option<PathBuf>,
    /// Allows a collector on another machine without TLS. Default false (S3).
    pub allow_insecure: bool,
    /// Milliseconds between two exports of metrics. Default 15,000.
    pub otlp_interval_ms: u64,
    /// How logs are written: `json`, `text` or `auto`, which is text on a terminal and JSON
    /// elsewhere. Default `auto`.
    pub log_format: LogFormat,
    /// Filter of the logged events, in the syntax of the Rust crate `tracing-subscriber`: `info`,
    /// `debug`, `info,hayward_service=debug`. Default `info`.
    pub log_filter: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    #[default]
    Process,
    Simulated,
}

impl Default for Settings {
    fn default() -> Self {
        let accounts = AccountSettings::default();
        Self {
            node: String::new(),
            token_file: None,
            enrolment_secret_file: None,
            keys: None,
            state_dir: None,
            runtime: RuntimeKind::Process,
            node_status_url: "http://127.0.0.1:7403".into(),
            container_manager_url: "http://127.0.0.1:7402".into(),
            job_converter_url: "http://127.0.0.1:7400".into(),
            pool: None,
            labels: String::new(),
            memory_bytes: None,
            system_uid_below: 500,
            cpu_milli: None,
            gpu_milli: None,
            quiesce_file: None,
            quiesce_disk_bytes: 512 << 20,
            quiesce_memory_pressure_percent: 50,
            cgroup_root: None,
            run_as: None,
            run_as_range_first: accounts.range_first,
            run_as_range_size: accounts.range_size,
            least_uid: accounts.least_uid,
            never_groups: accounts.never_groups,
            shared_accounts: false,
            only_users: Vec::new(),
            home_root: None,
            run_as_users: String::new(),
            run_as_uid: None,
            run_as_gid: None,
            docker_socket: None,
            docker_network: "bridge".into(),
            docker_mounts: Vec::new(),
            docker_mountable: Vec::new(),
            docker_registries: Vec::new(),
            output_limit_bytes: 16 << 20,
            processes_limit: 4096,
            launch_limit_ms: 60_000,
            end_containers_on_exit: false,
            simulate: 0,
            simulated_container_ms: 0,
            simulated_task_ms: 100,
            simulated_failure_percent: 0,
            simulated_fault: None,
            command: Vec::new(),
            otlp_endpoint: None,
            otlp_authority: None,
            allow_insecure: false,
            otlp_interval_ms: 15_000,
            log_format: LogFormat::Auto,
            log_filter: "info".into(),
        }
    }
}

impl Settings {
    pub fn node(&self) -> anyhow::Result<NodeName> {
        NodeName::new(self.node.as_str()).context("the setting `node`")
    }

    /// Returns the settings of each simulated agent.
    #[must_use]
    pub fn simulated_agents(&self) -> Vec<Self> {
        let numbered = |number| Self {
            node: format!("{}-{number:04}", self.node),
            runtime: RuntimeKind::Simulated,
            simulate: 0,
            token_file: None,
            state_dir: None,
            ..self.clone()
        };
        (1..=self.simulate).map(numbered).collect()
    }

    /// Returns the path of the token file, which may not exist before the enrolment.
    pub fn token_path(&self) -> anyhow::Result<PathBuf> {
        Ok(match (&self.token_file, &self.keys) {
            (Some(file), _) => file.clone(),
            (None, Some(keys)) => keys
                .join("tokens")
                .join(format!("agent-{}.token", self.node)),
            (None, None) => anyhow::bail!("set `token_file` or `keys`, where the token is"),
        })
    }

    pub fn token(&self) -> anyhow::Result<TokenSource> {
        self.token_path().map(TokenSource::file)
    }

    /// Returns the accounts under which work runs.
    pub fn accounts(&self) -> anyhow::Result<Accounts> {
        Accounts::new(
            AgentAccount::current(),
            &AccountSettings {
                run_as: self.run_as,
                users: self.run_as_users.clone(),
                uid: self.run_as_uid,
                gid: self.run_as_gid,
                range_first: self.run_as_range_first,
                range_size: self.run_as_range_size,
                least_uid: self.least_uid,
                never_groups: self.never_groups.clone(),
                shared_accounts: self.shared_accounts,
                home_root: self.home_root.clone(),
            },
        )
    }

    /// Returns the label with the only users of the node.
    fn only_users_label(&self) -> anyhow::Result<Option<(String, String)>> {
        for user in &self.only_users {
            UserName::new(user.as_str()).context("the setting `only_users`")?;
        }
        let users = self.only_users.join(",");
        ensure!(
            users.len() <= MAX_LABEL_BYTES,
            "the setting `only_users`: the names have {} bytes, and {MAX_LABEL_BYTES} are allowed",
            users.len()
        );
        Ok((!users.is_empty()).then(|| (ONLY_USERS.to_owned(), users)))
    }

    pub fn label_map(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let pairs = self
            .labels
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        let labels = pairs.map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .with_context(|| format!("the setting `labels`: {pair:?} has no `=`"))?;
            Ok((name.to_owned(), value.to_owned()))
        });
        let mut labels: BTreeMap<_, _> = labels.collect::<anyhow::Result<_>>()?;
        labels.extend(self.only_users_label()?);
        Ok(labels)
    }

    /// Returns the command that starts this program.
    pub fn command(&self) -> anyhow::Result<Vec<String>> {
        if !self.command.is_empty() {
            return Ok(self.command.clone());
        }
        let program = std::env::current_exe().context("cannot find the running program")?;
        let program = program.into_os_string().into_string();
        let program = program.map_err(|path| anyhow::anyhow!("{} is not text", path.display()))?;
        Ok(vec![program])
    }

    /// Returns the settings of telemetry.
    pub fn server_settings(&self) -> ServerSettings {
        ServerSettings {
            otlp_endpoint: self.otlp_endpoint.clone(),
            otlp_authority: self.otlp_authority.clone(),
            allow_insecure: self.allow_insecure,
            otlp_interval_ms: self.otlp_interval_ms,
            log_format: self.log_format,
            log_filter: self.log_filter.clone(),
            ..ServerSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_agents_have_numbered_names() {
        let keys = Some(PathBuf::from("/keys"));
        let settings = Settings {
            node: "sim".into(),
            simulate: 2,
            keys,
            ..Settings::default()
        };
        let names: Vec<_> = settings
            .simulated_agents()
            .into_iter()
            .map(|settings| settings.node)
            .collect();
        assert_eq!(names, ["sim-0001", "sim-0002"]);
    }

    #[test]
    fn labels_are_key_value_pairs() {
        let mut settings = Settings {
            labels: "a=1, b=2=3".into(),
            ..Settings::default()
        };
        assert_eq!(settings.label_map().unwrap()["b"], "2=3");
        settings.only_users = vec!["ada".into(), "ben".into()];
        assert_eq!(settings.label_map().unwrap()[ONLY_USERS], "ada,ben");
        for bad in ["", "a,b", "a b"] {
            settings.only_users = vec![bad.into()];
            assert!(settings.label_map().is_err(), "{bad:?}");
        }
        settings.only_users.clear();
        settings.labels = "a".into();
        assert!(settings.label_map().is_err());
    }
}
