//! Applications (application protocol, sections 2 to 5): both machines of each of them, kept and
//! moved here by commands and by news of `allocations` and `verdicts`.
//!
//! What happens follows from the pure crate; here its messages are carried between the two
//! machines ([`pump`]), its asks become demand ([`demand`]), what was granted becomes news
//! ([`news`]), and what differs from the rows is written ([`turn`]). Decision 0024 says why.

mod asked;
mod counted;
pub mod demand;
mod news;
mod one;
mod places;
mod pump;
pub mod read;
mod restore;
mod turn;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_applications::book::{Book, Limits};
use hayward_job_converter_applications::ids::AppId;
use rustc_hash::FxHashMap;
use uuid::Uuid;

pub use asked::{Act, Refusal, Remove, Whose};
use counted::Counted;
pub use news::{Heard, owns};
pub use one::Half;
use one::Touched;
pub use view::Filter;

use crate::config::Settings;

/// Who writes them (2.6).
pub const MANAGER: &str = "applications";
/// How ids of their work begin.
pub const PREFIX: &str = "app_";

pub struct Applications {
    /// The front of each.
    book: Book,
    /// What belongs to it here: the core of each, and where its parts stand.
    halves: BTreeMap<AppId, Half>,
    by_number: FxHashMap<Uuid, AppId>,
    /// What has to be looked at again.
    touched: BTreeMap<AppId, Touched>,
    /// When to look without news, by wall time.
    due: BTreeSet<(i64, AppId)>,
    /// Rows that go.
    gone: Vec<Uuid>,
    /// The first full picture of this term has come.
    heard: bool,
    counted: Counted,
    tick_ms: u64,
    stop_grace_ms: u64,
}

impl Applications {
    pub fn new(settings: &Settings) -> Self {
        Self {
            book: Book::new(limits(settings)),
            halves: BTreeMap::new(),
            by_number: FxHashMap::default(),
            touched: BTreeMap::new(),
            due: BTreeSet::new(),
            gone: Vec::new(),
            heard: false,
            counted: Counted::new(settings),
            tick_ms: settings.application_tick_ms,
            stop_grace_ms: settings.stop_grace_ms,
        }
    }

    /// Looked at again before this batch is over.
    fn touch(&mut self, id: &AppId) -> &mut Touched {
        self.touched.entry(id.clone()).or_default()
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        applications: settings.max_applications,
        tasks: settings.max_application_tasks,
        ..Limits::default()
    }
}
