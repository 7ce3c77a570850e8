//! Fault points (X2): places before and after each step where a test lets this program die.
//!
//! Absent unless the feature `fault-points` is set, which only tests of this crate set; and then
//! nothing happens unless a point is named in `FAULT_POINT`, as `journal_after:2` for the
//! second time it is passed.

/// The step that is about to be taken, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    AbsorbBefore,
    AbsorbAfter,
    PositionBefore,
    PositionAfter,
    JournalBefore,
    /// Handed to the kernel, not yet to the disk.
    JournalWritten,
    JournalAfter,
    FolderBefore,
    FolderAfter,
    SpawnBefore,
    SpawnAfter,
    StopBefore,
    StopAfter,
    OutputBefore,
    OutputAfter,
    ReportBefore,
    ReportAfter,
    ForgetBefore,
    ForgetAfter,
    ClaimBefore,
    ClaimAfter,
    ProgramBefore,
    ProgramAfter,
    StartedAfter,
    ExitBefore,
    ExitAfter,
}

#[cfg(feature = "fault-points")]
impl Point {
    /// Every point: a test has a case for each.
    pub const ALL: [Self; 26] = [
        Self::AbsorbBefore,
        Self::AbsorbAfter,
        Self::PositionBefore,
        Self::PositionAfter,
        Self::JournalBefore,
        Self::JournalWritten,
        Self::JournalAfter,
        Self::FolderBefore,
        Self::FolderAfter,
        Self::SpawnBefore,
        Self::SpawnAfter,
        Self::StopBefore,
        Self::StopAfter,
        Self::OutputBefore,
        Self::OutputAfter,
        Self::ReportBefore,
        Self::ReportAfter,
        Self::ForgetBefore,
        Self::ForgetAfter,
        Self::ClaimBefore,
        Self::ClaimAfter,
        Self::ProgramBefore,
        Self::ProgramAfter,
        Self::StartedAfter,
        Self::ExitBefore,
        Self::ExitAfter,
    ];

    /// In the settings of a test.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AbsorbBefore => "absorb_before",
            Self::AbsorbAfter => "absorb_after",
            Self::PositionBefore => "position_before",
            Self::PositionAfter => "position_after",
            Self::JournalBefore => "journal_before",
            Self::JournalWritten => "journal_written",
            Self::JournalAfter => "journal_after",
            Self::FolderBefore => "folder_before",
            Self::FolderAfter => "folder_after",
            Self::SpawnBefore => "spawn_before",
            Self::SpawnAfter => "spawn_after",
            Self::StopBefore => "stop_before",
            Self::StopAfter => "stop_after",
            Self::OutputBefore => "output_before",
            Self::OutputAfter => "output_after",
            Self::ReportBefore => "report_before",
            Self::ReportAfter => "report_after",
            Self::ForgetBefore => "forget_before",
            Self::ForgetAfter => "forget_after",
            Self::ClaimBefore => "claim_before",
            Self::ClaimAfter => "claim_after",
            Self::ProgramBefore => "program_before",
            Self::ProgramAfter => "program_after",
            Self::StartedAfter => "started_after",
            Self::ExitBefore => "exit_before",
            Self::ExitAfter => "exit_after",
        }
    }
}

/// Dies here if this is the point that was named.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn pass(_: Point) {}

#[cfg(feature = "fault-points")]
pub use named::pass;

/// What the supervisors of an agent must know of it, whose environment is empty otherwise.
#[cfg(feature = "fault-points")]
pub const VARIABLES: [&str; 2] = [named::POINT, named::BOOT];

/// A boot that a test pretends.
#[cfg(feature = "fault-points")]
pub fn pretended_boot() -> Option<String> {
    std::env::var(named::BOOT).ok()
}

#[cfg(feature = "fault-points")]
mod named {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Point;

    pub const POINT: &str = "FAULT_POINT";
    pub const BOOT: &str = "FAULT_BOOT";

    /// The name, and how often it is still passed.
    static NAMED: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let text = std::env::var(POINT).ok()?;
        let (name, time) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicU32::new(time.parse().ok()?)))
    });

    pub fn pass(point: Point) {
        if let Some((name, left)) = &*NAMED
            && name == point.name()
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            std::process::abort();
        }
    }
}
