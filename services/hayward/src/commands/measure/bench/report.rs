//! The final table: figure, baseline of the same run, ratio.

use tabled::builder::Builder;
use tabled::settings::Style;

/// A figure of Hayward, and its baseline in the same run.
#[derive(Clone, Copy)]
pub struct Comparison {
    pub figure: f64,
    pub baseline: f64,
}

/// Collects the rows of the final table. Each row is also printed at once.
pub struct Report {
    /// Label, figure, baseline and ratio.
    rows: Vec<[String; 4]>,
}

impl Report {
    pub fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a rate or a time without a baseline.
    pub fn add_figure(&mut self, label: &str, value: String) {
        self.push(label, value, String::new(), String::new());
    }

    /// Adds two rates of the same unit, and the ratio of the figure to the baseline.
    pub fn add_rates(&mut self, label: &str, rates: Comparison, unit: &str, baseline_name: &str) {
        let Comparison { figure, baseline } = rates;
        let ratio = if baseline > 0.0 {
            format!("{:.2}", figure / baseline)
        } else {
            "–".into()
        };
        let text = format!("{baseline:.0} {unit} {baseline_name}");
        self.push(label, format!("{figure:.0} {unit}"), text, ratio);
    }

    /// Adds two times of one run in milliseconds, and the ratio of the figure to the baseline.
    pub fn add_times(&mut self, label: &str, times_ms: Comparison, baseline_name: &str) {
        let Comparison { figure, baseline } = times_ms;
        let text = format!("{baseline:.1} ms {baseline_name}");
        let ratio = format!("{:.1}", figure / baseline.max(0.001));
        self.push(label, format!("{figure:.1} ms"), text, ratio);
    }

    fn push(&mut self, label: &str, value: String, baseline: String, ratio: String) {
        println!("{label}: {value} {baseline}");
        self.rows.push([label.to_owned(), value, baseline, ratio]);
    }

    pub fn print(&self) {
        let mut table = Builder::new();
        table.push_record(["measured", "Hayward", "baseline in the same run", "ratio"]);
        for row in &self.rows {
            table.push_record(row);
        }
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        println!("\n{cores} cores, one local Postgres with fsync on, everything on this machine");
        println!("{}", table.build().with(Style::rounded()));
    }
}
