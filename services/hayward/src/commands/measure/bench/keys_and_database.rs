//! Keys and a Postgres in a temporary folder, for services that are separate processes.

use hayward_service::Keys;
use hayward_vocabulary::NodeName;
use tempfile::TempDir;

use crate::database::Database;
use crate::prepare;

pub struct Environment {
    pub keys: Keys,
    pub database: Database,
    /// Temporary folder, which is removed with its content at the end.
    _home: TempDir,
}

impl Environment {
    /// Opens an environment with tokens for these nodes and this user.
    pub async fn open(nodes: &[NodeName], user: &str) -> anyhow::Result<Self> {
        let home = tempfile::Builder::new()
            .prefix("hayward-bench-")
            .tempdir()?;
        // The account that runs Postgres must be able to enter this folder.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(home.path(), mode)?;
        let keys = prepare::create_keys(&home.path().join("keys"), nodes)?;
        prepare::create_user_token(&keys, user)?;
        let database = Database::open(None, &home.path().join("pg"), &keys).await?;
        Ok(Self {
            keys,
            database,
            _home: home,
        })
    }
}
