//! The final table: figure, baseline of the same run, ratio.

use tabled::builder::Builder;
use tabled::settings::Style;

/// A figure, and the baseline of the same run.
#[derive(Clone, Copy)]
pub struct Pair {
    pub figure: f64,
    pub baseline: f64,
}

pub struct Report {
    lines: Vec<[String; 4]>,
}

impl Report {
    pub fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds a rate or a time without a baseline.
    pub fn figure(&mut self, what: &str, value: String) {
        self.push(what, value, String::new(), String::new());
    }

    /// Adds two rates of one run, and the ratio of the figure to the baseline.
    pub fn rates(&mut self, what: &str, rates: Pair, unit: &str, against: &str) {
        let Pair { figure, baseline } = rates;
        let ratio = if baseline > 0.0 {
            format!("{:.2}", figure / baseline)
        } else {
            "–".into()
        };
        let text = format!("{baseline:.0} {unit} {against}");
        self.push(what, format!("{figure:.0} {unit}"), text, ratio);
    }

    /// Adds two times of one run in milliseconds, and the ratio of the figure to the baseline.
    pub fn times(&mut self, what: &str, times_ms: Pair, against: &str) {
        let Pair { figure, baseline } = times_ms;
        let text = format!("{baseline:.1} ms {against}");
        let ratio = format!("{:.1}", figure / baseline.max(0.001));
        self.push(what, format!("{figure:.1} ms"), text, ratio);
    }

    fn push(&mut self, what: &str, value: String, baseline: String, ratio: String) {
        println!("{what}: {value} {baseline}");
        self.lines.push([what.to_owned(), value, baseline, ratio]);
    }

    pub fn print(&self) {
        let mut table = Builder::new();
        table.push_record(["measured", "Hayward", "baseline in the same run", "ratio"]);
        for line in &self.lines {
            table.push_record(line);
        }
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        println!("\n{cores} cores, one local Postgres with fsync on, everything on this machine");
        println!("{}", table.build().with(Style::rounded()));
    }
}
