//! A progress bar, visible on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

pub fn new(jobs: usize) -> ProgressBar {
    // The bar is drawn to standard error, and hidden if that is no terminal.
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} jobs {eta}");
    let bar = ProgressBar::new(jobs as u64);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub fn update(bar: &ProgressBar, done: usize) {
    // Drawing for each job would be slower than the simulation of the job.
    if done.is_multiple_of(256) {
        bar.set_position(done as u64);
    }
}
