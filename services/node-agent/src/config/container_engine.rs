//! Validates the settings of the container engine (S21).

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use hayward_vocabulary::launch::MIN_USER_ID;

use super::Settings;
use crate::run_as::Accounts;
use crate::runtime::docker::{DockerSettings, Limits};

impl Settings {
    /// Validates the settings. Returns `None` if no engine is configured.
    ///
    /// # Errors
    /// If a setting would give containers forbidden access.
    pub fn docker(
        &self,
        state_dir: &Path,
        accounts: &Accounts,
    ) -> anyhow::Result<Option<DockerSettings>> {
        let Some(socket) = &self.docker_socket else {
            return Ok(None);
        };
        let socket = parse_socket_path(socket)?;
        for id in [self.run_as_uid, self.run_as_gid].into_iter().flatten() {
            ensure!(
                id >= MIN_USER_ID,
                "the settings `run_as_uid` and `run_as_gid`: containers do not run with an id \
                 below {MIN_USER_ID}"
            );
        }
        let network = self.docker_network.as_str();
        ensure!(
            !network.is_empty() && network != "host" && !network.starts_with("container:"),
            "the setting `docker_network`: {network:?} is not a container network"
        );
        ensure!(
            self.docker_mounts.is_empty() || self.run_as_uid.is_some(),
            "the setting `docker_mounts` needs `run_as_uid`: else a submission would choose whose \
             files it reads there"
        );
        for mount in &self.docker_mounts {
            check_mount(mount, &socket)
                .with_context(|| format!("the setting `docker_mounts`: {mount:?}"))?;
        }
        for root in &self.docker_mountable {
            ensure!(
                root.is_absolute(),
                "the setting `docker_mountable`: {} is not absolute",
                root.display()
            );
        }
        Ok(Some(DockerSettings {
            socket,
            state_dir: state_dir.to_owned(),
            node: self.node.clone(),
            network: self.docker_network.clone(),
            mounts: self.docker_mounts.clone(),
            mountable: self.docker_mountable.clone(),
            accounts: accounts.clone(),
            registries: self.docker_registries.clone(),
            uid: self.run_as_uid,
            gid: self.run_as_gid,
            processes_limit: self.processes_limit,
            output_limit_bytes: self.output_limit_bytes,
            limits: Limits::default(),
        }))
    }
}

fn parse_socket_path(socket: &Path) -> anyhow::Result<PathBuf> {
    let text = socket.to_string_lossy();
    let path = Path::new(text.strip_prefix("unix://").unwrap_or(&text));
    ensure!(
        path.is_absolute(),
        "the setting `docker_socket`: {} is not an absolute path of a local socket",
        socket.display()
    );
    Ok(path.to_owned())
}

/// Refuses mounts of the engine's socket or a parent of it, which give access to the whole node.
fn check_mount(mount: &str, socket: &Path) -> anyhow::Result<()> {
    let fields: Vec<&str> = mount.split(':').collect();
    let (host, inside) = match fields.as_slice() {
        [host, inside] | [host, inside, "ro" | "rw"] => (Path::new(host), Path::new(inside)),
        _ => anyhow::bail!("is not HOST:INSIDE or HOST:INSIDE:ro"),
    };
    ensure!(
        host.is_absolute() && inside.is_absolute(),
        "has a path that is not absolute"
    );
    let canonicalize = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    ensure!(
        !canonicalize(socket).starts_with(canonicalize(host)),
        "holds the engine's socket"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_as::tests::root_accounts;

    fn docker_settings(settings: &Settings) -> anyhow::Result<Option<DockerSettings>> {
        let accounts = root_accounts("");
        settings.docker(Path::new("/s"), &accounts)
    }

    fn settings() -> Settings {
        Settings {
            node: "n".into(),
            docker_socket: Some("/var/run/docker.sock".into()),
            ..Settings::default()
        }
    }

    #[test]
    fn the_socket_must_be_local() {
        let settings_with = |socket: &str| Settings {
            docker_socket: Some(socket.into()),
            ..settings()
        };
        let parse = |text| Some(docker_settings(&settings_with(text)).ok()??.socket);
        assert_eq!(parse("/run/x.sock"), Some("/run/x.sock".into()));
        assert_eq!(parse("unix:///run/x.sock"), Some("/run/x.sock".into()));
        for remote in ["tcp://10.0.0.1:2375", "ssh://host", "docker.sock", ""] {
            assert_eq!(parse(remote), None, "{remote}");
        }
    }

    #[test]
    fn only_listed_host_directories_are_mounted_and_never_the_socket() {
        let settings_with = |mounts: &[&str]| Settings {
            run_as_uid: Some(MIN_USER_ID),
            docker_mounts: mounts.iter().map(|mount| (*mount).to_owned()).collect(),
            ..settings()
        };
        let is_valid = |mounts: &[&str]| docker_settings(&settings_with(mounts)).is_ok();
        assert!(is_valid(&[]) && is_valid(&["/data:/data:ro", "/scratch:/scratch"]));
        for invalid in [
            "/",
            "data:/data",
            "/data:data",
            "/:/host",
            "/var/run:/run",
            "/a:/b:z",
        ] {
            assert!(!is_valid(&[invalid]), "{invalid}");
        }
        let without_uid = Settings {
            run_as_uid: None,
            ..settings_with(&["/data:/data:ro"])
        };
        assert!(docker_settings(&without_uid).is_err());
        for network in ["host", "container:x", ""] {
            let settings = Settings {
                docker_network: network.into(),
                ..settings()
            };
            assert!(docker_settings(&settings).is_err(), "{network}");
        }
    }

    #[test]
    fn containers_may_not_run_as_root() {
        let settings = Settings {
            run_as_uid: Some(0),
            ..settings()
        };
        assert!(docker_settings(&settings).is_err());
    }
}
