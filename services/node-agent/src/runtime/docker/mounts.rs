//! Checks mounts requested by work. The policy of the pool has permitted them, and the settings of
//! this node must permit them too. Links are resolved before the check (S21).

use std::path::{Path, PathBuf};

use hayward_vocabulary::ContainerForm;
use hayward_vocabulary::launch::{Mount, is_plain_path};

use super::container_spec::SpecSettings;

pub fn bind(mount: &Mount) -> String {
    let how = if mount.read_only { "ro" } else { "rw" };
    format!("{}:{}:{how}", mount.source, mount.target)
}

/// # Errors Returns the reason if the node does not permit a mount.
pub fn permitted(form: &ContainerForm, settings: &SpecSettings) -> Result<(), String> {
    for mount in &form.mounts {
        check(mount, settings).map_err(|why| format!("the mount {}: {why}", mount.source))?;
    }
    Ok(())
}

fn check(mount: &Mount, settings: &SpecSettings) -> Result<(), String> {
    if !is_plain_path(&mount.source) || !is_plain_path(&mount.target) {
        return Err("it is not a normalized absolute path".to_owned());
    }
    let real = Path::new(&mount.source).canonicalize();
    let real = real.map_err(|error| format!("it does not exist on this node: {error}"))?;
    if !real.is_dir() {
        return Err("it is no directory".to_owned());
    }
    let plain = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    if !settings
        .mountable
        .iter()
        .any(|root| real.starts_with(plain(root)))
    {
        return Err(format!(
            "this node's setting `docker_mountable` does not permit {}",
            real.display()
        ));
    }
    // A mount of the socket or of the state folder would give access to the whole node.
    for own in [&settings.socket, &settings.state_dir] {
        let own = plain(own);
        if own.starts_with(&real) || real.starts_with(&own) {
            return Err("it contains files of the engine or the agent".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_as::{Accounts, OwnAccount};

    #[test]
    fn only_permitted_directories_are_mounted_after_resolving_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["srv/data", "state/engine", "other"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("srv/file"), "").unwrap();
        std::os::unix::fs::symlink(at("other"), at("srv/out")).unwrap();
        std::os::unix::fs::symlink(at("srv/data"), at("srv/in")).unwrap();
        let root = OwnAccount { uid: 0, gid: 0 };
        let settings = |mountable: &[&str]| SpecSettings {
            node: "n".into(),
            owner: "o".into(),
            accounts: Accounts::new(root, "", None, None).unwrap(),
            uid: None,
            gid: None,
            network: "none".into(),
            mounts: Vec::new(),
            mountable: mountable.iter().map(|name| at(name)).collect(),
            socket: at("srv/engine.sock"),
            state_dir: at("state"),
            processes_limit: 1,
            output_limit_bytes: 1,
        };
        let may = |mountable: &[&str], source: &str| {
            let mount = Mount {
                source: at(source).to_str().unwrap().to_owned(),
                target: "/x".into(),
                read_only: true,
            };
            check(&mount, &settings(mountable))
        };
        assert_eq!(may(&["srv"], "srv/data"), Ok(()));
        assert_eq!(may(&["srv"], "srv/in"), Ok(()));
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
            assert!(may(mountable, source).is_err(), "{mountable:?} {source}");
        }
    }
}
