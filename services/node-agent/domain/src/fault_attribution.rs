//! Whose fault it is that something could not be started (W15), from what the machine answered.
//!
//! A program that is not there is its user's affair; a disk that is full is the machine's, whoever
//! ran into it. What is told wrongly either blocks good machines or sends good work to bad ones.

use hayward_vocabulary::{Exit, ExitCause};
use serde::{Deserialize, Serialize};

/// The class of a cause that lies with the machine, as in `Exit::cause_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    DiskFull,
    ReadOnlyFs,
    /// An image could not be fetched or unpacked.
    ImagePull,
    DeviceError,
    /// Nothing can be started here, for no better known reason.
    RuntimeDown,
}

impl Trouble {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::ReadOnlyFs => "read_only_fs",
            Self::ImagePull => "image_pull",
            Self::DeviceError => "device_error",
            Self::RuntimeDown => "runtime_down",
        }
    }

    /// The end of something that this kept from starting.
    pub fn exit(self, message: impl Into<String>) -> Exit {
        Exit {
            cause_code: Some(self.as_str().to_owned()),
            ..Exit::of(ExitCause::Node, message)
        }
    }
}

/// What was being done when the machine refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Something of Hayward's own: the journal, a directory, a control group, its helper program.
    Own,
    /// Starting the program of a user, where the user said.
    Program,
}

// Numbers of Linux, the same on every architecture it runs on that matters here.
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

/// The trouble of the machine behind an error; none where it is the user's.
pub fn trouble(stage: Stage, errno: Option<i32>) -> Option<Trouble> {
    match (errno, stage) {
        (Some(ENOSPC | EDQUOT), _) => Some(Trouble::DiskFull),
        (Some(EIO | ENXIO | ENODEV | ESTALE | EUCLEAN), _) => Some(Trouble::DeviceError),
        // Starting a program writes nothing: a file system that may not be written is no reason.
        (Some(EROFS), Stage::Own) => Some(Trouble::ReadOnlyFs),
        (Some(EAGAIN | ENOMEM | ENFILE | EMFILE), _) | (_, Stage::Own) => {
            Some(Trouble::RuntimeDown)
        }
        (_, Stage::Program) => None,
    }
}

/// How something ended that the machine refused to start.
pub fn refusal(stage: Stage, errno: Option<i32>, message: impl Into<String>) -> Exit {
    match trouble(stage, errno) {
        Some(trouble) => trouble.exit(message),
        None => Exit::of(ExitCause::LaunchFailed, message),
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn w15_a_missing_program_is_the_users_and_a_full_disk_the_machines() {
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
            (Stage::Program, Some(ENOSPC), Some(Trouble::DiskFull)),
            (Stage::Program, Some(EIO), Some(Trouble::DeviceError)),
            (Stage::Program, Some(EAGAIN), Some(Trouble::RuntimeDown)),
            (Stage::Program, Some(ENOMEM), Some(Trouble::RuntimeDown)),
            (Stage::Own, Some(ENOSPC), Some(Trouble::DiskFull)),
            (Stage::Own, Some(EDQUOT), Some(Trouble::DiskFull)),
            (Stage::Own, Some(EROFS), Some(Trouble::ReadOnlyFs)),
            (Stage::Own, Some(EIO), Some(Trouble::DeviceError)),
            (Stage::Own, Some(ESTALE), Some(Trouble::DeviceError)),
            (Stage::Own, Some(enoent), Some(Trouble::RuntimeDown)),
            (Stage::Own, Some(eacces), Some(Trouble::RuntimeDown)),
            (Stage::Own, Some(EMFILE), Some(Trouble::RuntimeDown)),
            (Stage::Own, None, Some(Trouble::RuntimeDown)),
        ];
        for (stage, errno, expected) in cases {
            assert_eq!(trouble(stage, errno), expected, "{stage:?} {errno:?}");
            let exit = refusal(stage, errno, "why");
            let code = expected.map(|trouble| trouble.as_str().to_owned());
            assert_eq!(exit.cause_code, code);
            assert_eq!(exit.cause.is_users(), code.is_none());
        }
    }

    #[test]
    fn the_words_are_those_of_the_wire() {
        for trouble in [
            Trouble::DiskFull,
            Trouble::ReadOnlyFs,
            Trouble::ImagePull,
            Trouble::DeviceError,
            Trouble::RuntimeDown,
        ] {
            let word: StrDeserializer<'_, Error> = trouble.as_str().into_deserializer();
            assert_eq!(Trouble::deserialize(word).unwrap(), trouble);
        }
    }
}
