//! Destination of a placement request: a host, or a keyword that selects one.

use std::fmt;

use hayward_vocabulary::NodeName;
use serde::{Deserialize, Serialize};

/// Target host of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Destination {
    Host(NodeName),
    AnyHost,
    /// The host on which the processor runs or last ran.
    LastSeen,
    /// Stop the process. The demand of the service restarts it, preferably on its last host.
    ForceRestartLastSeen,
    /// The host of a standby of the processor (takeover).
    Standby,
}

pub const ANY_HOST: &str = "ANY_HOST";
const LAST_SEEN: &str = "LAST_SEEN";
const FORCE_RESTART_LAST_SEEN: &str = "FORCE_RESTART_LAST_SEEN";
const STANDBY: &str = "STANDBY";

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            ANY_HOST => Ok(Self::AnyHost),
            LAST_SEEN => Ok(Self::LastSeen),
            FORCE_RESTART_LAST_SEEN => Ok(Self::ForceRestartLastSeen),
            STANDBY => Ok(Self::Standby),
            _ => match NodeName::new(text) {
                Ok(host) => Ok(Self::Host(host)),
                Err(error) => {
                    let keywords = [ANY_HOST, LAST_SEEN, FORCE_RESTART_LAST_SEEN, STANDBY];
                    Err(format!("{error}; or one of {}", keywords.join(", ")))
                }
            },
        }
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host(host) => host.as_str(),
            Self::AnyHost => ANY_HOST,
            Self::LastSeen => LAST_SEEN,
            Self::ForceRestartLastSeen => FORCE_RESTART_LAST_SEEN,
            Self::Standby => STANDBY,
        })
    }
}
