//! The system account of the server. Postgres refuses to run as root, so root starts it with an
//! unprivileged account. Any other user runs it with their own account.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Uid, User};

use super::EmbeddedError;

/// System account of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// Ids of user and group of the unprivileged account. `None` for the account of this process.
    unprivileged: Option<(u32, u32)>,
}

impl Account {
    pub(super) fn choose() -> Result<Self, EmbeddedError> {
        if !Uid::effective().is_root() {
            return Ok(Self { unprivileged: None });
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self {
                unprivileged: Some((user.uid.as_raw(), user.gid.as_raw())),
            })
            .ok_or(EmbeddedError::NoAccount)
    }

    /// Creates a command that runs with this account, in a working directory that it can access.
    pub(super) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir("/");
        if let Some((uid, gid)) = self.unprivileged {
            // The standard library drops the supplementary groups of root too when root sets a uid.
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Creates `directory`, accessible to this account only.
    pub(super) fn create_private_directory(self, directory: &Path) -> Result<(), EmbeddedError> {
        let to_error = |source| EmbeddedError::Folder {
            folder: directory.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(to_error)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).map_err(to_error)?;
        if let Some((uid, gid)) = self.unprivileged {
            chown(directory, Some(uid), Some(gid)).map_err(to_error)?;
        }
        Ok(())
    }

    /// Refuses a folder below a directory that the account cannot traverse, such as `/root`.
    /// Postgres would only report that it cannot find its data.
    pub(super) fn check_reachable(self, home: &Path) -> Result<(), EmbeddedError> {
        let Some((uid, gid)) = self.unprivileged else {
            return Ok(());
        };
        for ancestor in home.ancestors().skip(1) {
            let Ok(metadata) = fs::metadata(ancestor) else {
                continue;
            };
            let execute_bit = if metadata.uid() == uid {
                0o100
            } else if metadata.gid() == gid {
                0o010
            } else {
                0o001
            };
            if metadata.mode() & execute_bit == 0 {
                return Err(EmbeddedError::Unreachable {
                    home: home.to_owned(),
                    closed: ancestor.to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// Returns the default data folder of a private server. Root gets a folder that the unprivileged
/// account can reach. Other users get their own data directory.
pub(super) fn default_home() -> Option<PathBuf> {
    if Uid::effective().is_root() {
        return Some(PathBuf::from("/var/lib/hayward/pg"));
    }
    let data = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")))?;
    Some(data.join("hayward/pg"))
}
