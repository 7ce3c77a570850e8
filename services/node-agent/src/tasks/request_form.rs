//! Forms of lease requests, for job-converters of older versions.

use hayward_job_converter_api::tasks::TERMS_VERSION;

/// Newest form of requests that job-converter understands. It refuses fields that it does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestForm {
    /// With the usage of runs, and the version of the terms.
    Usage,
    /// With a request for the terms of the job, without usage and version.
    Terms,
    /// With slots and running tasks, and without terms.
    Slots,
    Plain,
}

impl RequestForm {
    pub fn previous(self) -> Self {
        match self {
            Self::Usage => Self::Terms,
            Self::Terms => Self::Slots,
            Self::Slots | Self::Plain => Self::Plain,
        }
    }

    pub fn has_terms(self) -> bool {
        matches!(self, Self::Usage | Self::Terms)
    }

    pub fn has_slots(self) -> bool {
        self != Self::Plain
    }

    pub fn terms_version(self) -> u32 {
        match self {
            Self::Usage => TERMS_VERSION,
            Self::Terms | Self::Slots | Self::Plain => 0,
        }
    }
}
