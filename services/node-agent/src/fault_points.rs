//! Fault points: places before and after each step at which a test can abort this program.
//!
//! They are active only with the feature `fault-points`, which only tests of this crate set.
//! `FAULT_POINT` names the point, such as `journal_after:2` for the second time it is passed.

/// A fault point before or after a step of the agent or of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The agent takes an update of the desired set into memory.
    AbsorbBefore,
    AbsorbAfter,
    /// The agent stores its position in the desired set.
    PositionBefore,
    PositionAfter,
    /// The agent appends records to the journal.
    JournalBefore,
    /// After a write to the kernel that is not yet synced to the disk.
    JournalWritten,
    JournalAfter,
    /// The agent creates the folder of a container.
    FolderBefore,
    FolderAfter,
    /// The agent starts a supervisor.
    SpawnBefore,
    SpawnAfter,
    /// The agent asks a container to end.
    StopBefore,
    StopAfter,
    /// The agent sends output to container-manager.
    OutputBefore,
    OutputAfter,
    /// The agent reports its containers to container-manager.
    ReportBefore,
    ReportAfter,
    /// The agent removes an ended container.
    ForgetBefore,
    ForgetAfter,
    /// The supervisor claims the folder of its container.
    ClaimBefore,
    ClaimAfter,
    /// The supervisor starts the program.
    ProgramBefore,
    ProgramAfter,
    /// After the supervisor has recorded the start.
    StartedAfter,
    /// The supervisor writes the exit.
    ExitBefore,
    ExitAfter,
}

#[cfg(feature = "fault-points")]
impl Point {
    /// All points. `tests/it/fault_points.rs` covers each of them.
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

    /// Returns the name of the point in `FAULT_POINT`.
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

/// Aborts the program if `FAULT_POINT` names this point.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn pass(_: Point) {}

#[cfg(feature = "fault-points")]
pub use active::pass;

/// Variables that are passed on to supervisors, whose environment is otherwise empty.
#[cfg(feature = "fault-points")]
pub const VARIABLES: [&str; 2] = [active::POINT, active::BOOT];

/// Returns the boot id that a test has set, if any.
#[cfg(feature = "fault-points")]
pub fn test_boot_id() -> Option<String> {
    std::env::var(active::BOOT).ok()
}

#[cfg(feature = "fault-points")]
mod active {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Point;

    pub const POINT: &str = "FAULT_POINT";
    pub const BOOT: &str = "FAULT_BOOT";

    /// Point that `FAULT_POINT` names, and how many more passes lead to the abort.
    static ACTIVE: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let text = std::env::var(POINT).ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicU32::new(count.parse().ok()?)))
    });

    pub fn pass(point: Point) {
        if let Some((name, remaining)) = &*ACTIVE
            && name == point.name()
            && remaining.fetch_sub(1, Ordering::SeqCst) == 1
        {
            std::process::abort();
        }
    }
}
