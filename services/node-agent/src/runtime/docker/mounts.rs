//! Checks the mounts that work requests. The policy of the pool has permitted the mounts, and the
//! settings of this node must permit them too. Links are resolved before the check (S21).

use std::path::{Path, PathBuf};

use hayward_vocabulary::ContainerForm;
use hayward_vocabulary::launch::{Mount, is_plain_path};

use super::container_spec::SpecSettings;

/// Returns the mount as the engine expects it: `HOST:INSIDE:MODE`.
pub fn bind_spec(mount: &Mount) -> String {
    let mode = if mount.read_only { "ro" } else { "rw" };
    format!("{}:{}:{mode}", mount.source, mount.target)
}

/// Checks that this node permits all mounts of the container.
///
/// # Errors
/// Returns the reason if the node does not permit a mount.
pub fn check_permitted(form: &ContainerForm, settings: &SpecSettings) -> Result<(), String> {
    for mount in &form.mounts {
        check_mount(mount, settings)
            .map_err(|reason| format!("the mount {}: {reason}", mount.source))?;
    }
    Ok(())
}

fn check_mount(mount: &Mount, settings: &SpecSettings) -> Result<(), String> {
    if !is_plain_path(&mount.source) || !is_plain_path(&mount.target) {
        return Err("it is not a normalized absolute path".to_owned());
    }
    let real = Path::new(&mount.source).canonicalize();
    let real = real.map_err(|error| format!("it does not exist on this node: {error}"))?;
    if !real.is_dir() {
        return Err("it is no directory".to_owned());
    }
    let canonicalize = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    if !settings
        .mountable
        .iter()
        .any(|root| real.starts_with(canonicalize(root)))
    {
        return Err(format!(
            "this node's setting `docker_mountable` does not permit {}",
            real.display()
        ));
    }
    // A mount of the socket or of the state folder would give access to the whole node.
    for protected in [&settings.socket, &settings.state_dir] {
        let protected = canonicalize(protected);
        if protected.starts_with(&real) || real.starts_with(&protected) {
            return Err("it contains files of the engine or the agent".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_as::tests::root_accounts;

    #[test]
    fn only_permitted_directories_are_mounted_after_resolving_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["srv/data", "state/engine", "other"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("srv/file"), "").unwrap();
        std::os::unix::fs::symlink(path("other"), path("srv/out")).unwrap();
        std::os::unix::fs::symlink(path("srv/data"), path("srv/in")).unwrap();
        let settings = |mountable: &[&str]| SpecSettings {
            node: "n".into(),
            owner: "o".into(),
            accounts: root_accounts(""),
            uid: None,
            gid: None,
            network: "none".into(),
            mounts: Vec::new(),
            mountable: mountable.iter().map(|name| path(name)).collect(),
            socket: path("srv/engine.sock"),
            state_dir: path("state"),
            processes_limit: 1,
            output_limit_bytes: 1,
        };
        let check_source = |mountable: &[&str], source: &str| {
            let mount = Mount {
                source: path(source).to_str().unwrap().to_owned(),
                target: "/x".into(),
                read_only: true,
            };
            check_mount(&mount, &settings(mountable))
        };
        assert_eq!(check_source(&["srv"], "srv/data"), Ok(()));
        assert_eq!(check_source(&["srv"], "srv/in"), Ok(()));
        for (mountable, source) in [
            (&[] as &[&str], "srv/data"),
            (&["srv/da"], "srv/data"),
            (&["srv"], "srv/out"),
            (&["srv"], "srv/file"),
            (&["srv"], "srv/nothing"),
            (&["srv"], "srv"),
            (&["state"], "state/engine"),
            (&[""], "state"),
            (&["srv"], "srv/../other"),
        ] {
            assert!(
                check_source(mountable, source).is_err(),
                "{mountable:?} {source}"
            );
        }
    }
}
