//! Home directories of accounts. The agent makes those of users of the range, if a directory for
//! them is set (TC-24).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use hayward_node_agent_domain::account_choice::Home;

use super::Account;

/// Returns the home directory of an account. It is the work directory if the account has none that
/// it can enter.
pub fn prepare_home(account: &Account, work_dir: &Path) -> PathBuf {
    let home = match &account.home {
        Home::WorkDirectory => None,
        Home::OfSystemUser(home) => Some(home).filter(|home| can_enter(account, home)),
        Home::Made(home) => Some(home).filter(|home| match make(account, home) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(home = %home.display(), %error, "a home directory is not usable");
                false
            }
        }),
    };
    home.map_or(work_dir, PathBuf::as_path).to_owned()
}

fn can_enter(account: &Account, directory: &Path) -> bool {
    let Ok(found) = fs::metadata(directory) else {
        return false;
    };
    let is_member = found.gid() == account.gid || account.further_groups.contains(&found.gid());
    let bit = if found.uid() == account.uid {
        0o100
    } else if is_member {
        0o010
    } else {
        0o001
    };
    found.is_dir() && found.mode() & bit != 0
}

/// Makes the home directory. A directory that exists is used if it belongs to the account.
fn make(account: &Account, home: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(home) {
        Ok(()) => lchown(home, Some(account.uid), Some(account.gid)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(home)?;
            if found.is_dir() && found.uid() == account.uid {
                return Ok(());
            }
            Err(io::Error::other(format!(
                "it is not a directory of uid {}",
                account.uid
            )))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn own_account(home: Home) -> Account {
        Account {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            further_groups: Vec::new(),
            name: None,
            shell: None,
            home,
        }
    }

    #[test]
    fn a_home_directory_is_made_once_and_only_used_by_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("ada");
        let account = own_account(Home::Made(home.clone()));
        let work_dir = Path::new("/work");
        for _ in 0..2 {
            assert_eq!(prepare_home(&account, work_dir), home);
        }
        assert_eq!(fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
        let other = Account {
            uid: account.uid + 1,
            ..account
        };
        assert_eq!(prepare_home(&other, work_dir), work_dir);
    }

    #[test]
    fn a_home_directory_that_cannot_be_entered_is_replaced_by_the_work_directory() {
        let root = tempfile::tempdir().unwrap();
        let account = own_account(Home::OfSystemUser(root.path().to_owned()));
        let work_dir = Path::new("/work");
        assert_eq!(prepare_home(&account, work_dir), root.path());
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(prepare_home(&account, work_dir), work_dir);
        let missing = own_account(Home::OfSystemUser("/no/such".into()));
        assert_eq!(prepare_home(&missing, work_dir), work_dir);
    }
}
