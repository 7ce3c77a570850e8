//! Live view of the demonstration: a bar for each user, and the allocations against the
//! entitlement.

use std::time::{Duration, Instant};

use hayward_rm_scheduler_api::shares::{Shares, UserShare};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::work::{DemoState, DemoWork};

/// Interval between printed lines when there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

pub struct LiveView {
    screen: MultiProgress,
    bars: Vec<(&'static str, ProgressBar)>,
    /// True without a terminal. Lines are then printed instead of bars.
    is_plain: bool,
    last_line_at: Option<Instant>,
}

impl LiveView {
    pub fn new(work: &DemoWork) -> Self {
        let screen = MultiProgress::new();
        let style = ProgressStyle::with_template("{prefix:>4} {wide_bar} {pos:>6}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bars = work.owners.iter().map(|owner| {
            let bar = screen.add(ProgressBar::new(owner.files.len() as u64));
            bar.set_style(style.clone());
            bar.set_prefix(owner.user);
            (owner.user, bar)
        });
        let bars: Vec<_> = bars.collect();
        let is_plain = bars.first().is_none_or(|(_, bar)| bar.is_hidden());
        Self {
            screen,
            bars,
            is_plain,
            last_line_at: None,
        }
    }

    pub fn update(&mut self, state: &DemoState) {
        for ((user, bar), job) in self.bars.iter().zip(&state.jobs) {
            let tasks = job.tasks.unwrap_or_default();
            bar.set_position(tasks.succeeded + tasks.failed);
            bar.set_message(holding_text(state.shares.as_ref(), user));
        }
        let is_line_due = self
            .last_line_at
            .is_none_or(|time| time.elapsed() >= LINE_INTERVAL);
        if self.is_plain && is_line_due {
            self.last_line_at = Some(Instant::now());
            let lines = self.bars.iter().map(|(user, bar)| {
                format!(
                    "{user} {}/{} {}",
                    bar.position(),
                    bar.length().unwrap_or(0),
                    bar.message()
                )
            });
            println!("{}", lines.collect::<Vec<_>>().join(" | "));
        }
    }

    pub fn print_line(&self, line: &str) {
        if self.is_plain {
            println!("{line}");
        } else {
            // A failed write to the terminal cannot be reported.
            drop(self.screen.println(line));
        }
    }

    pub fn finish(&self) {
        for (_, bar) in &self.bars {
            bar.finish();
        }
    }
}

/// Describes the held quanta and the due quanta of a user. Only fair-share work counts, because
/// reservations and services do not depend on weights.
fn holding_text(shares: Option<&Shares>, user: &str) -> String {
    let is_of_user = |share: &&UserShare| share.user.as_str() == user;
    // `service` and `reserve` are the classes of services and reservations in the default policy.
    let fair_classes = shares
        .into_iter()
        .flat_map(|shares| &shares.classes)
        .filter(|class| class.class != "service" && class.class != "reserve");
    let (held, due) = fair_classes
        .flat_map(|class| class.users.iter().filter(is_of_user))
        .fold((0, 0), |(held, due), share| {
            (held + share.tally.held, due + share.given)
        });
    format!("holds {held:>2} of {due:>2} quanta due")
}
