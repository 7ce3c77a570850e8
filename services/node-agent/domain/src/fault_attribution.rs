//! Attributes a failed start to the user or to the node, by the error of the system (W15).
//!
//! A missing program is the user's fault, and a full disk the node's. A wrong attribution either
//! blocks healthy nodes or sends work to broken ones.

use hayward_vocabulary::{Exit, ExitCause};
use serde::{Deserialize, Serialize};

/// A fault of the node, as in `Exit::cause_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeFault {
    DiskFull,
    ReadOnlyFs,
    /// An image could not be fetched or unpacked.
    ImagePull,
    DeviceError,
    /// The node cannot start anything for any other reason.
    RuntimeDown,
}

impl NodeFault {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::ReadOnlyFs => "read_only_fs",
            Self::ImagePull => "image_pull",
            Self::DeviceError => "device_error",
            Self::RuntimeDown => "runtime_down",
        }
    }

    /// Returns the exit of a container that could not start because of this fault.
    pub fn to_exit(self, message: impl Into<String>) -> Exit {
        Exit {
            cause_code: Some(self.as_str().to_owned()),
            ..Exit::of(ExitCause::Node, message)
        }
    }
}

/// The operation that failed when a container was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// An operation of Hayward itself, on the journal, a directory, a cgroup or its task runner.
    Setup,
    /// Starting the program of the user.
    Program,
}

// These are the Linux errno values, which are equal on all supported architectures.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENODEV: i32 = 19;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ESTALE: i32 = 116;
const EUCLEAN: i32 = 117;
const EDQUOT: i32 = 122;

/// Returns the fault of the node that caused an error, or `None` if the user caused it.
pub fn node_fault(stage: Stage, errno: Option<i32>) -> Option<NodeFault> {
    match (errno, stage) {
        (Some(ENOSPC | EDQUOT), _) => Some(NodeFault::DiskFull),
        (Some(EIO | ENXIO | ENODEV | ESTALE | EUCLEAN), _) => Some(NodeFault::DeviceError),
        // A read-only file system does not prevent the start of a program, so `EROFS` is a fault of
        // the node only during setup.
        (Some(EROFS), Stage::Setup) => Some(NodeFault::ReadOnlyFs),
        (Some(EAGAIN | ENOMEM | ENFILE | EMFILE), _) | (_, Stage::Setup) => {
            Some(NodeFault::RuntimeDown)
        }
        (_, Stage::Program) => None,
    }
}

/// Returns the exit of a container whose start failed.
pub fn exit_for_failed_start(stage: Stage, errno: Option<i32>, message: impl Into<String>) -> Exit {
    match node_fault(stage, errno) {
        Some(fault) => fault.to_exit(message),
        None => Exit::of(ExitCause::LaunchFailed, message),
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn a_missing_program_is_the_users_fault_and_a_full_disk_the_nodes() {
        let (eperm, enoent, e2big, enoexec, eacces, einval) = (1, 2, 7, 8, 13, 22);
        let cases = [
            (Stage::Program, Some(enoent), None),
            (Stage::Program, Some(eacces), None),
            (Stage::Program, Some(enoexec), None),
            (Stage::Program, Some(e2big), None),
            (Stage::Program, Some(einval), None),
            (Stage::Program, Some(eperm), None),
            (Stage::Program, Some(EROFS), None),
            (Stage::Program, None, None),
            (Stage::Program, Some(ENOSPC), Some(NodeFault::DiskFull)),
            (Stage::Program, Some(EIO), Some(NodeFault::DeviceError)),
            (Stage::Program, Some(EAGAIN), Some(NodeFault::RuntimeDown)),
            (Stage::Program, Some(ENOMEM), Some(NodeFault::RuntimeDown)),
            (Stage::Setup, Some(ENOSPC), Some(NodeFault::DiskFull)),
            (Stage::Setup, Some(EDQUOT), Some(NodeFault::DiskFull)),
            (Stage::Setup, Some(EROFS), Some(NodeFault::ReadOnlyFs)),
            (Stage::Setup, Some(EIO), Some(NodeFault::DeviceError)),
            (Stage::Setup, Some(ESTALE), Some(NodeFault::DeviceError)),
            (Stage::Setup, Some(enoent), Some(NodeFault::RuntimeDown)),
            (Stage::Setup, Some(eacces), Some(NodeFault::RuntimeDown)),
            (Stage::Setup, Some(EMFILE), Some(NodeFault::RuntimeDown)),
            (Stage::Setup, None, Some(NodeFault::RuntimeDown)),
        ];
        for (stage, errno, expected) in cases {
            assert_eq!(node_fault(stage, errno), expected, "{stage:?} {errno:?}");
            let exit = exit_for_failed_start(stage, errno, "why");
            let code = expected.map(|fault| fault.as_str().to_owned());
            assert_eq!(exit.cause_code, code);
            assert_eq!(exit.cause.is_user_caused(), code.is_none());
        }
    }

    #[test]
    fn names_match_their_serialized_form() {
        for fault in [
            NodeFault::DiskFull,
            NodeFault::ReadOnlyFs,
            NodeFault::ImagePull,
            NodeFault::DeviceError,
            NodeFault::RuntimeDown,
        ] {
            let name: StrDeserializer<'_, Error> = fault.as_str().into_deserializer();
            assert_eq!(NodeFault::deserialize(name).unwrap(), fault);
        }
    }
}
